"""`attsvm solve`: the max-margin solution of a selection, with its certificate."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

import typer

from attsvm.cli import solve_options as options
from attsvm.cli.digests import data_digest
from attsvm.cli.options import Device, Json, Out, Quiet, checked_device, load_data, own_folder
from attsvm.cli.registry import solver_named, svm_norm_named
from attsvm.cli.report import print_json, status_line
from attsvm.cli.selection import right_hand_side, selection_named
from attsvm.cli.train_options import Data
from attsvm.cli.train_task import starting_head
from attsvm.cli.verdict import exit_code, print_verdict, verdict
from attsvm.svm import AttentionSVM
from attsvm.svm import solve as solve_svm
from attsvm.sweep.manifest import NAME, now, versions, write_manifest

SOLUTION = "solution.safetensors"


def solve(
    context: typer.Context,
    data: Data,
    norm: options.Norm = "frobenius",
    p: options.Exponent = None,
    select: options.Select = "optimal",
    start: options.Start = None,
    head: options.Head = None,
    solver: options.SolverName = None,
    rhs: options.Sides = "1",
    out: Out = Path("out/solve"),
    seed: options.Seed = 0,
    device: Device = "cpu",
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Find the smallest W that separates the selected tokens of DATA from the others, or prove that there is none.

    FOLDER/solution.safetensors holds weights, duals, support and certificate; manifest.json says how it was made.

    Exit code 0: every problem solved; 2: bad input; 3: at least one problem proved infeasible, its ray saved as duals;
    4: none infeasible, but at least one not converged.
    """
    began = time.perf_counter()
    asked, chosen = svm_norm_named(norm, p), solver_named(solver)
    where = checked_device(device)
    loaded = load_data(data).to(where)
    picked = selection_named(
        select, loaded, head=None if head is None else starting_head(head, loaded, None), start=start
    )
    sides = right_hand_side(rhs)
    problem = AttentionSVM(loaded, picked.selected, selected_set=picked.selected_set, right_hand_side=sides)
    folder = own_folder(out, "solve")
    rows = int(problem.rows.sum())
    with status_line(f"Solving {rows:,} rows in the {asked.name} norm", quiet=quiet or json) as report:
        solution = solve_svm(problem, asked, solver=chosen, progress=report)
    (folder / NAME).unlink(missing_ok=True)  # an earlier solution's: a manifest describes the solution beside it
    solution.save(folder / SOLUTION)
    result = verdict(problem, solution)
    seconds = round(time.perf_counter() - began, 3)
    write_manifest(folder, {
        "kind": "solve",
        "status": "finished",
        "command": shlex.join(["attsvm", *(context.obj or [])]),
        "source": data,
        "description": repr(loaded),
        "settings": {
            "data": data_digest(loaded), "norm": repr(asked), "select": select, "start": start, "rhs": rhs,
            "head": None if head is None else str(head), "solver": None if chosen is None else repr(chosen),
        },
        "ran": solution.solver,
        "tolerance": solution.tolerance,
        "problems": result["problems"],
        "counts": result["status"],
        "seed": seed,
        "device": str(where),
        "versions": versions(),
        "solve_seconds": round(solution.seconds, 6),
        "wall_seconds": seconds,
        "written": now(),
        "files": [SOLUTION, NAME],
    })  # fmt: skip
    if json:
        print_json({**result, "files": [str(folder / name) for name in (SOLUTION, NAME)]})
    else:
        print_verdict(result, asked.name, folder, quiet=quiet)
    raise typer.Exit(exit_code(solution))
