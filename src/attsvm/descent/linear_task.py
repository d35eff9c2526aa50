"""What the kernels can run: a fixed linear head, where the model is keys, queries and token scores."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from attsvm.attention import Exponential, KeyQuery, Linear, LinearHead, Logistic, Weights
from attsvm.attention.gradient import fixed_scores
from attsvm.descent.engine import Task
from attsvm.descent.optimizers import GradientDescent, NormalizedGradientDescent, SteepestDescent
from attsvm.norms import Frobenius, MaxEntry

NORMALIZED, PLAIN, SIGN = 0, 1, 2
# Gradients may be as small as the least number to this power: round-off among scores and tokens takes the rest.
_SMALLEST = 2 / 3
_LOSSES: dict[type, int] = {Logistic: 0, Exponential: 1, Linear: 2}


def linear_refusal(task: Task, largest_score: float) -> str | None:
    """Why no kernel can run the task, as a clause; None if one can.

    Scores beyond `largest_score` would let slopes of the loss differ by more than floating point can hold.
    """
    checks = (
        (isinstance(task.head, LinearHead) and not task.train_head, "it needs a fixed linear head"),
        (type(task.loss) in _LOSSES, "it knows Logistic, Exponential and Linear losses"),
        (type(task.parameterization) in (Weights, KeyQuery), "it knows Weights and KeyQuery"),
        (_rule(task) is not None, "it knows gradient, normalized and sign descent without momentum"),
        (task.batches is None, "it takes no mini-batches"),
        (task.data.queries_per_sequence == 1, "it does not share tokens between queries"),
    )
    for holds, reason in checks:
        if not holds:
            return reason
    scores = scores_of(task).abs()
    if bool((scores > largest_score).any()):
        return f"scores beyond {largest_score:g} need the scaled slopes of TorchEngine"
    if _underflows(task, scores):
        return "data as small as these need the scaled gradient of TorchEngine"
    return None


def _underflows(task: Task, scores: Tensor) -> bool:
    """Whether score times token times query, the size of a gradient, comes near the least number of an element."""
    parts = (scores, task.data.tokens, task.data.queries)
    sizes = torch.stack([part.abs().flatten(1).amax(1).double().log() for part in parts]).sum(0)
    least = math.log(torch.finfo(task.data.dtype).tiny) * _SMALLEST
    return bool((torch.isfinite(sizes) & (sizes < least)).any())


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


def scores_of(task: Task) -> Tensor:
    """Token scores ``[batch, n, T]``, 0 at masked tokens."""
    scores = fixed_scores(task.data, task.head)
    assert scores is not None  # refused otherwise
    return scores[0] if task.data.mask is None else scores[0].masked_fill(~task.data.mask, 0.0)
