"""What the kernels can run: which optimizers, losses and heads, within which range of numbers; how they are told."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.attention import (
    Exponential,
    Head,
    KeyQuery,
    Linear,
    LinearHead,
    Log,
    Logistic,
    QuadraticHead,
    ReluHead,
    Weights,
)
from attsvm.attention.gradient import fixed_scores
from attsvm.data import TokenDataset
from attsvm.descent.optimizers.gradient import Adam, GradientDescent, NormalizedGradientDescent
from attsvm.descent.optimizers.steepest import SteepestDescent
from attsvm.descent.task import Task
from attsvm.norms import Frobenius, MaxEntry, Spectral

NORMALIZED, PLAIN, SIGN, ADAM, SPECTRAL = 0, 1, 2, 3, 4
LOGISTIC, EXPONENTIAL, LINEAR, LOG = 0, 1, 2, 3
# phi(x) = max(x, 0), whose slope at 0 is 0, and phi(x) = -x^2.
RELU, SQUARE = 0, 1
# Stored instead of the score of a masked token; no real score comes near.
MASKED_SCORE = 1e30
# Terms are kept unscaled down to exp(-200), which leaves room for slopes that differ by exp(2 * 200).
_LARGEST_SCORE = 200.0
# Gradients may be as small as the least number to this power: round-off among scores and tokens takes the rest.
_SMALLEST = 2 / 3
# Rows that are rotated in pairs for a spectral step; with far more of them LAPACK is faster.
_MOST_ROTATED = 32
_LOSSES: dict[type, int] = {Logistic: LOGISTIC, Exponential: EXPONENTIAL, Linear: LINEAR, Log: LOG}


def task_refusal(task: Task) -> str | None:
    """Why a kernel cannot run the task, as a clause; None if it can."""
    known = "it knows gradient, normalized, sign and spectral descent without momentum, and Adam"
    checks = (
        (not task.train_head, "it needs a fixed head"),
        (type(task.loss) in _LOSSES, "it knows Logistic, Exponential, Linear and Log losses"),
        (type(task.parameterization) in (Weights, KeyQuery), "it knows Weights and KeyQuery"),
        (_rule(task) is not None, known),
        (rotated_rows(task) <= _MOST_ROTATED, f"it takes spectral steps along gradients of rank up to {_MOST_ROTATED}"),
        (task.optimizer.clip is None, "it knows no QK-clip"),
        (task.batches is None, "it takes no mini-batches"),
        (task.data.queries_per_sequence == 1, "it does not share tokens between queries"),
        (type(task.head) in (LinearHead, ReluHead, QuadraticHead), "it knows LinearHead, ReluHead and QuadraticHead"),
    )
    for holds, reason in checks:
        if not holds:
            return reason
    terms = head_terms(task.data, task.head)
    bound = terms.bound
    if isinstance(task.loss, Log) and (terms.features.shape[-1] > 0 or bool((terms.scores < 0).any())):
        return "it takes the Log loss with scores of at least 0, of a linear head"
    if bool((bound > _LARGEST_SCORE).any()):
        return f"scores beyond {_LARGEST_SCORE:g} need the scaled slopes of TorchEngine"
    # Score times token times query, the size of a gradient, must not come near the least number.
    parts = (bound, *(part.abs().flatten(1).amax(1) for part in (task.data.tokens, task.data.queries)))
    sizes = torch.stack([part.double().log() for part in parts]).sum(0)
    least = math.log(torch.finfo(task.data.dtype).tiny) * _SMALLEST
    if bool((torch.isfinite(sizes) & (sizes < least)).any()):
        return "data as small as these need the scaled gradient of TorchEngine"
    return None


def rotated_rows(task: Task) -> int:
    """The largest rank that a gradient may have if the step is spectral, else 0."""
    if _rule(task) != SPECTRAL:
        return 0
    sides = max(min(shape) for shape in task.parameterization.shapes(task.data).values())
    return sides if task.ridge > 0 else min(task.data.n, sides)


def _rule(task: Task) -> int | None:
    optimizer = task.optimizer
    if type(optimizer) is SteepestDescent and optimizer.momentum == 0:
        return {Frobenius: NORMALIZED, MaxEntry: SIGN, Spectral: SPECTRAL}.get(type(optimizer.norm))
    return {NormalizedGradientDescent: NORMALIZED, GradientDescent: PLAIN, Adam: ADAM}.get(type(optimizer))


@dataclass(frozen=True, eq=False)
class HeadTerms:
    """Scores, features and the function phi of a head ``v^T x + sum_k phi(c_k^T x)`` on a batch of data sets."""

    scores: Float[Tensor, "batch n T"]  # Y_i v^T x_it, 0 at masked tokens
    features: Float[Tensor, "batch n T width"]  # c_k^T x_it, 0 at masked tokens; width 0 if the head is linear
    curve: int  # the number by which the kernel knows phi
    bound: Float[Tensor, "batch"]  # no margin and no effective score of a data set is larger, whatever the attention


def head_terms(data: TokenDataset, head: Head) -> HeadTerms:
    """The terms of a head that the kernels know, on data with one batch axis and tokens for every input."""
    hidden = ~data.real.unsqueeze(-1)
    if isinstance(head, ReluHead):
        matrix = head.matrix if head.matrix.ndim == 2 else head.matrix.unsqueeze(1)
        features = (data.values @ matrix).masked_fill(hidden, 0.0)
        bound = features.abs().sum(-1).flatten(1).amax(1)
        return HeadTerms(torch.zeros_like(data.values[..., 0]), features, RELU, bound)
    assert isinstance(head, LinearHead | QuadraticHead)  # refused otherwise
    found = fixed_scores(data, LinearHead(head.vector))
    assert found is not None  # it is linear
    scores = data.fill_masked(found[0], 0.0)
    bound = scores.abs().flatten(1).amax(1)
    if isinstance(head, LinearHead):
        return HeadTerms(scores, data.values[..., :0], RELU, bound)
    features = (data.values * head.penalty.sqrt().reshape(-1, 1, 1, 1)).masked_fill(hidden, 0.0)
    return HeadTerms(scores, features, SQUARE, bound + 2 * features.square().sum(-1).flatten(1).amax(1))


@dataclass(frozen=True, eq=False)
class KernelData:
    """The data of a task as the kernels read them, in float64: tokens without the first of each input, from which the
    others are measured, and `parts` equal shares of the rest, the last filled up with masked tokens."""

    tokens: Float[Tensor, "batch n parts length d"]
    scores: Float[Tensor, "batch n parts one_more"]  # MASKED_SCORE at masked tokens; the first token is in part 0
    features: Float[Tensor, "batch n parts one_more width"]
    labels: Float[Tensor, "batch n"]
    queries: Float[Tensor, "batch n dq"]
    curve: int

    @classmethod
    def of(cls, task: Task, parts: int = 1) -> KernelData:
        """Lay out the data of a task."""
        data, terms = task.data, head_terms(task.data, task.head)
        batch, n, T, _ = data.tokens.shape
        length = max(1, -(-(T - 1) // parts))
        tokens = (data.tokens.double() - data.tokens[:, :, :1].double()).masked_fill(~data.real.unsqueeze(-1), 0.0)
        scores = terms.scores.double().masked_fill(~data.real, MASKED_SCORE)

        def shared(value: Tensor, fill: float) -> Tensor:
            """All but the first token in equal shares."""
            missing = value.new_full((batch, n, parts * length - (T - 1), *value.shape[3:]), fill)
            return torch.cat([value[:, :, 1:], missing], 2).reshape(batch, n, parts, length, *value.shape[3:])

        def with_first(value: Tensor, fill: float) -> Tensor:
            first = torch.full_like(value[:, :, :1], fill).unsqueeze(2).repeat_interleave(parts, 2)
            first[:, :, 0] = value[:, :, :1]
            return torch.cat([first, shared(value, fill)], 3)

        return cls(
            shared(tokens, 0.0),
            with_first(scores, MASKED_SCORE),
            with_first(terms.features.double(), 0.0),
            data.labels.double(),
            data.queries.double(),
            terms.curve,
        )

    def shape(self, task: Task) -> Any:
        """What the kernel is told about the task."""
        from attsvm.descent.engines.step import Shape  # starts Numba

        _, n, parts, length, d = self.tokens.shape
        kind, optimizer = task.parameterization, task.optimizer
        moments = optimizer if isinstance(optimizer, Adam) else Adam()
        rule = _rule(task)
        assert rule is not None  # refused otherwise
        return Shape(
            n=n, length=length, d=d, dq=self.queries.shape[-1], width=self.features.shape[-1], curve=self.curve,
            rank=(kind.rank or d) if isinstance(kind, KeyQuery) else 0, parts=parts, rule=rule,
            masked=int(bool((self.scores == MASKED_SCORE).any())), loss=_LOSSES[type(task.loss)],
            ridge=int(task.ridge > 0), log_ridge=math.log(task.ridge) if task.ridge > 0 else 0.0,
            decay=float(optimizer.weight_decay), beta1=float(moments.beta1), beta2=float(moments.beta2),
            epsilon=float(moments.epsilon),
        )  # fmt: skip


def step_table(task: Task, first: int, sizes: np.ndarray) -> np.ndarray:
    """``[steps, 3]``: the size of each step, and what Adam multiplies its moments with."""
    optimizer = task.optimizer
    beta1, beta2 = (optimizer.beta1, optimizer.beta2) if isinstance(optimizer, Adam) else (0.0, 0.0)
    count = np.arange(first + 1, first + len(sizes) + 1)
    return np.stack([sizes, 1 / (1 - beta1**count), 1 / (1 - beta2**count)], 1).astype(np.float64)


def packed_memory(state: Mapping[str, Tensor], name: str) -> Tensor:
    """What Adam remembers of a parameter, ``[starts, batch, 2 + 2 entries]``: scales of the moments, then both."""
    moments = [state[f"{kind}/{name}"].double().flatten(2) for kind in _MOMENTS]
    scales = [state[f"{kind}_scale/{name}"].double() for kind in _MOMENTS]
    blank = [(moment == 0).all(-1) for moment in moments]
    known = [scale.masked_fill(none, -math.inf) for scale, none in zip(scales, blank, strict=True)]
    return torch.cat([torch.stack(known, -1), *moments], -1)


def unpacked_memory(memories: Sequence[Tensor], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state that `packed_memory` of every parameter belongs to, in the order of the parameters."""
    found = dict(state)
    names = [name.removeprefix("first/") for name in state if name.startswith("first/")]
    for memory, name in zip(memories, names, strict=True):
        scales, *moments = memory.tensor_split([2, 1 + memory.shape[-1] // 2], -1)
        for scale, moment, kind in zip(scales.unbind(-1), moments, _MOMENTS, strict=True):
            old = state[f"{kind}/{name}"]
            found[f"{kind}/{name}"] = moment.reshape(old.shape).to(old.dtype)
            found[f"{kind}_scale/{name}"] = torch.where(torch.isinf(scale), 0.0, scale).to(old.dtype)
    return found


_MOMENTS = ("first", "second")
