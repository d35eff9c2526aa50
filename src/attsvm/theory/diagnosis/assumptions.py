"""What theorems assume about a training: head, loss, parameterization, optimizer, steps and start, as conditions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

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
from attsvm.descent import Constant, Geometric, GradientDescent, InverseSqrt, LipschitzStep, Optimizer
from attsvm.svm import SVMSolution
from attsvm.theory.conditions import Condition

_RANK, _UNCLEAR = 1e-6, 1e-9  # singular values over the largest: counted, and between the two: not known


def everywhere(
    data: TokenDataset, name: str, answer: bool | None, sentence: str, citation: str, margin: float = math.nan
) -> Condition:
    """A condition with the same answer on every data set; None means that it is not known."""
    shape, device = data.batch_shape, data.device
    return Condition(
        name=name,
        holds=torch.full(shape, bool(answer), device=device),
        margin=torch.full(shape, margin, dtype=torch.float64, device=device),
        sentence=sentence,
        citation=citation,
        certain=torch.full(shape, answer is not None, device=device),
    )


def either(name: str, first: Condition, second: Condition) -> Condition:
    """Whether one of two conditions holds."""
    return Condition(
        name=name,
        holds=first.holds | second.holds,
        margin=torch.maximum(first.margin, second.margin),
        sentence=f"{first.sentence}; or {second.sentence}",
        citation=first.citation,
        certain=first.proved | second.proved | (first.refuted & second.refuted),
    )


def linear_head(data: TokenDataset, head: Head) -> Condition:
    """Whether the prediction head is linear, as nearly all theorems ask."""
    return everywhere(
        data, "linear prediction head", isinstance(head, LinearHead), "the prediction head must be linear", "[TaSVM]"
    )


def fixed_head(data: TokenDataset, train_head: bool) -> Condition:
    """Whether the prediction head stays as it is during training."""
    return everywhere(
        data, "fixed prediction head", not train_head, "the prediction head must not be trained", "[TaSVM]"
    )


def known_loss(data: TokenDataset, loss: Loss) -> Condition:
    """Whether the loss decreases strictly with a bounded slope: known of those that ship, not of a custom one."""
    known = isinstance(loss, (Logistic, Exponential, Linear))
    return everywhere(
        data,
        "loss",
        True if known else None,
        "the loss must decrease strictly, with a bounded, Lipschitz slope on bounded intervals",
        "[TaSVM]",
    )


def trains_weights(data: TokenDataset, parameterization: Parameterization) -> Condition:
    """Whether W itself is trained."""
    return everywhere(
        data, "W is trained", isinstance(parameterization, Weights), "W itself must be trained", "[TaSVM]"
    )


def plain_gradient_descent(data: TokenDataset, optimizer: Optimizer) -> Condition:
    """Whether steps follow the gradient with its true size, as the theorems on descent ask."""
    return everywhere(
        data,
        "plain gradient descent",
        isinstance(optimizer, GradientDescent),
        "the optimizer must be gradient descent, not normalized and in no other norm",
        "[TaSVM, descent]",
    )


def bounded_steps(data: TokenDataset, head: Head, optimizer: Optimizer, loss: Loss) -> Condition:
    """Whether no step of plain gradient descent on W is longer than 1 / L times the gradient.

    Not known for another optimizer, a nonlinear head, a custom loss or a schedule of the user's own, for which we have
    no bound.

    Margin: ``1 / L`` minus the largest step size.
    """
    name, sentence, citation = "steps at most 1/L", "no step size may exceed 1 / L", "[TaSVM, descent]"
    schedule = optimizer.schedule
    largest = _largest(optimizer)
    usable = isinstance(head, LinearHead) and isinstance(loss, (Logistic, Exponential, Linear))
    if largest is None or not usable or not isinstance(optimizer, GradientDescent):
        return everywhere(data, name, None, sentence, citation)
    bound = lipschitz_bound(data, head, loss).double()
    limit = torch.where(bound > 0, 1 / bound, math.inf)
    if isinstance(schedule, LipschitzStep):
        margin = torch.where(bound > 0, (1 - largest) * limit, math.inf)
        return Condition(name, torch.full_like(bound, largest <= 1, dtype=torch.bool), margin, sentence, citation)
    return Condition(name, limit >= largest, limit - largest, sentence, citation)


def _largest(optimizer: Optimizer) -> float | None:
    """The largest step size of a schedule that ships, None for another."""
    schedule = optimizer.schedule
    if isinstance(schedule, Geometric):
        return schedule.largest if schedule.growth > 1 else min(schedule.size, schedule.largest)
    if isinstance(schedule, (Constant, InverseSqrt)):
        return float(schedule.size)
    return float(schedule.fraction) if isinstance(schedule, LipschitzStep) else None


def constant_steps(data: TokenDataset, optimizer: Optimizer) -> Condition:
    """Whether all steps have one size, as the papers' theorems on descent ask."""
    schedule = optimizer.schedule
    known = isinstance(schedule, (Constant, LipschitzStep, InverseSqrt, Geometric))
    constant = isinstance(schedule, (Constant, LipschitzStep)) or (
        isinstance(schedule, Geometric) and schedule.growth == 1
    )
    sentence = "all steps must have one size"
    return everywhere(data, "constant steps", constant if known else None, sentence, "[TaSVM, descent]")


def lasting_steps(data: TokenDataset, optimizer: Optimizer) -> Condition:
    """Whether the step sizes have no finite sum; summable ones stop at a finite distance, whatever the risk."""
    schedule = optimizer.schedule
    known = isinstance(schedule, (Constant, LipschitzStep, InverseSqrt, Geometric))
    lasting = not (isinstance(schedule, Geometric) and schedule.growth < 1)
    return everywhere(
        data,
        "steps not summable",
        lasting if known else None,
        "the step sizes must not have a finite sum",
        "[TaSVM, descent]",
    )


def one_input(data: TokenDataset) -> Condition:
    """Whether there is one input only."""
    return everywhere(
        data, "one input", data.n == 1, "there must be one input", "[TaSVM, global convergence]", 1 - data.n
    )


def separable_optimum(solution: SVMSolution) -> Condition:
    """Whether some weights separate the optimal tokens: yes with weights in hand, no with a proof, else not known.

    Margin: the largest margin found at norm 1; where not known, minus 1 over the norm below which no weights separate.
    """
    bound = solution.certificate.dual_value.clamp(min=1e-300)
    missing = torch.where(solution.infeasible, -torch.inf, -1 / bound)
    return Condition(
        name="separable optimum",
        holds=solution.separable,
        margin=torch.where(solution.separable, 1 / solution.certificate.primal_value, missing),
        sentence="some weights give every optimal token a margin over the others; margin: the largest found at norm 1",
        citation="[TaSVM, separability]",
        certain=~solution.undecided,
    )


def enough_rank(data: TokenDataset, parameterization: Parameterization, solution: SVMSolution) -> Condition:
    """Whether K and Q have columns enough for a nuclear-norm solution [TaSVM, regularization path].

    It holds from min(n, d, dq) columns on, and from the rank of the certified solution on: the ball cut at that rank
    then has the same optimum. Below, another solution might have a smaller rank, unless the solution is unique.

    Margin: columns to spare.
    """
    if not isinstance(parameterization, KeyQuery):
        return everywhere(data, "rank of K and Q", None, "K and Q must be trained", "[TaSVM, regularization path]")
    columns = parameterization.shapes(data)["key"][1]
    values = torch.linalg.svdvals(torch.nan_to_num(solution.weights))
    share = values / values[..., :1].clamp(min=1e-300)
    rank = (share > _RANK).sum(-1)
    clear = ~((share <= _RANK) & (share > _UNCLEAR)).any(-1) & solution.solved
    always = columns >= min(data.n, data.d, data.dq)
    holds = torch.full_like(clear, always) | (clear & (columns >= rank))
    return Condition(
        name="rank of K and Q",
        holds=holds,
        margin=(columns - torch.where(solution.solved, rank, min(data.n, data.d, data.dq))).double(),
        sentence=f"K and Q have {columns} columns; a nuclear-norm solution must not need more",
        citation="[TaSVM, regularization path]",
        certain=holds | (clear & solution.unique & (columns < rank)),
    )


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
