"""The step of descent, forward pass, exact gradient and update: the one text from which all kernels are made.

A *worker* computes for one run, or for eight side by side: `load`, `fma` and the other words are those of `lanes`. On
the CPU one worker does all inputs of its runs. On a GPU (`cuda.kernel` reads this file and compiles it with other words
of the same names) a run has one worker for each input, or several that share its tokens, `over_parts` adds up what
those hold, `run_sum` what all workers of the run hold, and `barrier` lets them wait for each other.

Tokens are measured from the first token of their input, which changes no attention: its logit is 0 and it is not
stored. With o the winner of an input, e_t = exp(a_t - a_o), gap_t the score that o has more than t, and pulls
p_t = e_t gap_t, the gradient in the logits has the entries

    (p_t - e_t sum p / sum e) slope / (n sum e),

the winner's (gap 0, e = 1) by the same formula. Where all pulls of an input are tiny they are formed once more relative
to exp(m), m the largest a_t - a_o that has a gap; that is the input's scale, and inputs meet at the largest one.
"""

from __future__ import annotations

import math
from collections import namedtuple

import numpy as np
from numba import njit

from attsvm.descent.engines.kernel_task import (
    ADAM,
    EXPONENTIAL,
    LOG,
    LOGISTIC,
    MASKED_SCORE,
    NORMALIZED,
    PLAIN,
    RELU,
    SIGN,
)
from attsvm.descent.engines.matrices import inverse_of, polar_factor, stored_norm
from attsvm.descent.engines.numba.lanes import (
    HELPER,
    LANES,
    absolute,
    barrier,
    exponential,
    fma,
    highest_over_parts,
    load,
    over_parts,
    root,
    run_sum,
    somewhere_less,
    splat,
    store,
    where_equal,
    where_greater,
)

# Where the pulls of an input add up to less than this they may need a scale, and they get one below exp(SHIFT_BELOW).
TINY_PULLS, SHIFT_BELOW = 1e-80, -200.0
# Squared norms outside of this range are formed again from scaled entries.
SMALLEST_SQUARE, LARGEST_SQUARE = 1e-280, 1e280
LARGEST_EXPONENT = 700.0
NOTHING = -np.inf


# Sizes and rules of a run, constants of the code on a GPU: `length` tokens of a worker besides the first; `rank` 0 says
# that W itself is trained; `width` features of a token, of which a head takes the `curve`, 0 for a linear head; whether
# some scores are MASKED_SCORE; `parts` workers that share the tokens of an input; and numbers of the optimizer.
Shape = namedtuple(
    "Shape",
    "n length d dq rank width curve masked parts loss rule ridge log_ridge decay beta1 beta2 epsilon",
)
# What a worker does: part `part` of `own` inputs from `first` on, every `workers`-th entry of a matrix, and of a vector
# of an input every `stride`-th entry from `begin` on.
Place = namedtuple("Place", "first own part worker workers begin stride")
# What stays, of the worker's inputs: tokens [own, length, d], scores [own, length + 1] and features
# [own, length + 1, width] with the first token, labels [own]; and the queries [n, dq] of all.
Data = namedtuple("Data", "tokens scores features labels queries")
# Scratch of the worker: directions u_i = W z_i [own, d]; logits, shares e_t (then entries of the gradient) and worths,
# the effective scores [length + 1]; spare [width]; factors [n]; pulled [own, d]. Scratch of all workers of a run:
# images, all u_i, and rows, the gradient in them [n, d]; its logarithmic scales [n]; inner Q^T z_i and back K^T r_i
# [n, rank]; pairs of gradients, in W or K and in Q, and of boards [n] for `run_sum`; rows that
# `polar_factor` rotates, or None.
Work = namedtuple(
    "Work",
    "directions logits shares worths spare factors pulled images rows scales inner back gradients boards rotated",
)


@njit(**HELPER)
def rows_of(slot, i, shape, data, work):  # type: ignore[no-untyped-def]
    """The gradient of the risk in u_i, exp(scales[i]) rows[i], of the worker's input `slot`, number i of its run."""
    zero, one, nothing = splat(0.0), splat(1.0), splat(NOTHING)
    at = slot * (shape.length + 1)
    best = load(data.scores, at)
    top = zero
    if shape.masked:
        top = where_equal(best, splat(MASKED_SCORE), nothing, zero)
    store(work.logits, 0, top)
    for t in range(shape.length):
        a = zero
        for j in range(shape.d):
            k = (slot * shape.length + t) * shape.d + j
            a = fma(load(data.tokens, k), load(work.directions, slot * shape.d + j), a)
        score = load(data.scores, at + t + 1)
        if shape.masked:
            a = where_equal(score, splat(MASKED_SCORE), nothing, a)
        best = where_greater(a, top, score, best)
        top = where_greater(a, top, a, top)
        store(work.logits, t + 1, a)
    if shape.parts > 1:
        highest = highest_over_parts(top)
        best = highest_over_parts(where_equal(top, highest, best, nothing))
        top = highest
    total = zero
    for t in range(shape.length + 1):
        a = load(work.logits, t) - top
        e = exponential(a)
        total = total + e
        store(work.logits, t, a)
        store(work.shares, t, e)
    inverse = one / over_parts(total)
    outcome = zero
    if shape.width > 0:
        value = zero
        for q in range(shape.width):
            mixed = zero
            for t in range(shape.length + 1):
                k = (at + t) * shape.width + q
                mixed = fma(load(work.shares, t), load(data.features, k), mixed)
            mixed = over_parts(mixed) * inverse
            slope = splat(-2.0) * mixed
            if shape.curve == RELU:
                slope = where_greater(mixed, zero, one, zero)
                value = fma(slope, mixed, value)
            else:
                value = value - mixed * mixed
            store(work.spare, q, slope)
        label, linear = load(data.labels, slot), zero
        best = nothing
        for t in range(shape.length + 1):
            worth = zero
            for q in range(shape.width):
                k = (at + t) * shape.width + q
                worth = fma(load(work.spare, q), load(data.features, k), worth)
            score = load(data.scores, at + t)
            linear = fma(load(work.shares, t), score, linear)
            worth = fma(label, worth, score)
            winner = where_greater(worth, best, worth, best)
            best = where_equal(load(work.logits, t), zero, winner, best)
            store(work.worths, t, worth)
        best = highest_over_parts(best)
        outcome = fma(label, value, over_parts(linear) * inverse)
    pulls, size = zero, zero
    for t in range(shape.length + 1):
        worth = load(work.worths, t) if shape.width > 0 else load(data.scores, at + t)
        pull = load(work.shares, t) * (best - worth)
        pulls = pulls + pull
        size = size + absolute(pull)
    mean, scale, unit = over_parts(pulls) * inverse, zero, one
    if somewhere_less(over_parts(size), splat(TINY_PULLS)):
        largest = nothing
        for t in range(shape.length + 1):
            worth = load(work.worths, t) if shape.width > 0 else load(data.scores, at + t)
            a = load(work.logits, t)
            # Tokens tied with the winner have no gap, and may lie above the scale.
            largest = where_equal(best, worth, largest, where_greater(a, largest, a, largest))
        largest = highest_over_parts(largest)
        scale = where_greater(splat(SHIFT_BELOW), largest, largest, zero)
        shift = where_greater(scale, nothing, scale, zero)
        unit = exponential(shift)
        pulls = zero
        for t in range(shape.length + 1):
            worth = load(work.worths, t) if shape.width > 0 else load(data.scores, at + t)
            a = load(work.logits, t) - shift
            pull = exponential(where_greater(a, zero, zero, a)) * (best - worth)
            pulls = pulls + pull
            store(work.logits, t, pull)
        mean = over_parts(pulls) * inverse
        for t in range(shape.length + 1):
            store(work.shares, t, load(work.logits, t) - load(work.shares, t) * mean)
    else:
        for t in range(shape.length + 1):
            worth = load(work.worths, t) if shape.width > 0 else load(data.scores, at + t)
            e = load(work.shares, t)
            store(work.shares, t, e * (best - worth) - e * mean)
    margin = outcome if shape.width > 0 else best - mean * unit
    slope = one
    if shape.loss == LOGISTIC:
        slope = one / (one + exponential(margin))
    elif shape.loss == EXPONENTIAL:
        slope = exponential(zero - margin)
    elif shape.loss == LOG:
        # A winner of score 0 leaves a margin of the size of the pulls: the slope takes their scale away.
        left = where_equal(best, zero, zero - mean, margin)
        slope = one / where_greater(left, zero, left, one)
        scale = where_equal(best, zero, where_greater(scale, nothing, zero, nothing), scale)
    weight = slope * inverse * splat(1.0 / shape.n)
    for j in range(shape.d):
        r = zero
        for t in range(shape.length):
            r = fma(load(work.shares, t + 1), load(data.tokens, (slot * shape.length + t) * shape.d + j), r)
        store(work.rows, i * shape.d + j, over_parts(r) * weight)
    store(work.scales, i, scale)


@njit(**HELPER)
def descend_span(sizes, length, shape, place, data, work, products, moved, stalled):  # type: ignore[no-untyped-def]
    """Gradient or normalized descent on W, seen through ``directions`` u_i = W z_i alone: no matrix is formed.

    Since W <- W - h sum_i r_i z_i^T, u_j <- u_j - h sum_i r_i <z_i, z_j>: ``products`` [own, n] holds these. What
    becomes of W is ``W - sum_i moved_i z_i^T``. `length` is what the sizes of steps are multiplied with.
    """
    zero, one = splat(0.0), splat(1.0)
    idle = zero
    for k in range(sizes.shape[0]):
        for slot in range(place.own):
            rows_of(slot, place.first + slot, shape, data, work)
        barrier()
        top, uneven = common_scale(shape, work.scales)
        mine, square = one, zero
        for slot in range(place.own):
            for i in range(shape.n):
                product = load(products, slot * shape.n + i)
                if uneven:
                    product = product * exponential(load(work.scales, i) - top)
                store(work.factors, i, product)
            if uneven:
                mine = exponential(load(work.scales, place.first + slot) - top)
            total = zero
            for j in range(place.begin, shape.d, place.stride):
                g = zero
                for i in range(shape.n):
                    g = fma(load(work.factors, i), load(work.rows, i * shape.d + j), g)
                store(work.pulled, slot * shape.d + j, g)
                total = fma(load(work.rows, (place.first + slot) * shape.d + j), g, total)
            square = fma(mine, total, square)
        square = run_sum(square * splat(place.stride / shape.parts), work.boards[0], place.first)
        norm = root(square)
        if somewhere_less(square, splat(SMALLEST_SQUARE)) or somewhere_less(splat(LARGEST_SQUARE), square):
            norm = outer_norm(shape, data.queries, work.rows, work.scales, top)
        step = length * splat(sizes[k, 0])
        if shape.rule == NORMALIZED:
            step = step / where_greater(norm, zero, norm, one)
        else:
            step = step * exponential(where_greater(top, splat(LARGEST_EXPONENT), splat(LARGEST_EXPONENT), top))
        idle = where_equal(norm, zero, one, idle)
        for slot in range(place.own):
            if uneven:
                mine = exponential(load(work.scales, place.first + slot) - top)
            for j in range(place.begin, shape.d, place.stride):
                at = slot * shape.d + j
                turned = fma(zero - step, load(work.pulled, at), load(work.directions, at))
                store(work.directions, at, turned)
                r = load(work.rows, (place.first + slot) * shape.d + j)
                store(moved, at, fma(step * mine, r, load(moved, at)))
        barrier()
    store(stalled, 0, idle)


@njit(**HELPER)
def outer_norm(shape, queries, rows, scales, top):  # type: ignore[no-untyped-def]
    """Frobenius norm of ``sum_i exp(scales_i - top) rows_i z_i^T``, its squares kept in range; each worker alone."""
    zero, largest, inverse = splat(0.0), splat(0.0), splat(0.0)
    total = zero
    for turn in range(2):
        for j in range(shape.d):
            for q in range(shape.dq):
                g = zero
                for i in range(shape.n):
                    r = load(rows, i * shape.d + j) * exponential(load(scales, i) - top)
                    g = fma(r, load(queries, i * shape.dq + q), g)
                g = absolute(g)
                if turn == 0:
                    largest = where_greater(g, largest, g, largest)
                else:
                    total = fma(g * inverse, g * inverse, total)
        inverse = inverse_of(largest)
    return root(total) * largest


@njit(**HELPER)
def images(matrix, down, across, vectors, result, a, b, shape, place):  # type: ignore[no-untyped-def]
    """result_i = M vectors_i for the worker's inputs; entry (j, q) of M [a, b] is number ``j down + q across``."""
    for i in range(place.first, place.first + place.own):
        for j in range(place.part, a, shape.parts):
            total = splat(0.0)
            for q in range(b):
                total = fma(load(matrix, j * down + q * across), load(vectors, i * b + q), total)
            store(result, i * a + j, total)


@njit(**HELPER)
def common_scale(shape, scales):  # type: ignore[no-untyped-def]
    """The largest scale of the inputs, 0 where none has a gradient, and whether they differ anywhere."""
    zero, top, total = splat(0.0), splat(NOTHING), splat(0.0)
    for i in range(shape.n):
        scale = load(scales, i)
        total = total + scale
        top = where_greater(scale, top, scale, top)
    return where_greater(top, splat(NOTHING), top, zero), somewhere_less(total, zero)


@njit(**HELPER)
def blended(scale, new_scale, past):  # type: ignore[no-untyped-def]
    """The scale of ``past * mean + (1 - past) * new``, and what the mantissas of mean and new are multiplied with."""
    nothing = splat(NOTHING)
    mine, theirs = scale + splat(math.log(past) if past > 0 else NOTHING), new_scale + splat(math.log(1.0 - past))
    top = where_greater(mine, theirs, mine, theirs)
    held = where_greater(top, nothing, top, splat(0.0))
    return top, exponential(mine - held), exponential(theirs - held)


@njit(**HELPER)
def update(  # type: ignore[no-untyped-def]
    matrix, left, a, right, b, gradient, board, memory, sizes, length, top, uneven, shape, place, factors, rotated
):
    """matrix[a, b] takes a step along ``sum_i left_i right_i^T``, of scale `top`; returns the norm of that mantissa.

    ``memory`` holds the moments of Adam and their scales.
    """
    zero, one, nothing = splat(0.0), splat(1.0), splat(NOTHING)
    keep, add = one, zero
    if shape.ridge:
        # At the larger of the two scales: far out the ridge is all that is left.
        other = splat(shape.log_ridge)
        both = where_greater(top, other, top, other)
        keep, add = exponential(top - both), exponential(other - both)
        top = both
    square = zero
    j, q = place.worker // b, place.worker % b
    for k in range(place.worker, a * b, place.workers):
        g = zero
        for i in range(shape.n):
            r = load(left, i * a + j)
            if uneven:
                r = r * load(factors, i)
            g = fma(r, load(right, i * b + q), g)
        q += place.workers
        while q >= b:
            q, j = q - b, j + 1
        if shape.ridge:
            g = fma(add, load(matrix, k), keep * g)
        store(gradient, k, g)
        square = fma(g, g, square)
    first_scale, second_scale = load(memory, 0), load(memory, 1)
    square = run_sum(square, board, place.first)
    norm = root(square)
    if somewhere_less(square, splat(SMALLEST_SQUARE)) or somewhere_less(splat(LARGEST_SQUARE), square):
        exact = stored_norm(gradient, a * b)
        norm = where_greater(splat(SMALLEST_SQUARE), square, exact, norm)
        norm = where_greater(square, splat(LARGEST_SQUARE), exact, norm)
    if rotated is not None:  # known to the compiler: kernels of other rules are smaller, and faster
        polar_factor(gradient, left, a, right, b, norm, rotated, board, uneven, factors, shape, place)
    step = length * splat(sizes[0])
    left_over = one - step * splat(shape.decay)
    keep1, add1, keep2, add2, floor = one, zero, one, zero, zero
    if shape.rule == NORMALIZED:
        step = step / where_greater(norm, zero, norm, one)
    elif shape.rule == PLAIN:
        step = step * exponential(where_greater(top, splat(LARGEST_EXPONENT), splat(LARGEST_EXPONENT), top))
    elif shape.rule == ADAM:
        seen = where_greater(norm, zero, top, nothing)
        first_scale, keep1, add1 = blended(first_scale, seen, shape.beta1)
        second_scale, keep2, add2 = blended(second_scale, seen + seen, shape.beta2)
        half = where_greater(second_scale, nothing, splat(0.5) * second_scale, zero)
        step = step * splat(sizes[1]) * exponential(first_scale - half)
        away = where_greater(zero - half, splat(LARGEST_EXPONENT), splat(LARGEST_EXPONENT), zero - half)
        floor = splat(shape.epsilon) * exponential(away)
        store(memory, 0, first_scale)
        store(memory, 1, second_scale)
    for k in range(place.worker, a * b, place.workers):
        g = load(gradient, k)
        if shape.rule == SIGN:
            g = where_greater(g, zero, one, where_greater(zero, g, zero - one, zero))
        elif shape.rule == ADAM:
            mean = keep1 * load(memory, 2 + k) + add1 * g
            second = keep2 * load(memory, 2 + a * b + k) + add2 * (g * g)
            store(memory, 2 + k, mean)
            store(memory, 2 + a * b + k, second)
            size = root(second * splat(sizes[2])) + floor
            g = where_greater(size, zero, mean / where_greater(size, zero, size, one), zero)
        value = load(matrix, k)
        if shape.decay > 0.0:
            value = value * left_over
        store(matrix, k, value - step * g)
    return norm


@njit(**HELPER)
def descend_matrices(sizes, length, shape, place, data, work, first, second, memories, stalled):  # type: ignore[no-untyped-def]
    """Descent on W [d, dq], or on K [d, rank] and Q [dq, rank]; ``sizes`` [steps, 3] has Adam's corrections too."""
    idle = splat(0.0)
    for k in range(sizes.shape[0]):
        if shape.rank > 0:
            images(second, 1, shape.rank, data.queries, work.inner, shape.rank, shape.dq, shape, place)
            barrier()
            images(first, shape.rank, 1, work.inner, work.images, shape.d, shape.rank, shape, place)
        else:
            images(first, shape.dq, 1, data.queries, work.images, shape.d, shape.dq, shape, place)
        barrier()
        for slot in range(place.own):
            for j in range(shape.d):
                store(work.directions, slot * shape.d + j, load(work.images, (place.first + slot) * shape.d + j))
            rows_of(slot, place.first + slot, shape, data, work)
        barrier()
        if shape.rank > 0:
            images(first, 1, shape.rank, work.rows, work.back, shape.rank, shape.d, shape, place)
            barrier()
        top, uneven = common_scale(shape, work.scales)
        if uneven:
            for i in range(shape.n):
                store(work.factors, i, exponential(load(work.scales, i) - top))
        if shape.rank > 0:
            norm = update(
                first, work.rows, shape.d, work.inner, shape.rank, work.gradients[0], work.boards[0], memories[0],
                sizes[k], length, top, uneven, shape, place, work.factors, work.rotated,
            ) + update(
                second, data.queries, shape.dq, work.back, shape.rank, work.gradients[1], work.boards[1], memories[1],
                sizes[k], length, top, uneven, shape, place, work.factors, work.rotated,
            )  # fmt: skip
        else:
            norm = update(
                first, work.rows, shape.d, data.queries, shape.dq, work.gradients[0], work.boards[0], memories[0],
                sizes[k], length, top, uneven, shape, place, work.factors, work.rotated,
            )  # fmt: skip
        idle = where_equal(norm, splat(0.0), splat(1.0), idle)
        barrier()
    store(stalled, 0, idle)


@njit(nogil=True, cache=True)
def descend_lanes(  # type: ignore[no-untyped-def]
    data, pack, first, second, memories, sizes, factors, shape, stalled, rotated
):
    """`descend_matrices` for groups of LANES runs, arrays ``[groups, ..., LANES]``; `pack` names the data of each.

    ``rotated`` [`rotated_numbers`, LANES] is scratch for spectral steps, None for others.
    """
    n, length, d = shape.n, shape.length, shape.d
    rank, tokens = shape.rank, (length + 1, LANES)
    gradients = np.empty((d * max(rank, shape.dq), LANES)), np.empty((shape.dq * rank, LANES))
    directions, nothing, board = np.empty((n * d, LANES)), np.empty((0, LANES)), np.empty((n, LANES))
    work = Work(
        directions, np.empty(tokens), np.empty(tokens), np.empty(tokens), np.empty((shape.width, LANES)),
        np.empty((n, LANES)), nothing, directions, np.empty((n * d, LANES)), np.empty((n, LANES)),
        np.empty((n * rank, LANES)), np.empty((n * rank, LANES)), gradients, (board, board), rotated,
    )  # fmt: skip
    for g in range(len(pack)):
        b = pack[g]
        own = Data(data.tokens[b], data.scores[b], data.features[b], data.labels[b], data.queries[b])
        descend_matrices(
            sizes, load(factors[g], 0), shape, Place(0, n, 0, 0, 1, 0, 1), own, work, first[g], second[g],
            (memories[0][g], memories[1][g]), stalled[g],
        )  # fmt: skip
