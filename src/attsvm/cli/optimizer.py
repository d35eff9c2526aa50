"""`attsvm optimizer`: which norm an optimizer follows, measured on a panel of data sets."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

import attsvm
from attsvm.cli.common import options
from attsvm.cli.common.files import new_result, own_folder, write_result, write_text
from attsvm.cli.common.options import Json, Out, Quiet, Seed, flag, option
from attsvm.cli.common.registry import OptimizerOptions, norm_named, optimizer_named
from attsvm.cli.common.report import progress_bar

FILE = "norms.json"

Name = Annotated[str, typer.Argument(metavar="NAME", help=options.OPTIMIZER_NAMES)]
Factors = Annotated[bool, flag("--factors", "Train K and Q instead of W.")]
Datasets = Annotated[int, option("--datasets", "N", "Data sets of the panel.")]
Steps = Annotated[int, option("--steps", "N", "Number of steps.")]
_SIZE = "Of the first step, then X / sqrt(t + 1); 3 on W, 0.3 on factors; muon a third, sign, lion, adam a tenth."
StepSize = Annotated[float | None, option("--step-size", "X", _SIZE)]
# Of the usual step size: longer steps leave K and Q in bad attractors, or overshoot with the momentum of Muon.
_SHARES = dict.fromkeys(("sign", "signum", "lion", "adam"), 0.1) | dict.fromkeys(("muon", "newton-schulz"), 1 / 3)
Also = Annotated[list[str] | None, option("--also", "NORM", "One more norm to try, such as l4; repeatable.")]


def optimizer(
    context: typer.Context, name: Name, factors: Factors = False, rank: options.Rank = None,
    norm: options.DescentNorm = None, p: options.Exponent = None,
    weight_decay: options.WeightDecay = None, clip: options.Clip = None, setting: options.Settings = None,
    step_size: StepSize = None, steps: Steps = 8000, datasets: Datasets = 24, also: Also = None,
    out: Out = Path("out/optimizer"), seed: Seed = 0, quiet: Quiet = False, json: Json = False,
) -> None:  # fmt: skip
    """Train a panel of random data sets with the optimizer NAME, and say which norm's max-margin problem it solves.

    For every norm: on how many data sets its margin efficiency is the largest, how it changes with the steps, and the
    cosine to its solution. FOLDER/norms.json holds everything that is printed.
    """
    began = time.perf_counter()
    if rank is not None and not factors:
        raise ValueError("--rank belongs to --factors")
    size = (0.3 if factors else 3.0) * _SHARES.get(name, 1.0) if step_size is None else step_size
    rule = optimizer_named(name, OptimizerOptions(
        size, "inverse-sqrt", norm=norm, p=p, weight_decay=weight_decay, clip=clip, settings=tuple(setting or ()),
    ))  # fmt: skip
    kind = attsvm.KeyQuery(rank) if factors else attsvm.Weights()
    norms = {**attsvm.theory.identify.NORMS, **{each: norm_named(each) for each in also}} if also else None
    folder = own_folder(out, "optimizer")
    with progress_bar("Training", steps, quiet=quiet or json) as report:
        found = attsvm.identify_norm(
            rule, kind, norms=norms, steps=steps, datasets=datasets, seed=seed, progress=lambda done, _: report(done)
        )
    with new_result(folder) as staging:
        write_text(staging / FILE, found.to_json() + "\n")
        write_result(staging, context, [FILE], time.perf_counter() - began, kind="optimizer", source=name, seed=seed)
    settled = found.winner or not found.judged.any()
    advice = "" if settled else f" More --steps than {steps:,} or another --step-size than {size:g} may settle it."
    said = f"{found.sentence if quiet else found}{advice}"
    typer.echo(found.to_json() if json else said if quiet else f"{said}\n\nEverything is in {folder / FILE}")
