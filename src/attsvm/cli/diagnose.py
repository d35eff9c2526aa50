"""`attsvm diagnose`: what the theory says before anything is trained, and, if asked, whether it came true."""

from __future__ import annotations

import json as json_format
import time
from pathlib import Path
from typing import Annotated

import typer

import attsvm
from attsvm.cli.common import options
from attsvm.cli.common.files import new_result, own_folder, write_json, write_result
from attsvm.cli.common.inputs import checked_device, load_data, starting_head, starting_point
from attsvm.cli.common.options import Device, Json, Out, Quiet, Seed, option
from attsvm.cli.common.registry import OptimizerOptions, loss_named, optimizer_named, parameterization_named
from attsvm.cli.common.report import print_json, status_line

FILE = "diagnosis.json"

Enumerate = Annotated[int, option("--enumerate", "N", "List locally optimal selections; try at most N candidates.")]
Verify = Annotated[int, option("--verify", "STEPS", "Then train for this many steps and compare with the prediction.")]


def diagnose(
    context: typer.Context, data: options.Data,
    parameterization: options.Parameterization = "w", rank: options.Rank = None,
    optimizer: options.Optimizer = "ngd", step_size: options.StepSize = None, norm: options.DescentNorm = None,
    p: options.Exponent = None, loss: options.Loss = "logistic", head: options.Head = None,
    initial: options.Initial = None, enumerate_local: Enumerate = 0, verify_steps: Verify = 0,
    out: Out = Path("out/diagnose"), seed: Seed = 0, device: Device = "cpu", quiet: Quiet = False, json: Json = False,
) -> None:  # fmt: skip
    """Say which conditions of the papers DATA meet, which results apply, and which tokens training will select.

    The starting point is the one `attsvm train` would draw with the same --seed, unless --initial gives another.
    FOLDER/diagnosis.json holds everything that is printed.
    """
    began = time.perf_counter()
    where = checked_device(device)
    loaded = load_data(data).to(where)
    kind = parameterization_named(parameterization, rank)
    rule = optimizer_named(optimizer, OptimizerOptions(step_size=step_size, norm=norm, p=p))
    own, own_loss = starting_head(head, loaded), loss_named(loss)
    for name, value in (("--enumerate", enumerate_local), ("--verify", verify_steps)):
        if value < 0:
            raise ValueError(f"{name} must not be negative; got {value}")
    start, _ = starting_point(initial, data, loaded, train_head=False)
    settings = {"parameterization": kind, "optimizer": rule, "loss": own_loss, "seed": seed, "initial": start}
    start_at = attsvm.initial_parameters(loaded, kind, seed, initial=start)
    if any(value.ndim > loaded.tokens.ndim - 1 for value in start_at.values()):
        raise ValueError("--initial must hold one start for diagnose; it holds several")
    folder = own_folder(out, "diagnose")
    with status_line("Diagnosing", quiet=quiet or json) as line:
        report = attsvm.diagnose(
            loaded, own, kind, rule, start_at, loss=own_loss, enumerate_local=enumerate_local,
            progress=lambda done, total: line and line(f"{done:,} of {total:,} candidates or data sets"),
        )  # fmt: skip
    result = json_format.loads(report.to_json())
    verdict = None
    if verify_steps:
        verdict = attsvm.verify(report, attsvm.fit(loaded, own, steps=verify_steps, **settings))  # type: ignore[arg-type]
        result["verification"] = {"steps": verify_steps, **json_format.loads(verdict.to_json())}
    with new_result(folder) as staging:
        write_json(staging / FILE, result)
        seconds = time.perf_counter() - began
        write_result(staging, context, [FILE], seconds, kind="diagnose", source=data, seed=seed, device=str(where))
    if json:
        print_json(result)
    elif quiet:
        held = "" if verdict is None else f"{int(verdict.holds.sum())} of {verdict.holds.numel()} as predicted; "
        typer.echo(f"{held}diagnosis in {folder / FILE}")
    else:
        typer.echo(str(report))
        if verdict is not None:
            typer.echo(f"\n{verdict}")
        typer.echo(f"\nEverything is in {folder / FILE}")
