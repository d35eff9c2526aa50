"""`attsvm solve`: the max-margin solution of a selection, with its certificate."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

import attsvm
from attsvm.cli.common.files import MANIFEST, new_result, own_folder, write_result
from attsvm.cli.common.inputs import checked_device, load_data, starting_head
from attsvm.cli.common.options import Data, Device, Json, Out, Quiet, Select, listed, option
from attsvm.cli.common.registry import SOLVERS, SVM_NORMS, solver_named, svm_norm_named
from attsvm.cli.common.report import number, plural, print_json, print_table, spread, spread_columns, status_line

SOLUTION = "solution.safetensors"
SOLVED, INFEASIBLE, NOT_CONVERGED = 0, 3, 4
"""Exit codes; infeasible if any problem is proved so, else not converged if any is not solved."""

# Names in JSON, what the table calls them, and digits.
_PROOF = (
    ("primal_value", "Primal value N(W)", 10),
    ("dual_value", "Dual value, a lower bound on it", 10),
    ("relative_gap", "Relative gap", 3),
    ("min_margin", "Smallest margin", 10),
    ("largest_violation", "Largest violation", 3),
    ("dual_violation", "Largest violation of the duals", 3),
    ("support", "Support tokens", 6),
    ("rank", "Rank of W", 6),
)
_RAY = (("ray_residual", "Residual of the ray", 3), ("dual_value", "No solution has a norm below", 6))
_MOST_ELEMENTS = 100

Norm = Annotated[str, option("--norm", "NAME", f"One of {listed(SVM_NORMS)}, or l3, l1.75, spectral2 and the like.")]
Exponent = Annotated[float | None, option("--p", "P", "Exponent of --norm entrywise.")]
Start = Annotated[int | None, option("--start", "N", "Which start of the run, where reached:FILE has several.")]
Head = Annotated[Path | None, option("--head", "FILE", "File with an array called head, if DATA has none.")]
_SOLVER = f"One of {listed(SOLVERS)}; chosen by norm and size if not given."
SolverName = Annotated[str | None, option("--solver", "NAME", _SOLVER)]
_RHS = "Right-hand side of the rows: a number, or a FILE with one per input or per token."
Sides = Annotated[str, option("--rhs", "VALUE", _RHS)]


def solve(
    context: typer.Context, data: Data, norm: Norm = "frobenius", p: Exponent = None,
    select: Select = "optimal", start: Start = None, head: Head = None, solver: SolverName = None, rhs: Sides = "1",
    out: Out = Path("out/solve"), device: Device = "cpu", quiet: Quiet = False, json: Json = False,
) -> None:  # fmt: skip
    """Find the smallest W that separates the selected tokens of DATA from the others, or prove that there is none.

    FOLDER/solution.safetensors holds weights, duals, support and certificate; manifest.json says how it was made.

    Exit code 0: every problem solved; 2: bad input; 3: at least one problem proved infeasible, its ray saved as duals;
    4: none proved infeasible, but at least one not solved: separable, numerically infeasible or not converged.
    """
    from attsvm.cli.common.selection import right_hand_side, selection_named

    began = time.perf_counter()
    asked, chosen = svm_norm_named(norm, p), solver_named(solver)
    where = checked_device(device)
    loaded = load_data(data).to(where)
    picked = selection_named(select, loaded, head=None if head is None else starting_head(head, loaded), start=start)
    problem = attsvm.AttentionSVM(loaded, right_hand_side=right_hand_side(rhs), **picked)
    folder = own_folder(out, "solve")
    rows = int(problem.rows.sum())
    with status_line(f"Solving {rows:,} rows in the {asked.name} norm", quiet=quiet or json) as report:
        solution = attsvm.solve(problem, asked, solver=chosen, progress=report)
    result = verdict(problem, solution)
    settings = {
        "data": attsvm.descent.fingerprint.data_digest(loaded), "norm": repr(asked), "select": select, "start": start,
        "rhs": rhs, "head": head and str(head), "solver": chosen and repr(chosen),
    }  # fmt: skip
    with new_result(folder) as staging:
        solution.save(staging / SOLUTION)
        write_result(
            staging, context, [SOLUTION], time.perf_counter() - began, kind="solve", source=data,
            description=repr(loaded), settings=settings, ran=solution.solver, tolerance=solution.tolerance,
            problems=result["problems"], counts=result["status"], device=str(where),
            solve_seconds=round(solution.seconds, 6),
        )  # fmt: skip
    if json:
        print_json({**result, "files": [str(folder / name) for name in (SOLUTION, MANIFEST)]})
    else:
        print_verdict(result, asked.name, folder, quiet=quiet)
    raise typer.Exit(result["exit_code"])


def verdict(problem: attsvm.AttentionSVM, solution: attsvm.SVMSolution) -> dict[str, Any]:
    """Status, certificate, support and rank, JSON-able; over many problems as median, lowest and highest."""
    proof = vars(solution.certificate)
    found = {**proof, "support": solution.support.sum((-1, -2)), "rank": solution.rank()}
    found = {name: value.flatten() for name, value in (found | {"iterations": solution.iterations}).items()}
    codes, none = solution.codes.flatten(), solution.barred.flatten()
    ended_as = attsvm.svm.solution.CODES
    bounds = found["dual_value"][none & ~solution.infeasible.flatten()]
    ended = SOLVED if bool(solution.solved.all()) else NOT_CONVERGED
    result: dict[str, Any] = {
        "problems": codes.numel(),
        "rows": spread(problem.rows.sum((-1, -2)).flatten()),
        "norm": repr(solution.norm),
        "solver": solution.solver,
        "tolerance": solution.tolerance,
        "status": {status.name.lower(): int((codes == status.code).sum()) for status in attsvm.svm.Status},
        "certificate": {name: spread(found[name][~none]) for name, _, _ in _PROOF if name in proof},
        "ray": {name: spread(found[name][none]) for name, _, _ in _RAY},
        "bound": float(bounds.min()) if bounds.numel() else None,
        **{name: spread(found[name][~none]) for name in ("support", "rank")},
        "ambiguous_rows": int(solution.ambiguous.sum()),
        "unique": int(solution.unique.sum()),
        "nothing_asked": int((problem.rows.any(-1).any(-1) & ~problem.asking.any(-1).any(-1)).sum()),
        "iterations": spread(found["iterations"]),
        "seconds": solution.seconds,
        "exit_code": INFEASIBLE if bool(solution.infeasible.any()) else ended,
    }
    if codes.numel() <= _MOST_ELEMENTS:
        result["elements"] = [
            {"status": ended_as[int(codes[b])].name.lower(), "unique": bool(solution.unique.flatten()[b])}
            | {name: values[b].item() for name, values in found.items()}
            for b in range(codes.numel())
        ]
    return result


def print_verdict(result: dict[str, Any], norm: str, folder: Path, *, quiet: bool) -> None:
    """The verdict as a table, or, if `quiet`, in one line."""
    problems = plural(result["problems"], "problem")
    if quiet:
        parts = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in result["status"].items() if count)
        typer.echo(f"{problems}: {parts}; {norm}, {result['solver']}, {result['seconds']:.3g} s; in {folder}")
        return
    several = result["problems"] > 1
    kinds, columns = spread_columns(several)
    proof = {**result["certificate"], "support": result["support"], "rank": result["rank"]}
    rows: list[list[str]] = []
    for group, lines in ((proof, _PROOF), (result["ray"], _RAY)):
        shown = [(label, group[name], digits) for name, label, digits in lines if group[name] is not None]
        rows += [[label, *(_shown(values[kind], digits) for kind in kinds)] for label, values, digits in shown]
        rows += [[]] if shown else []
    iterations = [_shown(result["iterations"][kind], 6) for kind in kinds]
    rows += [["Solver", result["solver"]], ["Iterations", *iterations], ["Time", f"{result['seconds']:.3g} s"]]
    most = plural(int(result["rows"]["highest"]), "row")
    print_table(f"{problems} of {'up to ' if several else ''}{most}, {norm} norm", columns, rows)
    for sentence in _sentences(result):
        typer.echo(sentence)
    typer.echo(f"The solution, its certificate and its manifest are in {folder}")


def _sentences(result: dict[str, Any]) -> Iterator[str]:
    """What each status means, of several numerically infeasible problems with the smallest bound, and what to know."""
    status, several = result["status"], result["problems"] > 1
    for kind in attsvm.svm.Status:
        if count := status[kind.name.lower()]:
            said = attsvm.svm.solution.said_with_bound(kind, result["bound"])
            yield f"{count} of {result['problems']} {said}" if several else f"{said[:1].upper()}{said[1:]}."
    if result["nothing_asked"]:
        which = f"In {result['nothing_asked']} of {result['problems']} problems nothing" if several else "Nothing"
        yield f"{which} is asked for, since W = 0 meets every row: it is the solution."
    if status["infeasible"]:
        yield "The proof was checked for the data exactly as given; the duals hold the ray."
    if status["not_converged"] or status["separable"]:
        yield f"The certificate had to hold to {result['tolerance']:.0e}; another --solver may get there."
    if result["ambiguous_rows"]:
        near = plural(result["ambiguous_rows"], "row")
        yield f"{near} so near the margin that only the tolerance decides whether they are support."
    solved = status["solved"] + status["no_rows"]
    if solved and result["unique"] < solved:
        which = f"{solved - result['unique']} of {solved} solutions are" if several else "The solution is"
        yield f"{which} not known to be the only one."


def _shown(value: float, digits: int) -> str:
    return "infinite" if math.isinf(value) else number(value + 0.0, digits)  # + 0.0: never -0
