"""`attsvm growth`: how large logits will be at each step, where weight decay stops them, and when they pass a threshold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import attsvm
from attsvm.cli.common import options
from attsvm.cli.common.inputs import load_data
from attsvm.cli.common.options import Json, Quiet, Seed, option
from attsvm.cli.common.registry import OptimizerOptions, optimizer_named, parameterization_named
from attsvm.cli.common.report import number, print_json, print_table

RunFile = Annotated[
    Path | None,
    option("--run", "FILE", "A saved run of DATA: it says how it was trained, and is held against the law."),
]
Threshold = Annotated[float | None, option("--threshold", "TAU", "Say when the largest logit passes TAU.")]
Steps = Annotated[int | None, option("--steps", "N", "Number of steps; 10,000, or those of the run.", options.STEPS)]
Schedule = Annotated[str, option("--schedule", "NAME", "constant or inverse-sqrt.", options.STEPS)]


def growth(
    data: options.Data,
    run: RunFile = None,
    parameterization: options.Parameterization = "kq",
    rank: options.Rank = None,
    optimizer: options.Optimizer = "muon",
    step_size: options.StepSize = None,
    schedule: Schedule = "constant",
    norm: options.DescentNorm = None,
    weight_decay: options.WeightDecay = 0.0,
    steps: Steps = None,
    threshold: Threshold = None,
    seed: Seed = 0,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Predict gap and largest logit of training on DATA, from the max-margin solution of the best tokens.

    With --run FILE of the tokens and steps of a saved run, and what it did is shown beside; options of descent are then
    the run's own. The law is derived, not proved; the bounds hold for every run from the same start.
    """
    loaded = load_data(data)
    if run is None:
        rule = optimizer_named(
            optimizer, OptimizerOptions(step_size, schedule, norm=norm, weight_decay=weight_decay)
        )
        kind = parameterization_named(parameterization, rank)
        found, check = attsvm.growth(
            loaded, parameterization=kind, optimizer=rule, steps=steps, threshold=threshold, seed=seed
        ), None
    else:
        saved = attsvm.Run.load(run)
        found, check = attsvm.growth(loaded, saved, steps=steps, threshold=threshold), attsvm.verify_growth(loaded, saved)
    sentences = [found.sentence] if check is None else [found.sentence, check.sentence]
    if json:
        names = ("step", "reach", "gap", "gap_bound", "logit", "logit_bound", "plateau", "logit_plateau", "passes")
        told = {name: getattr(found, name) for name in names} | {"sentences": sentences}
        measured = {} if check is None else {name: getattr(check, name) for name in ("gap", "logit", "ratio", "holds")}
        return print_json(told | ({"measured": measured | {"step": check.predicted.step}} if check else {}))
    if not quiet:
        shown = found if check is None else check.predicted
        columns = ["step", "gap", "its bound", "largest logit", "its bound", *(["gap of the run"] if check else [])]
        every = max(len(shown.step) // 12, 1)
        rows = []
        for place in range(len(shown.step) - 1, -1, -every)[::-1]:
            values = [shown.gap, shown.gap_bound, shown.logit, shown.logit_bound, *([check.gap] if check else [])]
            rows.append([f"{int(shown.step[place]):,}", *(number(float(each[place].nanmedian()), 4) for each in values)])
        print_table("The law of growth (medians over the data sets)", [(name, "right") for name in columns], rows)
    for sentence in sentences:
        typer.echo(sentence)
