"""Small sweeps that other processes can import; nothing here loads more of attsvm than `attsvm.sweep`."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import torch

from attsvm.sweep import Configuration, Done, Piece, Sweep, Task, cut

TESTS = Path(__file__).resolve().parents[1]


def environment(delay: float = 0.0) -> dict[str, str]:
    """Of a process that knows this module and takes `delay` seconds for each chunk."""
    known = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": known, "TINY_DELAY": str(delay)}


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
        raise RuntimeError("a bug in the sweep")
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


COLUMNS = {"sums": {"element": "number of the draw", "total": "weighted sum of 64 draws", "kind": "their law"}}
TINY = Sweep(id="tiny", default=Tiny(), columns=COLUMNS, tasks=tasks, compute=compute, tolerances={"ActiveSet": 1e-10})
DRAW_ON = Sweep(id="draw-on", default=Fixed(), columns=COLUMNS, tasks=first_task, compute=compute_fixed, more=more)
