"""[TaSVM, local convergence] W and (K, Q) on random data against both SVMs of the selection they reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch

from attsvm.attention import KeyQuery, Weights, optimal_tokens
from attsvm.data import random_sphere
from attsvm.descent import fit
from attsvm.experiments.base import Check, Experiment, Verdict
from attsvm.experiments.common import (
    DataSets,
    cosine_columns,
    long_column,
    own_svms,
    seeds_of,
    selected_attention,
    spread_steps,
)
from attsvm.sweep import Piece, SweepResult, Task

PUBLIC_RIDGE = 2.2e-16
"""What the public code adds to the gradient of K and Q: half of it an explicit penalty on their squared norms."""


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

    def end(column: str, kind: str, run: str = "paper", ridge: float = 0.0) -> np.ndarray:
        last = steps if run == "paper" else long_steps
        return result.column("history", column, parameterization=kind, run=run, ridge=ridge, step=last)

    w, kq = end("cosine_frobenius", "W"), end("cosine_nuclear", "KQ")
    crossed_w, crossed_kq = end("cosine_nuclear", "W"), end("cosine_frobenius", "KQ")
    at = {"parameterization": "KQ", "run": "long", "ridge": PUBLIC_RIDGE, "step": steps}
    public = result.column("history", "cosine_nuclear", **at)
    bare, ridged = (end("cosine_nuclear", "KQ", "long", ridge) for ridge in (0.0, PUBLIC_RIDGE))
    optimal = end("optimal", "W").mean()
    probability = {kind: end("mean_probability", kind).mean() for kind in ("W", "KQ")}
    soon = {"run": "paper", "ridge": 0.0, "step": 2 * result.configuration["record"]}
    early = {
        kind: result.column("history", "mean_probability", parameterization=kind, **soon).mean() for kind in ("W", "KQ")
    }
    return [
        Check("W to the Frobenius SVM, mean cosine", "public .996 at 2000", _mean(w), Verdict.of(w.mean() >= 0.99)),
        Check("W to the nuclear SVM, mean cosine", "public .86, less", _mean(crossed_w),
              Verdict.of(crossed_w.mean() < w.mean())),
        Check("(K,Q) to the nuclear SVM, median cosine, no ridge", "a trial gave .993", f"{np.median(kq):.4f}",
              Verdict.of(float(np.median(kq)) >= 0.99)),
        Check(f"(K,Q) with the public ridge, mean cosine at {steps:,}", "public .996", _mean(public),
              Verdict.of(public.mean() >= 0.993), "the public runs also stop at 1e-9 and walk along round-off"),
        Check("(K,Q) to the Frobenius SVM, mean cosine", "public .85, less", _mean(crossed_kq),
              Verdict.of(crossed_kq.mean() < kq.mean())),
        Check(f"(K,Q) without ridge, median cosine at {long_steps:,}", "rising", f"{np.median(bare):.4f}",
              Verdict.of(float(np.median(bare)) > float(np.median(kq)))),
        Check(f"(K,Q) with the public ridge, median cosine at {long_steps:,}", "above that without",
              f"{np.median(ridged):.4f}", Verdict.of(float(np.median(ridged)) > float(np.median(bare)))),
        Check("probability of the selected token, W and (K,Q)", "both to 1, (K,Q) faster",
              f"{probability['W']:.4f}, {probability['KQ']:.4f}; early {early['W']:.2f}, {early['KQ']:.2f}",
              Verdict.of(min(probability.values()) > 0.99 and early["KQ"] > early["W"])),
        Check("runs of W that reach the optimal selection", "about 3 in 4", f"{optimal:.0%}",
              Verdict.of(0.6 <= optimal <= 0.9) if len(w) >= 100 else Verdict.OPEN),
    ]  # fmt: skip


def _mean(values: np.ndarray) -> str:
    return f"{values.mean():.4f} +- {values.std():.4f}"


LOCAL_CONVERGENCE = Experiment(
    id="local-convergence",
    source="TaSVM",
    title="Local convergence",
    shows="W turns to the Frobenius SVM of what it selects, (K, Q) to the nuclear one",
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
