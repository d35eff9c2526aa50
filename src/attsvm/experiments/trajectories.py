"""[TaSVM, trajectories] Two inputs of three tokens in the plane: W z_i and K Q^T z_i on their way to the two SVMs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from attsvm.experiments.experiment import Experiment
from attsvm.experiments.plane_runs import COLUMNS, PlaneRuns, checks, compute, tasks


@dataclass(frozen=True, kw_only=True)
class Trajectories(PlaneRuns):
    """Tokens 0.3 N around (-1, 0) and (1, 0), random unit queries and head."""

    picture_seed: int = 29

    example: ClassVar[str] = "trajectories"


TRAJECTORIES = Experiment(
    id="trajectories",
    source="TaSVM",
    title="Paths of W z and K Q^T z",
    shows="W z_i turns to the Frobenius rays, K Q^T z_i to the nuclear ones",
    seconds=5,
    default=Trajectories(),
    columns=COLUMNS,
    tasks=tasks,
    compute=compute,
    checks=checks,
)
