"""What a head makes of an attention, inside the compiled kernel: gaps of the effective scores, and margins.

The kernel takes one of the two tuples below, and Numba compiles `judge` for that one only. (Numba's cache on disk looks
at the kernel's own file alone: touch it after a change here, or the old code runs.)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from attsvm.descent.engines.kernel_task import RELU
from attsvm.descent.engines.numba.lanes import fma, load, splat, store, where_equal, where_greater

# Where the kernel keeps what belongs to a whole input: 1 / sum e, the margin (later its slope), and the winner.
INVERSE, MARGIN, WINNER = 0, 1, 2


class FixedScores(NamedTuple):
    """A linear head: token scores ``[packs, n, T, LANES]``, 0 at masked tokens."""

    scores: np.ndarray


class MixedFeatures(NamedTuple):
    """A head ``v^T x + sum_k phi(c_k^T x)`` (`head_terms`): scores, features ``[packs, n, T, width, LANES]``, labels
    ``[packs, n, LANES]``, and which phi."""

    scores: np.ndarray
    features: np.ndarray
    labels: np.ndarray
    curve: int


def slots_of(head: Any, length: int) -> int:
    """How many slots an input needs in the kernel's scratch."""
    raise NotImplementedError("for compiled code only")


def judge(head: Any, pack: int, real: np.ndarray, work: np.ndarray) -> None:
    """From the softmax of every input (`_attend` of the kernel): gaps to the winner, and the margin Y_i f_i."""
    raise NotImplementedError("for compiled code only")


def _is_linear(head: Any) -> bool:
    if not isinstance(head, types.BaseNamedTuple):
        raise TypeError(f"no head of the kernel: {head}")
    return bool(head.instance_class is FixedScores)


@overload(slots_of)
def _slots_of(head, length):  # type: ignore[no-untyped-def]
    if _is_linear(head):
        return lambda head, length: length + 2
    return lambda head, length: max(length + 2, head.features.shape[3])


@overload(judge)
def _judge(head, pack, real, work):  # type: ignore[no-untyped-def]
    return _judge_scores if _is_linear(head) else _judge_features


def _judge_scores(head, pack, real, work):  # type: ignore[no-untyped-def]
    scores = head.scores[pack]
    n, length, _ = scores.shape
    share, gap, whole = work[1], work[2], work[3]
    width = gap.shape[1]
    zero = splat(0.0)
    for i in range(n):
        winner = load(whole, i * width + WINNER)
        best, mean = zero, zero
        for t in range(length):
            best = where_equal(winner, splat(float(t)), load(scores, i * length + t), best)
        for t in range(length):
            k = i * width + t
            g = where_equal(winner, splat(float(t)), zero, best - load(scores, i * length + t))
            g = where_greater(load(real, i * length + t), zero, g, zero)
            mean = fma(load(share, k), g, mean)
            store(gap, k, g)
        store(whole, i * width + MARGIN, best - mean * load(whole, i * width + INVERSE))


def _judge_features(head, pack, real, work):  # type: ignore[no-untyped-def]
    scores, features, labels = head.scores[pack], head.features[pack], head.labels[pack]
    n, length, count, _ = features.shape
    share, gap, whole, slopes = work[1], work[2], work[3], work[4]
    width = gap.shape[1]
    zero, one, minus = splat(0.0), splat(1.0), splat(-1.0)
    for i in range(n):
        winner, inverse = load(whole, i * width + WINNER), load(whole, i * width + INVERSE)
        label = load(labels, i)
        margin = zero
        for t in range(length):
            s = where_equal(winner, splat(float(t)), one, load(share, i * width + t)) * inverse
            margin = fma(s, load(scores, i * length + t), margin)
            store(gap, i * width + t, s)
        value = zero
        for q in range(count):
            mixed = zero
            for t in range(length):
                mixed = fma(load(gap, i * width + t), load(features, (i * length + t) * count + q), mixed)
            if head.curve == RELU:
                slope = where_greater(mixed, zero, one, zero)
                value = fma(slope, mixed, value)
            else:
                slope = minus * (mixed + mixed)
                value = value - mixed * mixed
            store(slopes, q, slope)
        best = zero
        for t in range(length):
            worth = zero
            for q in range(count):
                worth = fma(load(slopes, q), load(features, (i * length + t) * count + q), worth)
            worth = fma(label, worth, load(scores, i * length + t))
            best = where_equal(winner, splat(float(t)), worth, best)
            store(gap, i * width + t, worth)
        for t in range(length):
            g = where_equal(winner, splat(float(t)), zero, best - load(gap, i * width + t))
            store(gap, i * width + t, where_greater(load(real, i * length + t), zero, g, zero))
        store(whole, i * width + MARGIN, fma(label, value, margin))
