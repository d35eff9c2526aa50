"""New: which max-margin solution does each optimizer turn to? A measurement; for attention most of it is not proved.

Steepest descent in a norm (sign: the largest entry; spectral, as in Muon: the spectral norm) and mirror descent with an
entrywise power are known, for linear models, to tend to the max-margin solution in that norm (arXiv 2502.04664); for
attention the mirror part is proved locally (arXiv 2410.14581). Every run is compared with the solution in every norm
for the selection that the run itself reached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch

from attsvm.attention import optimal_tokens
from attsvm.data import random_sphere
from attsvm.descent import (
    Adam,
    InverseSqrt,
    NormalizedGradientDescent,
    NormalizedMirrorDescent,
    Optimizer,
    SteepestDescent,
    fit,
)
from attsvm.experiments.base import Check, Experiment, Verdict
from attsvm.experiments.common import DataSets, seeds_of, stacked
from attsvm.norms import Entrywise, Frobenius, MaxEntry, Norm, Spectral, direction_cosine
from attsvm.svm import AttentionSVM, margin_efficiency, solve
from attsvm.sweep import Piece, SweepResult, Task

NORMS: Mapping[str, Norm] = {
    "Frobenius": Frobenius(),
    "max entry": MaxEntry(),
    "spectral": Spectral(),
    "l_1.1": Entrywise(1.1),
    "l_1.75": Entrywise(1.75),
    "l_3": Entrywise(3.0),
}
MATCHES: Mapping[str, str] = {
    "gradient": "Frobenius",
    "sign": "max entry",
    "spectral": "spectral",
    "mirror 1.1": "l_1.1",
    "mirror 1.75": "l_1.75",
    "mirror 3": "l_3",
    "Adam": "max entry",
}
"""The norm whose solution each optimizer should find."""


@dataclass(frozen=True, kw_only=True)
class OptimizerGeometry(DataSets):
    """Random data on the sphere; all optimizers with steps `step_size` / sqrt(t + 1) from PyTorch's default start."""

    n: int = 6
    T: int = 8
    d: int = 10
    steps: int = 6000
    step_size: float = 0.3
    chunk_size: int = 25

    def quick(self) -> Self:
        return self.with_values(n=4, T=5, d=6, datasets=6, steps=3000)


def optimizers(step_size: float) -> dict[str, Optimizer]:
    """The seven optimizers with one schedule."""
    schedule = InverseSqrt(step_size)
    return {
        "gradient": NormalizedGradientDescent(schedule),
        "sign": SteepestDescent(MaxEntry(), schedule),
        "spectral": SteepestDescent(Spectral(), schedule),
        "mirror 1.1": NormalizedMirrorDescent(1.1, schedule),
        "mirror 1.75": NormalizedMirrorDescent(1.75, schedule),
        "mirror 3": NormalizedMirrorDescent(3.0, schedule),
        "Adam": Adam(schedule),
    }


def tasks(configuration: OptimizerGeometry) -> Sequence[Task]:
    """Chunks of data sets for every optimizer."""
    return [task for name in MATCHES for task in configuration.chunks(name.lower().replace(" ", "-"), optimizer=name)]


def compute(configuration: OptimizerGeometry, task: Task, device: torch.device) -> Piece:
    """Train, solve for the reached selection in every norm, measure cosine and margin efficiency."""
    name, seeds = task.values["optimizer"], seeds_of(configuration, task)
    data = random_sphere(n=configuration.n, T=configuration.T, d=configuration.d, batch=len(seeds), seed=seeds)
    data = data.to(device)
    steps, optimizer = configuration.steps, optimizers(configuration.step_size)[name]
    run = fit(data, optimizer=optimizer, steps=steps, record=[steps], keep=(), seed=seeds)
    problem = AttentionSVM(data, run.selected)
    best = (run.selected == optimal_tokens(data)).all(-1)
    tables: list[dict[str, object]] = []
    counts: dict[str, int] = {}
    for label, norm in NORMS.items():
        solution = solve(problem, norm)
        counts[f"{label} SVM of the reached selection infeasible"] = int(solution.infeasible.sum())
        counts[f"{label} SVM not decided"] = int((~solution.solved & ~solution.infeasible).sum())
        tables.append(
            {
                "optimizer": name,
                "dataset": [number for _, number in seeds],
                "norm": label,
                "cosine": direction_cosine(run.weights, solution.weights),
                "efficiency": margin_efficiency(run.weights, problem, norm, solution=solution),
                "unique": solution.unique,
                "relative_gap": solution.certificate.relative_gap,
                "least_attention": run.attention.amax(-1).amin(-1),
                "optimal": best,
            }
        )
    return Piece(tables={"pairs": stacked(tables)}, counts=counts)


def means(result: SweepResult, column: str) -> np.ndarray:
    """Means over the data sets, ``[optimizers, norms]``."""
    return np.array([
        [np.nanmean(result.column("pairs", column, optimizer=name, norm=norm)) for norm in NORMS] for name in MATCHES
    ])  # fmt: skip


def checks(result: SweepResult) -> Sequence[Check]:
    """The matching entry of every row should win, in cosine and in margin efficiency."""
    found = []
    for column in ("cosine", "efficiency"):
        for name, match in MATCHES.items():
            values = {norm: result.column("pairs", column, optimizer=name, norm=norm) for norm in NORMS}
            solved = ~np.isnan(np.stack(list(values.values()))).any(0)
            own, others = values.pop(match)[solved], {norm: each[solved] for norm, each in values.items()}
            rival = max(others, key=lambda norm: float(others[norm].sum()))
            won = int((own > np.stack(list(others.values())).max(0)).sum())
            mean, next_mean = own.sum() / max(len(own), 1), others[rival].sum() / max(len(own), 1)
            found.append(
                Check(f"{name}: {column} to the {match} solution", "largest of its row",
                      f"{mean:.3f}, next {rival} {next_mean:.3f}; largest on {won} of {len(own)} data sets",
                      Verdict.of(bool(mean > next_mean), enough=len(own) > 0),
                      "the mean over the data sets is as large for another norm",
                      "" if len(own) else "no data set has solutions in all norms")
            )  # fmt: skip
    return found


OPTIMIZER_GEOMETRY = Experiment(
    id="optimizer-geometry",
    source="new",
    title="Geometry of optimizers",
    shows="whether each optimizer turns to the max-margin solution in its own norm (a measurement, not a theorem)",
    seconds=400,
    default=OptimizerGeometry(),
    columns={
        "pairs": {
            "optimizer": "which rule trained W",
            "dataset": "number of the data set",
            "norm": "in which the SVM of the reached selection was solved",
            "cosine": "direction cosine of the trained W and that solution",
            "efficiency": "margin of W at norm 1 over the best possible, in that norm",
            "unique": "whether the solution is proved to be the only one",
            "relative_gap": "certified relative duality gap of the solution",
            "least_attention": "attention on the selected token, least over the inputs",
            "optimal": "whether the reached selection is the optimal one",
        }
    },
    tasks=tasks,
    compute=compute,
    checks=checks,
    imports=("numba", "clarabel"),
)
