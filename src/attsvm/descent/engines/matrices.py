"""Norms and polar factors of small matrices, in the words of `lanes`: a part of the text of `step`.

The polar factor U V^T of G = U diag(s) V^T, the steepest direction in the spectral norm, comes from one-sided Jacobi:
G is written as ``sum_k j_k y_k^T`` with orthonormal j_k, which stays true when rows [y_k, j_k] are rotated in pairs,
and when all y_k are orthogonal, u_k = j_k and s_k v_k = y_k.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from attsvm.descent.engines.kernel_task import SPECTRAL
from attsvm.descent.engines.numba.lanes import (
    HELPER,
    absolute,
    anywhere,
    barrier,
    fma,
    load,
    root,
    somewhere_less,
    splat,
    store,
    where_greater,
)

SMALLEST_ENTRY = 1e-300
# Rotations end by themselves: after six to ten sweeps over all pairs of ten rows, after up to twenty of 32 rows whose
# singular values fall over twelve decades. The bound is three times that.
EPSILON, MOST_SWEEPS = 2.0**-52, 60


@njit(**HELPER)
def inverse_of(largest):  # type: ignore[no-untyped-def]
    """1 / largest, 0 where that would leave the range of floating point."""
    held = where_greater(largest, splat(SMALLEST_ENTRY), largest, splat(1.0))
    return where_greater(largest, splat(SMALLEST_ENTRY), splat(1.0) / held, splat(0.0))


@njit(**HELPER)
def stored_norm(matrix, count):  # type: ignore[no-untyped-def]
    """Frobenius norm of a matrix, its squares kept in range; each worker by itself."""
    largest, total = splat(0.0), splat(0.0)
    for k in range(count):
        size = absolute(load(matrix, k))
        largest = where_greater(size, largest, size, largest)
    inverse = inverse_of(largest)
    for k in range(count):
        g = load(matrix, k) * inverse
        total = fma(g, g, total)
    return root(total) * largest


@njit(**HELPER)
def squared(array, at, count):  # type: ignore[no-untyped-def]
    """The sum of the squares of `count` numbers."""
    total = splat(0.0)
    for k in range(at, at + count):
        total = fma(load(array, k), load(array, k), total)
    return total


@njit(**HELPER)
def rotated_rows(shape, a, b):  # type: ignore[no-untyped-def]
    """How many rows [y_k, j_k] `polar_factor` of a gradient [a, b] rotates: no fewer than its rank."""
    return min(a, b) if shape.ridge else min(shape.n, a, b)


def rotated_numbers(shape: Any) -> int:
    """How many numbers these rows have for the larger of the gradients of a run; 0 if no step is spectral."""
    sides = ((shape.d, shape.rank or shape.dq), (shape.dq, shape.rank))
    return max(rotated_rows.py_func(shape, a, b) * (a + b) for a, b in sides) if shape.rule == SPECTRAL else 0


@njit(**HELPER)
def outer_rows(gradient, left, a, right, b, norm, rotated, board, uneven, factors, shape, place):  # type: ignore[no-untyped-def]
    """gradient / norm as ``sum_k j_k y_k^T`` with j_k orthonormal on the shorter side, in rows [y_k, j_k].

    The j_k are unit vectors or, where there are fewer inputs than those, the vectors of the inputs on that side after
    Gram-Schmidt, done twice since once loses digits: as j_k becomes ``j_k - h j_i``, y_i becomes ``y_i + h y_k``.
    """
    zero, one, inverse = splat(0.0), splat(1.0), inverse_of(norm)
    short, long, width = min(a, b), max(a, b), a + b
    if rotated_rows(shape, a, b) == short:
        for k in range(place.worker, short * width, place.workers):
            row, q = k // width, k % width
            value = one if q - long == row else zero
            if q < long:
                value = load(gradient, row * b + q if a <= b else q * b + row) * inverse
            store(rotated, k, value)
        barrier()
        return
    near, far = (left, right) if a <= b else (right, left)
    for i in range(place.worker, shape.n, place.workers):
        size = stored_norm(near[i * short : (i + 1) * short], short)
        factor = size * inverse
        if uneven:
            factor = factor * load(factors, i)
        for q in range(long):
            store(rotated, i * width + q, load(far, i * long + q) * factor)
        for q in range(short):
            store(rotated, i * width + long + q, load(near, i * short + q) * inverse_of(size))
    barrier()
    for _ in range(2):
        for i in range(shape.n):
            inverse = inverse_of(squared(rotated, i * width + long, short))
            for k in range(i + 1 + place.worker, shape.n, place.workers):
                share = zero
                for q in range(long, width):
                    share = fma(load(rotated, i * width + q), load(rotated, k * width + q), share)
                share = share * inverse
                for q in range(long, width):
                    rest = fma(zero - share, load(rotated, i * width + q), load(rotated, k * width + q))
                    store(rotated, k * width + q, rest)
                store(board, k, share)
            barrier()
            for q in range(place.worker, long, place.workers):
                total = load(rotated, i * width + q)
                for k in range(i + 1, shape.n):
                    total = fma(load(board, k), load(rotated, k * width + q), total)
                store(rotated, i * width + q, total)
            barrier()
        for i in range(place.worker, shape.n, place.workers):
            size = root(squared(rotated, i * width + long, short))
            for q in range(long):
                store(rotated, i * width + q, load(rotated, i * width + q) * size)
            for q in range(long, width):
                store(rotated, i * width + q, load(rotated, i * width + q) * inverse_of(size))
        barrier()


@njit(**HELPER)
def orthogonalize(rotated, board, count, length, width, shape, place):  # type: ignore[no-untyped-def]
    """Rotate rows [y_k, j_k] in pairs until all y_k [length] are orthogonal: one-sided Jacobi.

    The pairs of a round have no row in common, so that workers share them; `count` rounds at most meet every pair.
    """
    zero, one = splat(0.0), splat(1.0)
    round_off = (EPSILON * length) ** 2
    rounds = count - 1 + count % 2
    for _ in range(MOST_SWEEPS):
        turns = zero
        for first in range(rounds):
            for pair in range(place.worker, (rounds + 1) // 2, place.workers):
                i = (first + pair) % rounds * width
                k = ((first - pair) % rounds if pair > 0 else rounds) * width
                if k >= count * width:  # an odd number of rows: this one rests
                    continue
                x2, y2, xy = zero, zero, zero
                for q in range(length):
                    x, y = load(rotated, i + q), load(rotated, k + q)
                    x2, y2, xy = fma(x, x, x2), fma(y, y, y2), fma(x, y, xy)
                # Rows below the least singular value that counts, or orthogonal to round-off, stay as they are.
                least = where_greater(x2, y2, y2, x2)
                bound = where_greater(least, splat(round_off / count), splat(round_off) * x2 * y2, one)
                if somewhere_less(bound, xy * xy):
                    twice, apart = xy + xy, y2 - x2
                    far = absolute(apart) + root(fma(apart, apart, twice * twice))
                    tangent = twice / where_greater(far, zero, far, one)
                    tangent = where_greater(zero, apart, zero - tangent, tangent)
                    tangent = where_greater(xy * xy, bound, tangent, zero)
                    cosine = one / root(fma(tangent, tangent, one))
                    sine = tangent * cosine
                    for q in range(width):
                        x, y = load(rotated, i + q), load(rotated, k + q)
                        store(rotated, i + q, cosine * x - sine * y)
                        store(rotated, k + q, fma(sine, x, cosine * y))
                    turns = turns + absolute(tangent)
            barrier()
        if not anywhere(turns, board, place.first):
            break


@njit(**{**HELPER, "forceinline": False})
def polar_factor(gradient, left, a, right, b, norm, rotated, board, uneven, factors, shape, place):  # type: ignore[no-untyped-def]
    """gradient [a, b] becomes its polar factor over the s_k above max(a, b) EPSILON s_1, as in `norms.Spectral`."""
    zero, one, largest = splat(0.0), splat(1.0), splat(0.0)
    outer_rows(gradient, left, a, right, b, norm, rotated, board, uneven, factors, shape, place)
    rows, long, width = rotated_rows(shape, a, b), max(a, b), a + b
    orthogonalize(rotated, board, rows, long, width, shape, place)
    for k in range(rows):
        square = squared(rotated, k * width, long)
        largest = where_greater(square, largest, square, largest)
    bound = splat((EPSILON * long) ** 2) * largest
    for k in range(place.worker, rows, place.workers):
        square = squared(rotated, k * width, long)
        inverse = where_greater(square, bound, one / root(where_greater(square, zero, square, one)), zero)
        for q in range(k * width + long, (k + 1) * width):
            store(rotated, q, load(rotated, q) * inverse)
    barrier()
    for k in range(place.worker, a * b, place.workers):
        row, q = k // b, k % b
        if a > b:
            row, q = q, row
        total = zero
        for i in range(rows):
            total = fma(load(rotated, i * width + long + row), load(rotated, i * width + q), total)
        store(gradient, k, total)
