"""Numba kernels: eight runs side by side in the lanes of vector registers, a whole stretch of steps in one call.

The model is keys, queries and a head that says what a mixture of tokens is worth (`compiled_head`). Arrays are
contiguous and end in ``[..., LANES]``; a lane is one run. With o the winner of an input and e_t = exp(a_t - a_o),
``s_t = e_t / sum e``; the terms ``s_t gap_t`` are formed relative to exp(m), m the largest a_t - a_o that has a gap.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from attsvm.descent.engines.numba.head_kernel import INVERSE, MARGIN, WINNER, judge, slots_of
from attsvm.descent.engines.numba.lanes import (
    LANES,
    absolute,
    exponential,
    fma,
    load,
    root,
    splat,
    store,
    where_equal,
    where_greater,
)

HELPER = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
NORMALIZED, PLAIN, SIGN = 0, 1, 2
LOGISTIC, EXPONENTIAL, LINEAR = 0, 1, 2


@njit(**HELPER)
def _attend(tokens, real, directions, work):  # type: ignore[no-untyped-def]
    """Softmax of the logits x_it^T u_i, u_i = W z_i: logits below the winner's, e_t of the losers, sum e, the winner.

    `work` is scratch ``[5, n, slots, LANES]``: pulls, shares, gaps, what belongs to a whole input, and the head's own.
    """
    n, length, d, _ = tokens.shape
    pull, share, whole = work[0], work[1], work[3]
    width = pull.shape[1]
    zero, one, nothing = splat(0.0), splat(1.0), splat(-np.inf)
    for i in range(n):
        top, winner = nothing, zero
        for t in range(length):
            k = i * length + t
            a = zero
            for j in range(d):
                a = fma(load(tokens, k * d + j), load(directions, i * d + j), a)
            a = where_greater(load(real, k), zero, a, nothing)
            winner = where_greater(a, top, splat(float(t)), winner)
            top = where_greater(a, top, a, top)
            store(pull, i * width + t, a)
        total = one
        for t in range(length):
            k = i * width + t
            a = load(pull, k) - top
            e = where_equal(winner, splat(float(t)), zero, exponential(a))
            total = total + e
            store(pull, k, a)
            store(share, k, e)
        store(whole, i * width + INVERSE, one / total)
        store(whole, i * width + WINNER, winner)


@njit(**HELPER)
def _rows(tokens, loss, floor, work, rows, scale):  # type: ignore[no-untyped-def]
    """Gradient of the risk in the directions u_i = W z_i: exp(scale) * rows[n, d], after `_attend` and `judge`.

    Where every m lies above `floor`, exp(a) still holds every term that counts.
    """
    n, length, d, _ = tokens.shape
    pull, share, gap, whole = work[0], work[1], work[2], work[3]
    width = pull.shape[1]
    zero, one, nothing = splat(0.0), splat(1.0), splat(-np.inf)
    largest = nothing
    for i in range(n):
        for t in range(length):
            a = load(pull, i * width + t)
            largest = where_equal(load(gap, i * width + t), zero, largest, where_greater(a, largest, a, largest))
        inverse, margin = load(whole, i * width + INVERSE), load(whole, i * width + MARGIN)
        slope = one
        if loss == LOGISTIC:
            slope = one / (one + exponential(margin))
        elif loss == EXPONENTIAL:
            slope = exponential(zero - margin)
        store(whole, i * width + MARGIN, slope * inverse / splat(float(n)))
    largest = where_equal(largest, nothing, zero, largest)
    store(scale, 0, largest)
    # exp(a - m) = exp(a) exp(-m) while neither leaves the range of floating point.
    near = True
    for lane in range(LANES):
        near &= scale[lane] > floor
    lift = exponential(zero - where_greater(largest, splat(-600.0), largest, splat(-600.0)))
    for i in range(n):
        inverse, weight = load(whole, i * width + INVERSE), load(whole, i * width + MARGIN)
        winner = load(whole, i * width + WINNER)
        mean, total = zero, zero
        for t in range(length):
            k = i * width + t
            if near:
                p = load(share, k) * lift * load(gap, k)
            else:
                a = load(pull, k) - largest
                p = exponential(where_greater(a, zero, zero, a)) * load(gap, k)
            mean = mean + p
            store(pull, k, p)
        mean = mean * inverse
        for t in range(length):
            k = i * width + t
            entry = (load(pull, k) - load(share, k) * mean) * weight
            total = total + entry
            store(pull, k, entry)
        total = zero - total
        for t in range(length):
            k = i * width + t
            store(pull, k, where_equal(winner, splat(float(t)), total, load(pull, k)))
        for j in range(d):
            r = zero
            for t in range(length):
                r = fma(load(pull, i * width + t), load(tokens, (i * length + t) * d + j), r)
            store(rows, i * d + j, r)


@njit(**HELPER)
def _outer(left, right, gradient):  # type: ignore[no-untyped-def]
    """gradient[a, b] = sum_i left_i right_i^T."""
    n, a, _ = left.shape
    b = right.shape[1]
    for j in range(a):
        for q in range(b):
            g = splat(0.0)
            for i in range(n):
                g = fma(load(left, i * a + j), load(right, i * b + q), g)
            store(gradient, j * b + q, g)


@njit(**HELPER)
def _images(matrix, vectors, images):  # type: ignore[no-untyped-def]
    """images_i = matrix vectors_i for every input, matrix[a, b]."""
    a, b, _ = matrix.shape
    for i in range(vectors.shape[0]):
        for j in range(a):
            total = splat(0.0)
            for q in range(b):
                total = fma(load(matrix, j * b + q), load(vectors, i * b + q), total)
            store(images, i * a + j, total)


@njit(**HELPER)
def _images_transposed(matrix, vectors, images):  # type: ignore[no-untyped-def]
    """images_i = matrix^T vectors_i for every input, matrix[a, b]."""
    a, b, _ = matrix.shape
    for i in range(vectors.shape[0]):
        for q in range(b):
            total = splat(0.0)
            for j in range(a):
                total = fma(load(matrix, j * b + q), load(vectors, i * a + j), total)
            store(images, i * b + q, total)


@njit(**HELPER)
def _add_ridge(matrix, log_ridge, gradient, scale):  # type: ignore[no-untyped-def]
    """exp(scale) * gradient += exp(log_ridge) * matrix, at the larger of the two scales."""
    count = gradient.shape[0] * gradient.shape[1]
    largest, nothing = splat(0.0), splat(-np.inf)
    for k in range(count):
        size = absolute(load(gradient, k))
        largest = where_greater(size, largest, size, largest)
    own, other = where_greater(largest, splat(0.0), load(scale, 0), nothing), splat(log_ridge)
    top = where_greater(own, other, own, other)
    keep, add = exponential(own - top), exponential(other - top)
    for k in range(count):
        store(gradient, k, fma(add, load(matrix, k), keep * load(gradient, k)))
    store(scale, 0, top)


@njit(**HELPER)
def _norms(gradient, norm):  # type: ignore[no-untyped-def]
    """Frobenius norm of each lane, its squares kept in range."""
    count = gradient.shape[0] * gradient.shape[1]
    largest = splat(0.0)
    for k in range(count):
        size = absolute(load(gradient, k))
        largest = where_greater(size, largest, size, largest)
    inverse = where_greater(largest, splat(1e-300), splat(1.0) / largest, splat(0.0))
    total = splat(0.0)
    for k in range(count):
        g = load(gradient, k) * inverse
        total = fma(g, g, total)
    store(norm, 0, root(total) * largest)


@njit(**HELPER)
def _move(matrix, gradient, norm, scale, step, rule):  # type: ignore[no-untyped-def]
    """matrix -= step; lanes with step 0 stay."""
    zero = splat(0.0)
    factor, size = load(step, 0), load(norm, 0)
    if rule == NORMALIZED:
        factor = where_greater(size, zero, factor / size, zero)
    elif rule == PLAIN:
        a = load(scale, 0)
        factor = factor * exponential(where_greater(a, splat(700.0), splat(700.0), a))
    for k in range(matrix.shape[0] * matrix.shape[1]):
        g = load(gradient, k)
        if rule == SIGN:
            g = where_greater(g, zero, splat(1.0), where_greater(zero, g, splat(-1.0), zero))
        store(matrix, k, load(matrix, k) - factor * g)


@njit(**HELPER)
def _note(size, factors, active, norm, step, stalled):  # type: ignore[no-untyped-def]
    for lane in range(LANES):
        step[lane] = size * factors[lane] * active[lane]
        stalled[lane] |= norm[lane] == 0.0


@njit(nogil=True, cache=True)
def descend_weights(  # type: ignore[no-untyped-def]
    tokens, queries, head, real, floors, pack, matrix, sizes, factors, rule, loss, log_ridge, active, stalled
):
    """Descent on W[groups, d, dq, LANES] in place; `pack` says which data each group of lanes reads."""
    groups, d, dq, _ = matrix.shape
    n, length = tokens.shape[1], tokens.shape[2]
    directions = np.empty((n, d, LANES))
    rows = np.empty((n, d, LANES))
    gradient = np.empty((d, dq, LANES))
    work = np.empty((5, n, slots_of(head, length), LANES))
    scale = np.empty(LANES)
    norm = np.empty(LANES)
    step = np.empty(LANES)
    for g in range(groups):
        b = pack[g]
        for k in range(sizes.shape[0]):
            _images(matrix[g], queries[b], directions)
            _attend(tokens[b], real[b], directions, work)
            judge(head, b, real[b], work)
            _rows(tokens[b], loss, floors[b], work, rows, scale)
            _outer(rows, queries[b], gradient)
            if log_ridge > -np.inf:
                _add_ridge(matrix[g], log_ridge, gradient, scale)
            _norms(gradient, norm)
            _note(sizes[k], factors[g], active[g], norm, step, stalled[g])
            _move(matrix[g], gradient, norm, scale, step, rule)


@njit(nogil=True, cache=True)
def descend_factors(  # type: ignore[no-untyped-def]
    tokens, queries, head, real, floors, pack, key, query, sizes, factors, rule, loss, log_ridge, active, stalled
):
    """Descent on K[groups, d, m, LANES] and Q[groups, dq, m, LANES] in place; W = K Q^T is never formed."""
    groups, d, rank, _ = key.shape
    dq = query.shape[1]
    n, length = tokens.shape[1], tokens.shape[2]
    inner = np.empty((n, rank, LANES))
    back = np.empty((n, rank, LANES))
    directions = np.empty((n, d, LANES))
    rows = np.empty((n, d, LANES))
    key_gradient = np.empty((d, rank, LANES))
    query_gradient = np.empty((dq, rank, LANES))
    work = np.empty((5, n, slots_of(head, length), LANES))
    key_scale = np.empty(LANES)
    query_scale = np.empty(LANES)
    key_norm = np.empty(LANES)
    query_norm = np.empty(LANES)
    step = np.empty(LANES)
    for g in range(groups):
        b = pack[g]
        for k in range(sizes.shape[0]):
            _images_transposed(query[g], queries[b], inner)
            _images(key[g], inner, directions)
            _attend(tokens[b], real[b], directions, work)
            judge(head, b, real[b], work)
            _rows(tokens[b], loss, floors[b], work, rows, key_scale)
            _images_transposed(key[g], rows, back)
            _outer(rows, inner, key_gradient)
            _outer(queries[b], back, query_gradient)
            store(query_scale, 0, load(key_scale, 0))
            if log_ridge > -np.inf:
                _add_ridge(key[g], log_ridge, key_gradient, key_scale)
                _add_ridge(query[g], log_ridge, query_gradient, query_scale)
            _norms(key_gradient, key_norm)
            _norms(query_gradient, query_norm)
            _note(sizes[k], factors[g], active[g], key_norm + query_norm, step, stalled[g])
            _move(key[g], key_gradient, key_norm, key_scale, step, rule)
            _move(query[g], query_gradient, query_norm, query_scale, step, rule)
