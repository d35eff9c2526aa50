"""A small experiment that other processes can import, and a command line that knows it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Self

import numpy as np
import torch
from matplotlib.figure import Figure

from attsvm.experiments import Check, Configuration, Done, Experiment, ExperimentResult, Piece, Task, Verdict, cut

TESTS = Path(__file__).resolve().parents[1]
COMMAND = (sys.executable, "-c", "from sweep.tiny import main; main()")


def environment(delay: float = 0.0) -> dict[str, str]:
    """Of a process that knows this module and takes `delay` seconds a chunk."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(TESTS), "TINY_DELAY": str(delay)}


@dataclass(frozen=True, kw_only=True)
class Tiny(Configuration):
    """Sums of normal draws."""

    draws: int = 12
    chunk_size: int = 2
    fail_at: int = -1

    runs_field: ClassVar[str | None] = "draws"

    def quick(self) -> Self:
        return self.with_values(draws=4)


@dataclass(frozen=True, kw_only=True)
class Fixed(Configuration):
    """Without a number of data sets."""

    accepted: int = 6


def tasks(configuration: Tiny) -> Sequence[Task]:
    return [
        Task(f"draws-{first:03d}", {"first": first, "last": last})
        for first, last in cut(configuration.draws, configuration.chunk_size)
    ]


def compute(configuration: Tiny, task: Task, device: torch.device) -> Piece:
    time.sleep(float(os.environ.get("TINY_DELAY", "0")))  # the time is no part of the configuration
    elements = np.arange(task.values["first"], task.values["last"])
    if configuration.fail_at in elements:
        raise RuntimeError("a bug in the experiment")
    paths = np.stack([np.random.default_rng((configuration.seed, each)).normal(size=64) for each in elements])
    totals = paths @ np.linspace(0, 1, 64)
    return Piece(
        tables={"sums": {"element": elements, "total": torch.tensor(totals), "kind": "normal"}},
        arrays={"paths": paths},
        counts={"negative": int((totals < 0).sum()), "not finite": 0},
    )


def first_task(configuration: Fixed) -> Sequence[Task]:
    return [Task("draws-000", {"first": 0, "last": 2})]


def compute_fixed(configuration: Fixed, task: Task, device: torch.device) -> Piece:
    return compute(Tiny(seed=configuration.seed), task, device)


def more(configuration: Fixed, done: Sequence[Done]) -> Sequence[Task]:
    accepted = sum(2 - each.counts["negative"] for each in done)
    if accepted >= configuration.accepted:
        return []
    first = 2 * len(done)
    return [Task(f"draws-{first:03d}", {"first": first, "last": first + 2})]


def checks(result: ExperimentResult) -> Sequence[Check]:
    count = result.tables["sums"].num_rows
    wanted = result.configuration.get("draws", count)
    return [
        Check("number of sums", "one a draw", str(count), Verdict.of(count == wanted)),
        Check("kind of sums", "uniform (nobody)", "normal", Verdict.FAILS, "they are normal"),
        Check("limit", "0 (law of large numbers)", f"{result.column('sums', 'total').mean():.2f}", Verdict.OPEN),
    ]


COLUMNS = {"sums": {"element": "number of the draw", "total": "weighted sum of 64 draws", "kind": "their law"}}
TINY = Experiment(
    id="tiny", source="new", title="Tiny", shows="Sums of normal draws are normal", seconds=1, default=Tiny(),
    columns=COLUMNS, tasks=tasks, compute=compute, checks=checks, public_seconds=190.0, public_tasks="draws-00",
    public_factor=2.0,
)  # fmt: skip
DRAW_ON = Experiment(
    id="draw-on", source="new", title="Draw on", shows="Draws until enough are accepted", seconds=5000, default=Fixed(),
    columns=COLUMNS, tasks=first_task, compute=compute_fixed, checks=checks, more=more,
)  # fmt: skip


def draw_tiny(result: ExperimentResult) -> Mapping[str, Figure]:
    figure = Figure(figsize=(2, 2))
    figure.subplots().plot(result.column("sums", "total"))
    return {result.experiment: figure}


KNOWN = MappingProxyType({"tiny": TINY, "draw-on": DRAW_ON})
PICTURES = MappingProxyType({"tiny": draw_tiny, "draw-on": draw_tiny})


def main() -> None:
    """The command line, with these two experiments alone."""
    import attsvm.experiments
    import attsvm.experiments.registry
    import attsvm.plots.figures.registry
    from attsvm.cli import main as command

    attsvm.experiments.EXPERIMENTS = attsvm.experiments.registry.EXPERIMENTS = KNOWN
    attsvm.plots.figures.registry.FIGURES = PICTURES
    command()
