"""What theorems assume about a training: head, loss, parameterization, optimizer, steps and start, as conditions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.attention import (
    Exponential,
    Head,
    KeyQuery,
    Linear,
    LinearHead,
    Logistic,
    Loss,
    Parameterization,
    Weights,
    lipschitz_bound,
)
from attsvm.data import TokenDataset
from attsvm.descent import Constant, Geometric, GradientDescent, InverseSqrt, LipschitzStep, Optimizer, Schedule
from attsvm.svm import SVMSolution
from attsvm.theory.conditions import Condition
from attsvm.theory.diagnosis.implicit_bias import ImplicitBias

_RANK, _UNCLEAR = 1e-6, 1e-9  # singular values over the largest: counted, and between the two: not known
_LOSSES = (Logistic, Exponential, Linear)


@dataclass(frozen=True, eq=False)
class Training:
    """What is diagnosed: data in float64, and how they are trained on.

    `start` holds the parameters at the start, batch axes flattened, and `start_weights` their W; None where none was
    given.
    """

    data: TokenDataset
    head: Head
    loss: Loss
    parameterization: Parameterization
    optimizer: Optimizer
    train_head: bool
    bias: ImplicitBias
    start: Mapping[str, Tensor] | None = None
    start_weights: Float[Tensor, "*batch d dq"] | None = None


def everywhere(
    data: TokenDataset, name: str, answer: bool | None, sentence: str, citation: str, margin: float = math.nan
) -> Condition:
    """A condition with the same answer on every data set; None means that it is not known."""
    holds, certain = (
        torch.full(data.batch_shape, bool(each), device=data.device) for each in (answer, answer is not None)
    )
    margins = torch.full(data.batch_shape, margin, dtype=torch.float64, device=data.device)
    return Condition(name, holds, margins, sentence, citation, certain)


def either(name: str, first: Condition, second: Condition) -> Condition:
    """Whether one of two conditions holds."""
    holds, margin = first.holds | second.holds, torch.maximum(first.margin, second.margin)
    certain = first.proved | second.proved | (first.refuted & second.refuted)
    return Condition(name, holds, margin, f"{first.sentence}; or {second.sentence}", first.citation, certain)


def _steps(answer: Callable[[float], bool]) -> Callable[[Optimizer], bool | None]:
    """An answer for step sizes that grow by this factor at each step; None for a schedule of the user's own."""

    def found(optimizer: Optimizer) -> bool | None:
        schedule = optimizer.schedule
        if isinstance(schedule, InverseSqrt):  # it shrinks, but its sum is infinite
            return answer(math.inf)
        if isinstance(schedule, Geometric):
            return answer(schedule.growth)
        return answer(1.0) if isinstance(schedule, (Constant, LipschitzStep)) else None

    return found


def _is(*kinds: type) -> Callable[[object], bool]:
    return lambda part: isinstance(part, kinds)


@dataclass(frozen=True)
class Fact:
    """A condition with one answer for all data sets, which one part of a training decides."""

    name: str
    sentence: str
    part: str
    answer: Callable[[Any], bool | None]  # None means that it is not known
    citation: str = "[TaSVM]"

    def of(self, data: TokenDataset, part: object) -> Condition:
        """The condition of a training on these data that has this part."""
        return everywhere(data, self.name, self.answer(part), self.sentence, self.citation)


_DESCENT = "[TaSVM, descent]"
_SLOPE = "the loss must decrease strictly, with a bounded, Lipschitz slope on bounded intervals"
_PLAIN = "the optimizer must be gradient descent, not normalized and in no other norm"
_ONE, _SUM = "all steps must have one size", "the step sizes must not have a finite sum"
FACTS = {
    "linear": Fact("linear prediction head", "the prediction head must be linear", "head", _is(LinearHead)),
    "fixed": Fact("fixed prediction head", "the prediction head must not be trained", "train_head", lambda it: not it),
    "loss": Fact("loss", _SLOPE, "loss", lambda loss: isinstance(loss, _LOSSES) or None),
    "W": Fact("W is trained", "W itself must be trained", "parameterization", _is(Weights)),
    "plain": Fact("plain gradient descent", _PLAIN, "optimizer", _is(GradientDescent), _DESCENT),
    "constant": Fact("constant steps", _ONE, "optimizer", _steps(lambda growth: growth == 1), _DESCENT),
    "lasting": Fact("steps not summable", _SUM, "optimizer", _steps(lambda growth: growth >= 1), _DESCENT),
    "logistic": Fact("logistic loss", "the loss must be logistic", "loss", _is(Logistic), "[MMTS, joint training]"),
}


def bounded_steps(training: Training) -> Condition:
    """Whether no step of plain gradient descent on W is longer than 1 / L times the gradient.

    Not known for another optimizer, a nonlinear head, a custom loss or a schedule of the user's own, for which we have
    no bound.

    Margin: ``1 / L`` minus the largest step size.
    """
    name, sentence, citation = "steps at most 1/L", "no step size may exceed 1 / L", "[TaSVM, descent]"
    schedule = training.optimizer.schedule
    largest = _largest(schedule)
    usable = isinstance(training.head, LinearHead) and isinstance(training.loss, _LOSSES)
    if largest is None or not usable or not isinstance(training.optimizer, GradientDescent):
        return everywhere(training.data, name, None, sentence, citation)
    bound = lipschitz_bound(training.data, training.head, training.loss).double()
    limit = torch.where(bound > 0, 1 / bound, math.inf)
    if isinstance(schedule, LipschitzStep):
        margin = torch.where(bound > 0, (1 - largest) * limit, math.inf)
        return Condition(name, torch.full_like(bound, largest <= 1, dtype=torch.bool), margin, sentence, citation)
    return Condition(name, limit >= largest, limit - largest, sentence, citation)


def _largest(schedule: Schedule) -> float | None:
    """The largest step size of a schedule that ships, None for another."""
    if isinstance(schedule, Geometric):
        return schedule.largest if schedule.growth > 1 else min(schedule.size, schedule.largest)
    if isinstance(schedule, (Constant, InverseSqrt)):
        return float(schedule.size)
    return float(schedule.fraction) if isinstance(schedule, LipschitzStep) else None


def separable_optimum(solution: SVMSolution) -> Condition:
    """Whether some weights separate the optimal tokens: yes with weights in hand, no with a proof, else not known.

    Margin: the largest margin found at norm 1; where not known, minus 1 over the norm below which no weights separate.
    """
    bound = solution.certificate.dual_value.clamp(min=1e-300)
    missing = torch.where(solution.infeasible, -torch.inf, -1 / bound)
    margin = torch.where(solution.separable, 1 / solution.certificate.primal_value, missing)
    said = "some weights give every optimal token a margin over the others; margin: the largest found at norm 1"
    certain = ~solution.undecided
    return Condition("separable optimum", solution.separable, margin, said, "[TaSVM, separability]", certain)


def enough_rank(data: TokenDataset, parameterization: Parameterization, solution: SVMSolution) -> Condition:
    """Whether K and Q have columns enough for a nuclear-norm solution [TaSVM, regularization path].

    It holds from min(n, d, dq) columns on, and from the rank of the certified solution on: the ball cut at that rank
    then has the same optimum. Below, another solution might have a smaller rank, unless the solution is unique.

    Margin: columns to spare.
    """
    name, citation = "rank of K and Q", "[TaSVM, regularization path]"
    if not isinstance(parameterization, KeyQuery):
        return everywhere(data, name, None, "K and Q must be trained", citation)
    columns = parameterization.shapes(data)["key"][1]
    values = torch.linalg.svdvals(torch.nan_to_num(solution.weights))
    share = values / values[..., :1].clamp(min=1e-300)
    rank = (share > _RANK).sum(-1)
    clear = ~((share <= _RANK) & (share > _UNCLEAR)).any(-1) & solution.solved
    always = columns >= min(data.n, data.d, data.dq)
    holds = torch.full_like(clear, always) | (clear & (columns >= rank))
    margin = (columns - torch.where(solution.solved, rank, min(data.n, data.d, data.dq))).double()
    said = f"K and Q have {columns} columns; a nuclear-norm solution must not need more"
    certain = holds | (clear & solution.unique & (columns < rank))
    return Condition(name, holds, margin, said, citation, certain)


def alignment(data: TokenDataset, start: Mapping[str, Tensor] | None) -> Condition:
    """How far K and Q are from being balanced, K^T K = Q^T Q, at the start [TaSVM, key-query bias].

    The nuclear bias is proved for gradient flow under assumptions on how the factors are aligned with the solution.
    These are not checked here, so the answer is always "not known"; the margin is the one number that is cheap.

    Margin: minus ``||K^T K - Q^T Q||_F`` over ``||K^T K||_F + ||Q^T Q||_F``.
    """
    name, citation = "aligned factors", "[TaSVM, key-query bias]"
    sentence = "K and Q must be aligned with the solution, which is not checked; margin: minus their relative imbalance"
    unknown = everywhere(data, name, None, sentence, citation)
    if start is None or "key" not in start:
        return unknown
    key, query = (start[each].mT @ start[each] for each in ("key", "query"))
    size = torch.linalg.matrix_norm(key) + torch.linalg.matrix_norm(query)
    off = torch.linalg.matrix_norm(key - query) / size.clamp(min=1e-300)
    return replace(unknown, margin=-off.reshape(data.batch_shape).double())


def start_in_cone(
    data: TokenDataset, cosine: Float[Tensor, "*batch"] | None, norm: Float[Tensor, "*batch"] | None
) -> Condition:
    """Whether the start lies in the cone of the local theorem, which asserts some opening and norm without naming them.

    Outside for certain where the start is zero or makes no acute angle with the direction: every opening mu < 1 asks
    for a positive cosine. Elsewhere it is not known.

    Margin: the cosine.
    """
    name, citation = "start in the cone", "[TaSVM, local convergence]"
    sentence = "the start must lie in a cone around the direction, far enough out; its opening and norm are not known"
    if cosine is None or norm is None:
        return everywhere(data, name, None, f"{sentence}, and no start was given", citation)
    outside = (norm == 0) | (cosine <= 0)
    return Condition(name, torch.zeros_like(outside), cosine, sentence, citation, certain=outside)
