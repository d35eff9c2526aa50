"""[TaSVM, local convergence] W and (K, Q) on random data against both SVMs of the selection they reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np
import torch

from attsvm.attention import KeyQuery, Weights, optimal_tokens
from attsvm.data import random_sphere
from attsvm.descent import fit
from attsvm.experiments.base import Check, Experiment, Verdict
from attsvm.experiments.common import (
    DataSets,
    allowance,
    cosine_columns,
    long_column,
    own_svms,
    seeds_of,
    selected_attention,
    spread_steps,
    turning,
)
from attsvm.sweep import Piece, SweepResult, Task

PUBLIC_RIDGE = 2.2e-16
"""What the public code adds to the gradient of K and Q: half of it an explicit penalty on their squared norms."""
_PUBLIC, _PUBLIC_OPTIMAL, _PUBLIC_COUNT = 0.996, 0.75, 100
"""Mean cosine of the public runs, W and (K, Q); their share of optimal selections; how many runs there are."""


@dataclass(frozen=True, kw_only=True)
class LocalConvergence(DataSets):
    """Random data on the sphere; normalized descent with step 0.1 from PyTorch's default start.

    `steps` is the paper's figure; `long_steps` follows the same runs further, and K and Q also with the public ridge.
    """

    n: int = 6
    T: int = 8
    d: int = 10
    steps: int = 2000
    record: int = 50
    long_steps: int = 20_000

    def quick(self) -> Self:
        return self.with_values(datasets=20, long_steps=4000)


def tasks(configuration: LocalConvergence) -> Sequence[Task]:
    """The paper's runs of W and (K, Q), then the long ones."""
    paper = [(kind, 0.0, "paper") for kind in ("W", "KQ")]
    long = [("W", 0.0, "long"), ("KQ", 0.0, "long"), ("KQ", PUBLIC_RIDGE, "long")]
    return [
        task
        for kind, ridge, run in (*paper, *long)
        for task in configuration.chunks(
            f"{run}-{kind.lower()}{'-ridge' if ridge else ''}",
            kind=kind, ridge=ridge, run=run,
        )
    ]  # fmt: skip


def compute(configuration: LocalConvergence, task: Task, device: torch.device) -> Piece:
    """Train a chunk of data sets, solve both SVMs of what each run selects, follow the cosines along the run."""
    seeds = seeds_of(configuration, task)
    data = random_sphere(n=configuration.n, T=configuration.T, d=configuration.d, batch=len(seeds), seed=seeds)
    data = data.to(device)
    run = fit(
        data,
        parameterization=Weights() if task.values["kind"] == "W" else KeyQuery(),
        ridge=task.values["ridge"],
        steps=configuration.steps if task.values["run"] == "paper" else configuration.long_steps,
        record=_recorded(configuration, task.values["run"]),
        seed=seeds,
    )
    solutions, probability = own_svms(data, run), selected_attention(run)
    shape = (len(run.history), len(seeds))
    columns = {
        "dataset": long_column([number for _, number in seeds], shape, axis=1),
        "parameterization": task.values["kind"],
        "ridge": task.values["ridge"],
        "run": task.values["run"],
        "step": long_column(run.history.step, shape, axis=0),
        "least_probability": long_column(probability.amin(-1), shape),
        "mean_probability": long_column(probability.mean(-1), shape),
        **cosine_columns(run, solutions, shape),
        "optimal": long_column((run.selected == optimal_tokens(data)).all(-1), shape, axis=1),
    }
    unsolved = {
        f"{name} SVM of the reached selection not solved": int((~each.solved).sum()) for name, each in solutions.items()
    }
    return Piece(tables={"history": columns}, counts=unsolved)


def _recorded(configuration: LocalConvergence, run: str) -> Sequence[int]:
    """Steps at equal distances for the paper's run; ever farther apart for a long one."""
    if run == "paper":
        return sorted({*range(0, configuration.steps, configuration.record), configuration.steps})
    return spread_steps(10, configuration.long_steps, 80, configuration.steps)


def checks(result: SweepResult) -> Sequence[Check]:
    """Cosines at the end of the paper's run, what the ridge does, the share of optima."""
    steps, long_steps = result.configuration["steps"], result.configuration["long_steps"]
    kinds = ("W", "KQ")

    def cosines(norm: str, kind: str, run: str = "paper", step: int = steps, ridge: float = 0.0) -> np.ndarray:
        at = {"parameterization": kind, "run": run, "ridge": ridge, "step": step}
        return result.column("history", f"cosine_{norm}", **at)

    def mean(column: str, kind: str, step: int = steps) -> float:
        at = {"parameterization": kind, "run": "paper", "ridge": 0.0, "step": step}
        return float(result.column("history", column, **at).mean())

    w, kq, public = (
        cosines("frobenius", "W"),
        cosines("nuclear", "KQ"),
        cosines("nuclear", "KQ", "long", ridge=PUBLIC_RIDGE),
    )
    bare, ridged = (cosines("nuclear", "KQ", "long", long_steps, ridge) for ridge in (0.0, PUBLIC_RIDGE))
    optimal = mean("optimal", "W")
    last, early = ([mean("mean_probability", kind, step) for kind in kinds]
                   for step in (steps, 2 * result.configuration["record"]))  # fmt: skip
    chance = allowance(np.sqrt(_PUBLIC_OPTIMAL * (1 - _PUBLIC_OPTIMAL)), len(w), _PUBLIC_COUNT)
    found = []
    enough = steps >= LocalConvergence.steps
    for name, own in (("W to the Frobenius SVM", w), ("(K,Q) with the public ridge to the nuclear SVM", public)):
        allowed = allowance(own.std(), len(own), _PUBLIC_COUNT)
        found.append(
            Check(f"{name}, mean cosine", f"public {_PUBLIC:.3f} at {LocalConvergence.steps:,}",
                  f"{own.mean():.4f} +- {own.std():.4f}; least {own.min():.3f}; chance explains {allowed:.4f}",
                  Verdict.of(own.mean() >= _PUBLIC - allowed, enough=enough),
                  "it is below the public mean by more than three standard errors",
                  "the public runs also stop at 1e-9 and walk along round-off")
        )  # fmt: skip
    pairs = (("W nearer to the Frobenius SVM", w, cosines("nuclear", "W"), ".86"),
             ("(K,Q) nearer to the nuclear SVM", kq, cosines("frobenius", "KQ"), ".85"))  # fmt: skip
    for name, own, crossed, other in pairs:
        found.append(
            Check(f"{name} than to the other", f"on all data sets; public mean to the other {other}",
                  f"{np.sum(own > crossed)} of {len(own)}; means {own.mean():.3f}, other {crossed.mean():.3f}",
                  Verdict.of(bool((own > crossed).all())), f"the other one is nearer on a data set at {steps:,}")
        )  # fmt: skip
    recorded, far = np.unique(result.column("history", "step", run="long")), long_steps >= 10 * steps
    return [
        *found,
        turning("all data sets: W turns to the Frobenius SVM", "all (proved for plain gradient descent)",
                partial(cosines, "frobenius", "W", "long"), recorded, long_steps, enough=far),
        turning("all data sets: (K,Q) without ridge turns to the nuclear SVM", "all (conjecture)",
                partial(cosines, "nuclear", "KQ", "long"), recorded, long_steps, enough=far),
        Check("(K,Q): the ridge brings it nearer to the nuclear SVM", f"yes, at {long_steps:,}",
              f"medians {np.median(bare):.4f}, with it {np.median(ridged):.4f}; least {bare.min():.3f}, with"
              f" it {ridged.min():.3f}",
              Verdict.of(bool(np.median(ridged) > np.median(bare) and ridged.min() > bare.min())),
              "the median or the least cosine with the ridge is not above that without"),
        Check("probability of the selected token", "to 1 for W and (K,Q)", f"means {last[0]:.4f}, {last[1]:.4f}",
              Verdict.of(min(last) > 0.99), "a mean is at most .99 at the end of the paper's run"),
        Check("probability of the selected token, early", "(K,Q) faster than W",
              f"{early[0]:.2f}, (K,Q) {early[1]:.2f}", Verdict.of(early[1] > early[0]),
              "the mean of (K,Q) is not above that of W at the second record"),
        Check("runs of W that reach the optimal selection", "public: about 3 in 4", f"{optimal:.0%} of {len(w)}",
              Verdict.of(abs(optimal - _PUBLIC_OPTIMAL) <= chance),
              "the share differs from 3/4 by more than three standard errors"),
    ]  # fmt: skip


LOCAL_CONVERGENCE = Experiment(
    id="local-convergence",
    source="TaSVM",
    title="Local convergence",
    shows="W turns to the Frobenius SVM of what it selects, (K, Q) comes near the nuclear one",
    seconds=8,
    default=LocalConvergence(),
    columns={
        "history": {
            "dataset": "number of the data set",
            "parameterization": "what was trained: W, or K and Q",
            "ridge": "added to the gradient of each factor, times the factor",
            "run": "paper: the paper's number of steps; long: the same start, followed further",
            "step": "steps taken",
            "least_probability": "attention on the token selected in the end, least over the inputs",
            "mean_probability": "attention on the token selected in the end, mean over the inputs",
            "cosine_frobenius": "direction cosine to the Frobenius SVM of the selection reached in the end",
            "cosine_nuclear": "direction cosine to the nuclear SVM of the selection reached in the end",
            "optimal": "whether that selection is the optimal one",
        }
    },
    tasks=tasks,
    compute=compute,
    checks=checks,
    public_seconds=190.0,
    public_tasks="paper",
    public_factor=100.0,
)
