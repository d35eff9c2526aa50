"""The tiny sweeps as experiments, with checks and pictures, and a command line that knows them alone."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from matplotlib.figure import Figure

from attsvm.experiments import Check, Experiment, SweepResult, Verdict
from attsvm.sweep import Sweep
from sweep import tiny

COMMAND = (sys.executable, "-c", "from experiments.tiny import main; main()")


def checks(result: SweepResult) -> Sequence[Check]:
    count = result.tables["sums"].num_rows
    wanted = result.configuration.get("draws", count)
    return [
        Check("number of sums", "one for each draw", str(count), Verdict.of(count == wanted)),
        Check("kind of sums", "uniform (nobody)", "normal", Verdict.FAILS, "they are normal", "sums are"),
        Check("limit", "0 (law of large numbers)", f"{result.column('sums', 'total').mean():.2f}", Verdict.OPEN),
    ]


def experiment_of(sweep: Sweep[Any], **words: Any) -> Experiment[Any]:
    """`sweep` as an experiment that is described by `words`."""
    own = {field.name: getattr(sweep, field.name) for field in dataclasses.fields(sweep)}
    return Experiment(**own, source="new", checks=checks, **words)


TINY = experiment_of(
    tiny.TINY, title="Tiny", shows="Sums of normal draws are normal", seconds=1, public_seconds=190.0,
    public_tasks="draws-00", public_factor=2.0,
)  # fmt: skip
DRAW_ON = experiment_of(tiny.DRAW_ON, title="Draw on", shows="Draws until enough are accepted", seconds=5000)


def draw_tiny(result: SweepResult) -> Mapping[str, Figure]:
    figure = Figure(figsize=(2, 2))
    figure.subplots().plot(result.column("sums", "total"))
    return {result.id: figure}


KNOWN = MappingProxyType({"tiny": TINY, "draw-on": DRAW_ON})
PICTURES = MappingProxyType({"tiny": draw_tiny, "draw-on": draw_tiny})


def main() -> None:
    """The command line, with these two experiments alone."""
    import attsvm.experiments
    import attsvm.plots.figures
    from attsvm.cli import main as command

    attsvm.experiments.EXPERIMENTS = KNOWN
    attsvm.plots.figures.FIGURES = PICTURES
    command()
