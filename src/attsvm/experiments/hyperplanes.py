"""[TaSVM, separating lines] Two inputs of five tokens in the plane: each direction with the line it separates by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from attsvm.experiments.experiment import Experiment
from attsvm.experiments.plane_runs import COLUMNS, PlaneRuns, checks, compute, tasks


@dataclass(frozen=True, kw_only=True)
class Hyperplanes(PlaneRuns):
    """First tokens (1, .5) and (1, -.5), the others 0.5 N around (-1, 0), random unit queries and head."""

    picture_seed: int = 13

    example: ClassVar[str] = "hyperplanes"


HYPERPLANES = Experiment(
    id="hyperplanes",
    source="TaSVM",
    title="Separating lines",
    shows="W and (K, Q) separate the selected token of each input by the lines of their own SVMs",
    seconds=5,
    default=Hyperplanes(),
    columns=COLUMNS,
    tasks=tasks,
    compute=compute,
    checks=checks,
)
