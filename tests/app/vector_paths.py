"""Paths of `attsvm.fit` for the playground's test vectors, each with the step up to which it means anything.

Once a run oscillates with a fixed step size, rounding grows by a factor a step, most of all on K and Q: the path is
then right as a path and no longer number by number, whoever computes it. So every run has twins that start `TWIN` away;
the path is meant to be repeated as long as none of them has drifted `DRIFT` away.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from app.vector_problems import Plan, VectorProblem
from attsvm.attention import Exponential, KeyQuery, Linear, Logistic, Loss, Weights
from attsvm.data import TokenDataset
from attsvm.descent import (
    GradientDescent,
    NormalizedGradientDescent,
    Optimizer,
    Run,
    SteepestDescent,
    TorchEngine,
    fit,
)
from attsvm.norms import MaxEntry, Spectral

TWIN = 1e-12
DRIFT = 1e-10
TWINS = 3

_LOSSES: dict[str, Loss] = {"logistic": Logistic(), "exponential": Exponential(), "linear": Linear()}


def paths(problem: VectorProblem) -> list[dict[str, Any]]:
    """Every planned run from every start: settings in the playground's words, and the recorded iterates."""
    return [path for plan in problem.plans for path in _paths_of(problem, plan)]


def ragged(data: TokenDataset, values: Tensor) -> list[list[float]]:
    """``[n, T]`` as one list per input, real tokens only."""
    return [row[:length] for row, length in zip(values.tolist(), data.real.sum(-1).tolist(), strict=True)]


def _optimizer(plan: Plan) -> Optimizer:
    if plan.optimizer == "gradient":
        return GradientDescent(plan.step_size)
    if plan.optimizer == "normalized":
        return NormalizedGradientDescent(plan.step_size)
    return SteepestDescent(MaxEntry() if plan.optimizer == "sign" else Spectral(), plan.step_size)


def _paths_of(problem: VectorProblem, plan: Plan) -> Iterator[dict[str, Any]]:
    factored = plan.trained == "KQ"
    start = {"key": problem.key, "query": problem.query} if factored else {"weights": problem.weights}
    count = next(iter(start.values())).shape[0]
    if plan.train_head:
        start["head"] = problem.head.expand(count, 2).clone()
    noise = torch.Generator().manual_seed(0)
    with_twins = {
        name: torch.cat([value, *[_nearby(value, name, noise) for _ in range(TWINS)]]) for name, value in start.items()
    }
    run = fit(
        problem.data,
        parameterization=KeyQuery() if factored else Weights(),
        optimizer=_optimizer(plan),
        loss=_LOSSES[plan.loss],
        steps=plan.steps,
        initial=with_twins,
        record=plan.every,
        keep=("risk", "norm", "attention", "weights", "parameters"),
        train_head=plan.train_head,
        engine=TorchEngine(),
    )
    for index in range(count):
        twins = range(index + count, (1 + TWINS) * count, count)
        given = {name: value[index] for name, value in start.items()}
        yield {"settings": _settings(plan, given), **_path(problem.data, run, index, twins)}


def _nearby(value: Tensor, name: str, noise: torch.Generator) -> Tensor:
    """A start TWIN away; factors are disturbed relative to their size, since Q = 0 is a place of its own."""
    size = value.abs() if name in ("key", "query") else torch.ones_like(value)
    return value + TWIN * size * torch.randn(value.shape, generator=noise, dtype=value.dtype)


def _settings(plan: Plan, start: dict[str, Tensor]) -> dict[str, Any]:
    if plan.trained == "p":
        point: dict[str, Any] = {"p": start["weights"].flatten().tolist()}
    elif plan.trained == "W":
        point = {"W": start["weights"].tolist()}
    else:
        point = {"K": start["key"].tolist(), "Q": start["query"].tolist()}
    return {
        "trained": plan.trained,
        "trainHead": plan.train_head,
        "optimizer": plan.optimizer,
        "loss": plan.loss,
        "stepSize": plan.step_size,
        "steps": plan.steps,
        "start": point,
        "startHead": start["head"].tolist() if plan.train_head else None,
    }


def _path(data: TokenDataset, run: Run, index: int, twins: range) -> dict[str, Any]:
    history, recorded = run.history, run.history.parameters or {}
    every = {"weights": history.weights, **recorded}
    known = {name: value for name, value in every.items() if value is not None}
    apart = torch.stack([_apart(value[:, index], value[:, twin]) for value in known.values() for twin in twins])
    drifted = torch.nonzero(apart.amax(0) > DRIFT).flatten().tolist()

    def own(value: Tensor | None) -> list[Any] | None:
        return None if value is None else value[:, index].flatten(min(1, value.ndim - 2)).tolist()

    attention = [] if history.attention is None else [ragged(data, row) for row in history.attention[:, index]]
    return {
        "record": history.step.tolist(),
        "meaningful": drifted[0] if drifted else len(history),
        "weights": own(history.weights),
        "K": own(recorded.get("key")),
        "Q": own(recorded.get("query")),
        "head": own(recorded.get("head")),
        "risk": own(history.risk),
        "norm": own(history.norm),
        "attention": attention,
        "logAttention": ragged(data, run.log_attention[index]),
        "selected": run.selected[index].tolist(),
        "stalled": bool(run.stalled[index]),
    }


def _apart(first: Tensor, second: Tensor) -> Tensor:
    """Largest difference of each recorded step, relative to the larger of 1 and the largest entry."""
    size = first.flatten(1).abs().amax(-1).clamp(min=1.0)
    return (first - second).flatten(1).abs().amax(-1) / size
