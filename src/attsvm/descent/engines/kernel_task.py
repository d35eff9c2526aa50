"""What the kernels can run: which optimizers and losses, within which range of numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.attention import Exponential, Head, KeyQuery, Linear, LinearHead, Logistic, QuadraticHead, ReluHead, Weights
from attsvm.attention.gradient import fixed_scores
from attsvm.data import TokenDataset
from attsvm.descent.optimizers.gradient import GradientDescent, NormalizedGradientDescent
from attsvm.descent.optimizers.steepest import SteepestDescent
from attsvm.descent.task import Task
from attsvm.norms import Frobenius, MaxEntry

NORMALIZED, PLAIN, SIGN = 0, 1, 2
# Gradients may be as small as the least number to this power: round-off among scores and tokens takes the rest.
_SMALLEST = 2 / 3
_LOSSES: dict[type, int] = {Logistic: 0, Exponential: 1, Linear: 2}


def task_refusal(task: Task, largest_score: float, *, ridge: bool) -> str | None:
    """Why a kernel for fixed heads, and with or without `ridge`, cannot run the task, as a clause; None if it can."""
    if task.train_head:
        return "it needs a fixed head"
    refusal = rule_refusal(task)
    if refusal is not None:
        return refusal
    if task.ridge > 0 and not ridge:
        return "it adds no ridge; use TorchEngine"
    terms = head_terms(task.data, task.head)
    if terms is None:
        return "it knows LinearHead, ReluHead and QuadraticHead"
    return range_refusal(task, terms.bound, largest_score)


def rule_refusal(task: Task) -> str | None:
    """Why no kernel can run the task, whatever its head, as a clause; None if one can."""
    checks = (
        (type(task.loss) in _LOSSES, "it knows Logistic, Exponential and Linear losses"),
        (type(task.parameterization) in (Weights, KeyQuery), "it knows Weights and KeyQuery"),
        (_rule(task) is not None, "it knows gradient, normalized and sign descent without momentum"),
        (task.optimizer.option_words is None, f"it knows no {task.optimizer.option_words}"),
        (task.batches is None, "it takes no mini-batches"),
        (task.data.queries_per_sequence == 1, "it does not share tokens between queries"),
    )
    return next((reason for holds, reason in checks if not holds), None)


def range_refusal(task: Task, bound: Tensor, largest_score: float) -> str | None:
    """Why the scores of a task, up to `bound`, or its data do not suit a kernel, as a clause; or None."""
    if bool((bound > largest_score).any()):
        return f"scores beyond {largest_score:g} need the scaled slopes of TorchEngine"
    # Score times token times query, the size of a gradient, must not come near the least number.
    parts = (bound, *(part.abs().flatten(1).amax(1) for part in (task.data.tokens, task.data.queries)))
    sizes = torch.stack([part.double().log() for part in parts]).sum(0)
    least = math.log(torch.finfo(task.data.dtype).tiny) * _SMALLEST
    if bool((torch.isfinite(sizes) & (sizes < least)).any()):
        return "data as small as these need the scaled gradient of TorchEngine"
    return None


def codes_of(task: Task) -> tuple[int, int]:
    """The numbers by which kernels know the optimizer and the loss of a task they do not refuse."""
    rule = _rule(task)
    if rule is None:
        raise ValueError(f"no kernel knows {task.optimizer!r}")
    return rule, _LOSSES[type(task.loss)]


def _rule(task: Task) -> int | None:
    optimizer = task.optimizer
    if type(optimizer) is NormalizedGradientDescent:
        return NORMALIZED
    if type(optimizer) is GradientDescent:
        return PLAIN
    if type(optimizer) is SteepestDescent and optimizer.momentum == 0:
        return {Frobenius: NORMALIZED, MaxEntry: SIGN}.get(type(optimizer.norm))
    return None


# phi(x) = max(x, 0), whose slope at 0 is 0, and phi(x) = -x^2.
RELU, SQUARE = 0, 1


@dataclass(frozen=True, eq=False)
class HeadTerms:
    """Scores, features and the function phi of a head on a batch of data sets."""

    scores: Float[Tensor, "batch n T"]  # Y_i v^T x_it, 0 at masked tokens
    features: Float[Tensor, "batch n T width"] | None  # c_k^T x_it, 0 at masked tokens; none of a linear head
    curve: int  # the number by which the kernel knows phi
    bound: Float[Tensor, "batch"]  # no margin and no effective score of a data set is larger, whatever the attention


def head_terms(data: TokenDataset, head: Head) -> HeadTerms | None:
    """The terms of a head on data with one batch axis and tokens of their own for every input; None if it has none."""
    if type(head) is LinearHead:
        scores = scores_of(data, head)
        return HeadTerms(scores, None, RELU, scores.abs().flatten(1).amax(1))
    if type(head) is ReluHead:
        matrix = head.matrix if head.matrix.ndim == 2 else head.matrix.unsqueeze(1)
        features = (data.values @ matrix).masked_fill(~data.real.unsqueeze(-1), 0.0)
        bound = features.abs().sum(-1).flatten(1).amax(1)
        return HeadTerms(torch.zeros_like(features[..., 0]), features, RELU, bound)
    if type(head) is QuadraticHead:
        scores = scores_of(data, LinearHead(head.vector))
        features = data.values * head.penalty.sqrt().reshape(-1, 1, 1, 1)
        features = features.masked_fill(~data.real.unsqueeze(-1), 0.0)
        squares = features.square().sum(-1).flatten(1).amax(1)
        return HeadTerms(scores, features, SQUARE, scores.abs().flatten(1).amax(1) + 2 * squares)
    return None


def scores_of(data: TokenDataset, head: LinearHead) -> Float[Tensor, "batch n T"]:
    """Token scores, 0 at masked tokens."""
    scores = fixed_scores(data, head)
    assert scores is not None  # it is linear
    return data.fill_masked(scores[0], 0.0)
