"""A CUDA kernel in Numba: one thread block a run, a whole stretch of steps in one launch, all of it in shared memory.

The algorithm is that of the CPU's kernel. With o the winner of an input, e_t = exp(a_t - a_o) and
m the largest a_t - a_o of a token with a gap, pulls p_t = exp(a_t - a_o - shift) gap_t give the entries

    (p_t - e_t sum p / sum e) slope / (n sum e),

the winner's (gap 0, e = 1) by the same formula; shift is m once exp(m) is small, 0 before. Arithmetic is float64
whatever the arrays are. Sizes are constants of the compiled code, one kernel for each `Shape`.

Indices are unsigned throughout: Numba then leaves out what makes negative ones count from the end.
Every barrier is reached by all threads of a block: a branch around one may only depend on arguments, or on a sum that
`_block_sum` gives to all threads bit for bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numba import cuda, float64, uint64

from attsvm.descent.engines.kernel_task import RELU

NORMALIZED, PLAIN, SIGN = 0, 1, 2
LOGISTIC, EXPONENTIAL, LINEAR = 0, 1, 2
# Stored instead of the score of a masked token; no real score comes near.
MASKED_SCORE = 1e30

WARP = 32
_WARP, _ONE = np.uint64(WARP), np.uint64(1)
_ALL_LANES = 0xFFFFFFFF
# Above this exponent the pulls need no shift: they and their squares are far from underflow.
_SHIFT_BELOW = -200.0
# Squared norms outside of this range are formed again from scaled entries.
_SMALLEST_SQUARE, _LARGEST_SQUARE = 1e-280, 1e280
_SMALLEST_ENTRY = 1e-300


@dataclass(frozen=True)
class Shape:
    """Sizes of one run; rank 0 means that W itself is trained, width 0 that the prediction head is linear."""

    n: int
    T: int
    d: int
    dq: int
    rank: int
    width: int = 0  # features of a token, of which a head takes the `curve` (`head_terms`)
    curve: int = RELU

    def places(self, threads: int) -> tuple[int, ...]:
        """Where each array begins in shared memory, in numbers of 8 bytes, and at the end how many there are."""
        columns = self.rank or self.dq
        largest = max(self.d, self.dq if self.rank else 0) * columns
        counts = (
            self.n * self.T * _odd(self.d),  # tokens
            self.n * _odd(self.dq),  # queries
            self.n * self.T,  # scores
            self.d * _odd(columns),  # W or K
            self.dq * _odd(self.rank) if self.rank else 0,  # Q
            self.n * _odd(self.d),  # directions, then rows
            self.n * _odd(self.rank) if self.rank else 0,  # Q^T z
            self.n * _odd(self.rank) if self.rank else 0,  # K^T r
            max(2 * self.n * self.T, largest),  # pulls and shares, then a gradient
            4 * self.n,  # top, best score, mean, weight of each input
            4 * (threads // WARP),  # partial results of the warps
            self.n * self.T * _odd(self.width) if self.width else 0,  # features
            self.n * _odd(self.width) if self.width else 0,  # their means under the attention
            self.n * (self.T + 1) if self.width else 0,  # what is linear in the scores, and labels
        )
        return tuple(int(place) for place in np.cumsum((0, *counts)))

    def bytes(self, threads: int) -> int:
        """Shared memory of a block."""
        return 8 * self.places(threads)[-1]


def _odd(width: int) -> int:
    """Rows of odd length: lanes that walk down a column then hit different banks."""
    return width | 1


@cuda.jit(device=True)
def _warp_sum(value):  # type: ignore[no-untyped-def]
    value += cuda.shfl_xor_sync(_ALL_LANES, value, 16)
    value += cuda.shfl_xor_sync(_ALL_LANES, value, 8)
    value += cuda.shfl_xor_sync(_ALL_LANES, value, 4)
    value += cuda.shfl_xor_sync(_ALL_LANES, value, 2)
    return value + cuda.shfl_xor_sync(_ALL_LANES, value, 1)


@cuda.jit(device=True)
def _warp_max(value):  # type: ignore[no-untyped-def]
    value = max(value, cuda.shfl_xor_sync(_ALL_LANES, value, 16))
    value = max(value, cuda.shfl_xor_sync(_ALL_LANES, value, 8))
    value = max(value, cuda.shfl_xor_sync(_ALL_LANES, value, 4))
    value = max(value, cuda.shfl_xor_sync(_ALL_LANES, value, 2))
    return max(value, cuda.shfl_xor_sync(_ALL_LANES, value, 1))


@cuda.jit(device=True)
def _block_sum(value, memory, slots, tid, warps):  # type: ignore[no-untyped-def]
    """The sum over all threads, the same bits in each; `slots` must not be in use since the last barrier."""
    value = _warp_sum(value)
    if warps > 1:
        if tid % _WARP == 0:
            memory[slots + tid // _WARP] = value
        cuda.syncthreads()
        value = memory[slots]
        warp = _ONE
        while warp < warps:
            value += memory[slots + warp]
            warp += _ONE
    return value


@cuda.jit(device=True)
def _block_max(value, memory, slots, tid, warps):  # type: ignore[no-untyped-def]
    """The largest value of all threads; `slots` as in `_block_sum`."""
    value = _warp_max(value)
    if warps > 1:
        if tid % _WARP == 0:
            memory[slots + tid // _WARP] = value
        cuda.syncthreads()
        value = memory[slots]
        warp = _ONE
        while warp < warps:
            value = max(value, memory[slots + warp])
            warp += _ONE
    return value


@cache
def build(shape: Shape, threads: int, registers: int | None = None) -> Any:
    """The kernel for one shape and one number of threads a block, a multiple of 32; Numba compiles it at first use.

    Its arguments are tokens ``[batch, n, T, d]``, queries ``[batch, n, dq]``, scores ``[batch, n, T]``, features
    ``[batch, n, T, width]`` and labels ``[batch, n]`` (anything if the head is linear), the parameters
    ``[runs, ...]`` to change in place (`first` W or K, `second` Q or anything), sizes ``[steps]``, factors and active
    and stalled ``[runs]``, rule and loss, all but the first axis flattened. Run r reads the data r modulo batch.
    `registers` bounds those of a thread.
    """
    places = np.array(shape.places(threads), dtype=np.uint64)
    tokens_at, queries_at, scores_at, first_at, second_at, rows_at, inner_at, back_at = places[:8]
    work_at, whole_at, slots_at, features_at, mixed_at, linear_at = places[8:14]
    sizes = (shape.n, shape.T, shape.d, shape.dq, shape.rank, shape.width)
    n, length, d, dq, rank, features_width = np.array(sizes, dtype=np.uint64)
    columns, feature_row, labels_at = rank or dq, features_width | _ONE, linear_at + n * length
    square = shape.curve != RELU
    width, query_width, row_width = d | _ONE, dq | _ONE, columns | _ONE
    pairs = n * length
    share_at = work_at + pairs
    top_at, best_at, mean_at, weight_at = (whole_at + np.uint64(k) * n for k in range(4))
    stride, warps = np.uint64(threads), np.uint64(threads // WARP)
    largest_at, first_sum, other_sum, scaled_sum = (slots_at + np.uint64(k) * warps for k in range(4))

    @cuda.jit(device=True)
    def copy_in(source, memory, at, rows, across, row, tid):  # type: ignore[no-untyped-def]
        k = tid
        while k < rows * across:
            memory[at + (k // across) * row + k % across] = source[k]
            k += stride

    @cuda.jit(device=True)
    def copy_out(memory, at, target, rows, across, row, tid):  # type: ignore[no-untyped-def]
        k = tid
        while k < rows * across:
            target[k] = memory[at + (k // across) * row + k % across]
            k += stride

    @cuda.jit(device=True)
    def images(memory, matrix, vectors, result, a, a_width, b, b_width, tid):  # type: ignore[no-untyped-def]
        """result_i[a] = matrix[a, b] vectors_i[b] for every input."""
        k = tid
        while k < n * a:
            i, j = k // a, k % a
            total = 0.0
            for q in range(b):
                total += memory[matrix + j * b_width + q] * memory[vectors + i * b_width + q]
            memory[result + i * a_width + j] = total
            k += stride

    @cuda.jit(device=True)
    def images_transposed(memory, matrix, vectors, result, a, a_width, b, b_width, tid):  # type: ignore[no-untyped-def]
        """result_i[b] = matrix[a, b]^T vectors_i[a] for every input."""
        k = tid
        while k < n * b:
            i, q = k // b, k % b
            total = 0.0
            for j in range(a):
                total += memory[matrix + j * b_width + q] * memory[vectors + i * a_width + j]
            memory[result + i * b_width + q] = total
            k += stride

    @cuda.jit(device=True)
    def effective_scores(memory, tid):  # type: ignore[no-untyped-def]
        """Scores of the tokens where attention is now, from logits and largest logits; begins and ends at a barrier."""
        k = tid
        while k < n * features_width:
            i, q = k // features_width, k % features_width
            total, mixed = 0.0, 0.0
            for t in range(length):
                share = math.exp(memory[work_at + i * length + t] - memory[top_at + i])
                total += share
                mixed += share * memory[features_at + (i * length + t) * feature_row + q]
            memory[mixed_at + i * feature_row + q] = mixed / total
            k += stride
        cuda.syncthreads()
        k = tid
        while k < pairs:
            i = k // length
            worth = 0.0
            for q in range(features_width):
                mixed = memory[mixed_at + i * feature_row + q]
                slope = -2.0 * mixed if square else (1.0 if mixed > 0.0 else 0.0)
                worth += slope * memory[features_at + k * feature_row + q]
            if memory[linear_at + k] != MASKED_SCORE:
                memory[scores_at + k] = memory[linear_at + k] + memory[labels_at + i] * worth
            k += stride
        cuda.syncthreads()
        i = tid
        while i < n:
            memory[best_at + i] = memory[scores_at + i * length + uint64(memory[best_at + i])]
            i += stride
        cuda.syncthreads()

    @cuda.jit(device=True)
    def output_margin(memory, i, total):  # type: ignore[no-untyped-def]
        """Y_i f_i: the linear part under the attention, and the curves of the mixed features."""
        linear, curved = 0.0, 0.0
        for t in range(length):
            if memory[linear_at + i * length + t] != MASKED_SCORE:
                linear += memory[share_at + i * length + t] * memory[linear_at + i * length + t]
        for q in range(features_width):
            mixed = memory[mixed_at + i * feature_row + q]
            curved += -mixed * mixed if square else max(mixed, 0.0)
        return linear / total + memory[labels_at + i] * curved

    @cuda.jit(device=True)
    def gradient_rows(memory, loss, tid):  # type: ignore[no-untyped-def]
        """From directions to rows of the gradient, in place; returns their log-scale. Begins and ends at a barrier."""
        k = tid
        while k < pairs:
            i = k // length
            a = 0.0
            for j in range(d):
                a += memory[tokens_at + k * width + j] * memory[rows_at + i * width + j]
            memory[work_at + k] = -math.inf if memory[scores_at + k] == MASKED_SCORE else a
            k += stride
        cuda.syncthreads()
        i = tid
        while i < n:
            top, best = -math.inf, 0.0
            for t in range(length):
                a = memory[work_at + i * length + t]
                if a > top:
                    top = a
                    best = float64(t) if features_width else memory[scores_at + i * length + t]
            memory[top_at + i] = top
            memory[best_at + i] = best
            i += stride
        cuda.syncthreads()
        if features_width:
            effective_scores(memory, tid)
        largest = -math.inf
        k = tid
        while k < pairs:
            i = k // length
            a = memory[work_at + k] - memory[top_at + i]
            memory[share_at + k] = math.exp(a)
            if memory[scores_at + k] != memory[best_at + i]:
                largest = max(largest, a)
            k += stride
        largest = _block_max(largest, memory, largest_at, tid, warps)
        shift, unit = 0.0, 1.0
        if largest < _SHIFT_BELOW and largest > -math.inf:
            shift = largest
            unit = math.exp(shift)
        k = tid
        while k < pairs:
            i = k // length
            gap = memory[best_at + i] - memory[scores_at + k]
            pull = memory[share_at + k]
            if shift != 0.0:
                # Tokens tied with the winner have no gap, and may lie above the shift.
                pull = math.exp(min(memory[work_at + k] - memory[top_at + i] - shift, 0.0))
            memory[work_at + k] = pull * gap
            k += stride
        cuda.syncthreads()
        i = tid
        while i < n:
            total, pulls = 0.0, 0.0
            for t in range(length):
                total += memory[share_at + i * length + t]
                pulls += memory[work_at + i * length + t]
            mean = pulls / total
            margin = output_margin(memory, i, total) if features_width else memory[best_at + i] - mean * unit
            slope = 1.0
            if loss == LOGISTIC:
                slope = 1.0 / (1.0 + math.exp(margin))
            elif loss == EXPONENTIAL:
                slope = math.exp(-margin)
            memory[mean_at + i] = mean
            memory[weight_at + i] = slope / (total * n)
            i += stride
        cuda.syncthreads()
        k = tid
        while k < pairs:
            i = k // length
            entry = memory[work_at + k] - memory[share_at + k] * memory[mean_at + i]
            memory[work_at + k] = entry * memory[weight_at + i]
            k += stride
        cuda.syncthreads()
        k = tid
        while k < n * d:
            i, j = k // d, k % d
            total = 0.0
            for t in range(length):
                total += memory[work_at + i * length + t] * memory[tokens_at + (i * length + t) * width + j]
            memory[rows_at + i * width + j] = total
            k += stride
        cuda.syncthreads()
        return shift

    @cuda.jit(device=True)
    def move(memory, matrix, left, a, a_width, right, b, b_width, slots, rule, step, tid):  # type: ignore[no-untyped-def]
        """matrix[a, b] -= step along sum_i left_i right_i^T; returns the norm of that gradient.

        Each thread reads and writes its own entries only, so no barrier is needed between gradient and move. A gradient
        that is not a number makes the matrix one, for the caller to see.
        """
        square = 0.0
        k = tid
        while k < a * b:
            j, q = k // b, k % b
            g = 0.0
            for i in range(n):
                g += memory[left + i * a_width + j] * memory[right + i * b_width + q]
            memory[work_at + k] = g
            square += g * g
            k += stride
        square = _block_sum(square, memory, slots, tid, warps)
        norm = math.sqrt(square)
        if not (square > _SMALLEST_SQUARE and square < _LARGEST_SQUARE):
            largest = 0.0
            k = tid
            while k < a * b:
                largest = max(largest, abs(memory[work_at + k]))
                k += stride
            largest = _block_max(largest, memory, largest_at, tid, warps)
            inverse = 1.0 / largest if largest > _SMALLEST_ENTRY else 0.0
            square = 0.0
            k = tid
            while k < a * b:
                g = memory[work_at + k] * inverse
                square += g * g
                k += stride
            norm = math.sqrt(_block_sum(square, memory, scaled_sum, tid, warps)) * largest
        if rule == NORMALIZED:
            step = 0.0 if norm == 0.0 else step / norm
        k = tid
        while k < a * b:
            g = memory[work_at + k]
            if rule == SIGN:
                g = 1.0 if g > 0.0 else (-1.0 if g < 0.0 else g)
            memory[matrix + (k // b) * b_width + k % b] -= step * g
            k += stride
        return norm

    def descend(  # type: ignore[no-untyped-def]
        tokens, queries, scores, features, labels, first, second, sizes, factors, active, stalled, rule, loss
    ):
        run = cuda.blockIdx.x
        tid = uint64(cuda.threadIdx.x)
        if active[run] == 0:
            return
        memory = cuda.shared.array(0, float64)
        element = run % tokens.shape[0]
        copy_in(tokens[element], memory, tokens_at, pairs, d, width, tid)
        copy_in(queries[element], memory, queries_at, n, dq, query_width, tid)
        copy_in(scores[element], memory, scores_at, pairs, _ONE, _ONE, tid)
        if features_width:
            copy_in(scores[element], memory, linear_at, pairs, _ONE, _ONE, tid)
            copy_in(features[element], memory, features_at, pairs, features_width, feature_row, tid)
            copy_in(labels[element], memory, labels_at, n, _ONE, _ONE, tid)
        copy_in(first[run], memory, first_at, d, columns, row_width, tid)
        if rank:
            copy_in(second[run], memory, second_at, dq, rank, row_width, tid)
        factor = float64(factors[run])
        idle = False
        for s in range(sizes.shape[0]):
            cuda.syncthreads()
            if rank:
                images_transposed(memory, second_at, queries_at, inner_at, dq, query_width, rank, row_width, tid)
                cuda.syncthreads()
                images(memory, first_at, inner_at, rows_at, d, width, rank, row_width, tid)
            else:
                images(memory, first_at, queries_at, rows_at, d, width, dq, query_width, tid)
            cuda.syncthreads()
            shift = gradient_rows(memory, loss, tid)
            step = sizes[s] * factor
            if rule == PLAIN:
                step *= math.exp(shift)
            if rank:
                images_transposed(memory, first_at, rows_at, back_at, d, width, rank, row_width, tid)
                cuda.syncthreads()
                norm = move(memory, first_at, rows_at, d, width, inner_at, rank, row_width, first_sum, rule, step, tid)
                norm += move(
                    memory, second_at, queries_at, dq, query_width, back_at, rank, row_width, other_sum, rule, step, tid
                )
            else:
                norm = move(
                    memory, first_at, rows_at, d, width, queries_at, dq, query_width, first_sum, rule, step, tid
                )
            idle = idle or norm == 0.0
        copy_out(memory, first_at, first[run], d, columns, row_width, tid)
        if rank:
            copy_out(memory, second_at, second[run], dq, rank, row_width, tid)
        if tid == 0 and idle:
            stalled[run] = 1

    return cuda.jit(descend) if registers is None else cuda.jit(descend, max_registers=registers)
