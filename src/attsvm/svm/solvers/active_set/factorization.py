"""Small compiled building blocks of the active-set kernel.

One problem is held as rows a_k = d_k z_{i(k)}^T, scaled by powers of two (exact) so that ||d_k|| and ||z_i|| lie in
[1, 2), sorted by input: the rows of input i are `start[i]:start[i+1]`. A row is never written out as a d x dq matrix:

    A(W)_k    = d_k^T (W z_i)                  `forward`   (one attention forward)
    A*(lam)   = sum_i (sum_k lam_k d_k) z_i^T  `adjoint`   (one attention backward)

The active rows are held by a lower triangular `L` with A_act A_act^T = L L^T; rows enter at the end and leave by
Givens rotations (`remove`).
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy"}
# Helpers are called from compiled code only: without an entry from Python they compile in half the time.
HELPER = {"nogil": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
# To Numba a plain 0 or -1 is a type of its own, for which it would compile every helper once more.
NOTHING: Any = np.int64(0)
NONE: Any = np.int64(-1)


@njit(**HELPER, fastmath={"reassoc", "contract", "nsz"})
def dot(x, y, size):
    """x^T y over the first `size` entries; the sum may be reordered."""
    total = 0.0
    for c in range(size):
        total += x[c] * y[c]
    return total


@njit(**HELPER)
def power_of_two(x):
    """The power of two p with p x in [1, 2): scaling by it is exact."""
    return math.ldexp(1.0, 1 - math.frexp(x)[1])


@njit(**HELPER)
def adjoint(multipliers, chosen, count, owner, D, Z, U, W):
    """W = sum over the chosen rows of multiplier * d_k z_k^T; U [n, d] is scratch."""
    n, d = U.shape
    dq = Z.shape[1]
    U[:, :] = 0.0
    W[:, :] = 0.0
    for a in range(count):
        k = chosen[a]
        for c in range(d):
            U[owner[k], c] += multipliers[a] * D[k, c]
    for i in range(n):
        for c in range(d):
            u = U[i, c]
            if u != 0.0:
                for e in range(dq):
                    W[c, e] += u * Z[i, e]


@njit(**HELPER)
def forward(W, start, D, Z, U, margins):
    """margins_k = d_k^T W z_k for all rows; U [n, d] is scratch."""
    n, d = U.shape
    dq = Z.shape[1]
    for i in range(n):
        if start[i + 1] > start[i]:
            for c in range(d):
                U[i, c] = dot(W[c], Z[i], dq)
            for k in range(start[i], start[i + 1]):
                margins[k] = dot(D[k], U[i], d)


@njit(**HELPER)
def solve_lower(L, size, x):
    """x <- L^-1 x."""
    for a in range(size):
        x[a] = (x[a] - dot(L[a], x, a)) / L[a, a]


@njit(**HELPER)
def solve_upper(L, size, x):
    """x <- L^-T x."""
    for a in range(size - 1, -1, -1):
        x[a] /= L[a, a]
        value = x[a]
        for c in range(a):
            x[c] -= value * L[a, c]


@njit(**HELPER)
def remove(L, size, a):
    """Take row a out of L."""
    for i in range(a + 1, size):
        for c in range(i + 1):
            L[i - 1, c] = L[i, c]
    for c in range(a, size - 1):
        x, y = L[c, c], L[c, c + 1]
        h = np.sqrt(x * x + y * y)  # no overflow: row norms are below 4
        cos, sin = x / h, y / h
        L[c, c] = h
        L[c, c + 1] = 0.0
        for i in range(c + 1, size - 1):
            x, y = L[i, c], L[i, c + 1]
            L[i, c] = cos * x + sin * y
            L[i, c + 1] = cos * y - sin * x


@njit(**HELPER)
def ratio_test(multipliers, direction, active, size, equal, threshold):
    """Largest t with multipliers - t direction >= 0 on inequality rows, and the row that blocks (-1: none)."""
    step, blocking = np.inf, NONE
    for a in range(size):
        if direction[a] > threshold and not equal[active[a]]:
            t = multipliers[a] / direction[a]
            if t < step:
                step, blocking = t, a
    return step, blocking


@njit(**HELPER)
def move(multipliers, direction, step, active, size, equal):
    """multipliers <- multipliers - step direction, round-off below 0 cut away on inequality rows."""
    for a in range(size):
        multipliers[a] -= step * direction[a]
        if multipliers[a] < 0.0 and not equal[active[a]]:
            multipliers[a] = 0.0


@njit(**HELPER)
def drop(L, active, multipliers, inside, size, a):
    """Row a leaves the active set; returns the new size."""
    inside[active[a]] = False
    remove(L, size, a)
    for c in range(a, size - 1):
        active[c] = active[c + 1]
        multipliers[c] = multipliers[c + 1]
    return size - 1


@njit(**HELPER)
def settle(L, active, multipliers, target, b, equal, inside, size):
    """Lawson and Hanson's inner loop: walk to (L L^T)^-1 b_act, dropping what blocks; returns the new size."""
    while True:
        for a in range(size):
            target[a] = b[active[a]]
        solve_lower(L, size, target)
        solve_upper(L, size, target)
        alpha, blocking = 1.0, NONE
        for a in range(size):
            if target[a] < 0.0 and not equal[active[a]]:
                t = multipliers[a] / (multipliers[a] - target[a])
                if blocking < 0 or t < alpha:
                    alpha, blocking = t, a
        for a in range(size):
            multipliers[a] += alpha * (target[a] - multipliers[a])
        if blocking < 0:
            return size
        size = drop(L, active, multipliers, inside, size, blocking)
