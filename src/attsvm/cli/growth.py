"""`attsvm growth`: how large logits will be at each step, and when they pass a threshold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import attsvm
from attsvm.cli.common import options
from attsvm.cli.common.commands import refuse_options
from attsvm.cli.common.inputs import load_data, starting_head
from attsvm.cli.common.options import Json, Quiet, Seed, option
from attsvm.cli.common.registry import OptimizerOptions, optimizer_named, parameterization_named
from attsvm.cli.common.report import print_json, print_table

_RUN = "A saved run of DATA: it says how it was trained, and is held against the law."
RunFile = Annotated[Path | None, option("--run", "FILE", _RUN)]
Threshold = Annotated[float | None, option("--threshold", "TAU", "Say when the largest logit passes TAU.")]
Steps = Annotated[int | None, option("--steps", "N", "Number of steps; 10,000, or those of the run.", options.STEPS)]


def growth(
    context: typer.Context, data: options.Data, run: RunFile = None,
    select: options.Select = "optimal", head: options.Head = None,
    parameterization: options.Parameterization = "kq", rank: options.Rank = None,
    optimizer: options.Optimizer = "muon", step_size: options.StepSize = None, schedule: options.Schedule = "constant",
    norm: options.DescentNorm = None, weight_decay: options.WeightDecay = None, steps: Steps = None,
    threshold: Threshold = None, seed: Seed = 0, quiet: Quiet = False, json: Json = False,
) -> None:  # fmt: skip
    """Predict gap and largest logit of training on DATA, from the max-margin solution of the selected tokens.

    With --run FILE tokens, steps and optimizer are those of a saved run, and what it did is shown beside. The law is
    derived, not proved; the bounds hold for every run from the same start.
    """
    from attsvm.cli.common.selection import selection_named
    from attsvm.theory.diagnosis.tables import median

    loaded = load_data(data)
    check = None
    if run is None:
        told = OptimizerOptions(step_size, schedule, norm=norm, weight_decay=weight_decay)
        picked = selection_named(select, loaded, head=None if head is None else starting_head(head, loaded), start=None)
        if "selected" not in picked:
            raise ValueError(f"--select must name one token for each input here; {select} holds selected_set")
        found = attsvm.growth(
            loaded, selected=picked["selected"], steps=steps, threshold=threshold, seed=seed,
            optimizer=optimizer_named(optimizer, told), parameterization=parameterization_named(parameterization, rank),
        )  # fmt: skip
    else:
        unused = set(context.params) - {"data", "run", "steps", "threshold", "quiet", "json"}
        refuse_options(context, unused, "--run says how it was trained")
        saved = attsvm.Run.load(run)
        found = attsvm.growth(loaded, saved, steps=steps, threshold=threshold)
        check = attsvm.verify_growth(loaded, saved)
    sentences = [found.sentence, *([check.sentence] if check else [])]
    if json:
        names = ("step", "reach", "gap", "gap_bound", "logit", "logit_bound", "plateau", "logit_plateau", "passes")
        result = {name: getattr(found, name) for name in names} | {"training": found.training, "sentences": sentences}
        if check is not None:
            measured = {name: getattr(check, name) for name in ("gap", "logit", "ratio", "holds", "within_bounds")}
            result["measured"] = measured | {"step": check.predicted.step}
        print_json(result)
        return
    if not quiet:
        shown = check.predicted if check else found
        values = {"gap": shown.gap, "its bound": shown.gap_bound, "largest logit": shown.logit}
        values |= {"bound of logits": shown.logit_bound} | ({"gap of the run": check.gap} if check else {})
        rows = [
            [f"{int(shown.step[at]):,}", *(median(each[at], 4) for each in values.values())]
            for at in range(len(shown.step) - 1, -1, -max(len(shown.step) // 12, 1))[::-1]
        ]
        typer.echo(f"Steps of {'' if check else f'{optimizer}: '}{found.training}")
        columns = [(name, "right") for name in ("step", *values)]
        print_table("The law of growth (medians over the data sets)", columns, rows)
    for sentence in sentences:
        typer.echo(sentence)
