"""What is known of a training on next-token data before it runs: conditions, standing and limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from attsvm.attention import Log, Loss, Parameterization, TwoScales, Weights
from attsvm.attention.losses import as_loss
from attsvm.descent import Constant, GradientDescent, Optimizer, TwoPartDescent
from attsvm.next_token.data import NextTokenData
from attsvm.next_token.graph import PriorityGraph, priority_graph
from attsvm.next_token.limit import SOURCE, LimitPrediction, predict_limit
from attsvm.norms import Frobenius, Norm
from attsvm.svm.solvers.base import ProgressReport, Solver
from attsvm.theory.conditions import Condition
from attsvm.theory.diagnosis import assumptions as assume
from attsvm.theory.diagnosis.implicit_bias import Standing, implicit_bias


def diagnose(
    data: NextTokenData | PriorityGraph,
    parameterization: Parameterization | None = None,
    optimizer: Optimizer | None = None,
    *,
    loss: Loss | Callable[[Tensor], Tensor] | None = None,
    solver: Solver | None = None,
    progress: ProgressReport | None = None,
) -> LimitPrediction:
    """Which conditions of the theorem hold, how well the limit is founded, and what it is.

    As `attsvm.diagnose` for other data. The limit is "proved" where every condition, those on the training included,
    was checked on this input and holds.

    Arguments:
        data: samples, or their priority graph.
        parameterization: `Weights()` (default), `TwoScales`, or `KeyQuery()`, which belongs to the nuclear norm.
        optimizer: by default gradient descent with steps of 1/L, L = max ||x||^2 ||z||^2, a bound on the curvature.
        loss: `attention.Log()`, of which alone a limit is known.
        solver, progress: as in `predict_limit`.

    Raises:
        ValueError: if nothing is known about this way of training.

    >>> import numpy as np
    >>> from attsvm.next_token import from_ids
    >>> found = diagnose(from_ids([[0, 1, 2], [0, 2]], [0, 0], np.eye(3)))
    >>> found.standing.value, found.verdict
    ('proved', 'W tends to W_fin + C W_svm with W_fin = 0, ||W_svm|| = 0.8165 and C growing')
    """
    own = as_loss(loss or Log())
    if not isinstance(own, Log):
        raise ValueError(f"loss must be the log loss, attention.Log(), of which alone a limit is known; got {own!r}")
    graph = data if isinstance(data, PriorityGraph) else priority_graph(data)
    kind, largest = parameterization or Weights(), 1 / curvature(graph.data)
    steps = optimizer or GradientDescent(largest)
    limit = predict_limit(graph, _norm(kind, steps), solver=solver, progress=progress)
    whole, schedule = graph.problem.data, steps.schedule
    size = float(schedule.size) if isinstance(schedule, Constant) else None
    trained = (
        assume.everywhere(whole, "log loss", True, "the loss must be the log of the attention on the label", SOURCE),
        assume.everywhere(
            whole, "W is trained", isinstance(kind, (Weights, TwoScales)), "W itself must be trained", SOURCE
        ),
        _cited(assume.FACTS["plain"].of(whole, steps)),
        _cited(assume.FACTS["constant"].of(whole, steps)),
        assume.everywhere(
            whole, "steps at most 1/L", None if size is None else size <= largest, "no step size may exceed 1 / L",
            SOURCE, float("nan") if size is None else largest - size,
        ),
    )  # fmt: skip
    standing = limit.standing
    if standing is Standing.PROVED and not all(bool(one.proved) for one in trained):
        standing = Standing.CONJECTURED
    return replace(limit, conditions=limit.conditions + trained, standing=standing)


def curvature(data: NextTokenData) -> float:
    """L = max ||x||^2 ||z||^2: the log loss is convex, and nowhere curved more."""
    return float(data.embeddings.square().sum(1).max()) ** 2


def _norm(kind: Parameterization, steps: Optimizer) -> Norm:
    if isinstance(kind, TwoScales):  # W in two parts
        kind = Weights()
    return Frobenius() if isinstance(steps, TwoPartDescent) else implicit_bias(kind, steps).norm


def _cited(condition: Condition) -> Condition:
    return replace(condition, citation=SOURCE)
