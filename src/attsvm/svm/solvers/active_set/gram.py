"""Dual active set on the Gram matrix (Goldfarb and Idnani, 1983): the fast kernel.

    min 1/2 ||A^T lam||^2 - b^T lam,  lam >= 0 (free on equality rows),   G = A A^T = (D D^T) o (Z Z^T)

It keeps a set of independent active rows with lam = G_act^-1 b_act >= 0, lets the most violated row enter, and drops
the rows whose multiplier would turn negative on the way. In exact arithmetic every entry strictly raises the dual value
(the entering row is violated), at most |act| rows are dropped per entry, and an active set is never met twice: the
method ends. In floating point the same is enforced by a cap on steps and by a check that the dual value rises; when
either fails, or a row is dependent on the active ones to an extent the Gram matrix cannot tell, the verdict is UNSURE
and the caller goes on with `rowspace`, which works on the rows themselves.

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

from attsvm.svm.solvers.base import EPSILON, INFEASIBLE, OPTIMAL, UNSURE

OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy"}
# Helpers are called from compiled code only: without an entry from Python they compile in half the time.
HELPER = {"nogil": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
# To Numba a plain 0 or -1 is a type of its own, for which it would compile every helper once more.
NOTHING: Any = np.int64(0)
NONE: Any = np.int64(-1)
DEPENDENT = 1e-13  # ||a_j - sum r_k a_k|| / (1 + sum |r_k|) below this: dependent (row norms are in [1, 4))
DOUBTFUL = 1e-9  # squared distance to the span of the active rows below which the Gram matrix is not trusted
TOLERANCE = 1e-12  # a row below b - TOLERANCE max |b| is violated and enters
NEGLIGIBLE = 1e-13  # multiplier changes below this never block


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


@njit(**HELPER)
def gram_row(j, G, known, owner, start, D, Dt, ZZ):
    """Fill row j of G = (D D^T) o (Z Z^T) unless it is known; `Dt` is D transposed, `ZZ` the Gram matrix of queries."""
    if known[j]:
        return
    known[j] = True
    m = owner.size
    row = G[j]
    first = D[j, 0]
    for k in range(m):
        row[k] = first * Dt[0, k]
    for c in range(1, D.shape[1]):
        x = D[j, c]
        for k in range(m):
            row[k] += x * Dt[c, k]
    i = owner[j]
    for other in range(start.size - 1):
        factor = ZZ[i, other]
        for k in range(start[other], start[other + 1]):
            row[k] *= factor


@njit(**HELPER)
def distance_to_span(j, r, active, size, L, owner, start, D, Z, U, P, margins, y):
    """Refine r in a_j ~ sum r_k a_k with the rows themselves; returns (||residual||, 1 + sum |r_k|)."""
    d = U.shape[1]
    scale = 1.0
    for sweep in range(3):
        for a in range(size):
            y[a] = -r[a]
        adjoint(y, active, size, owner, D, Z, U, P)
        for c in range(d):
            for e in range(Z.shape[1]):
                P[c, e] += D[j, c] * Z[owner[j], e]
        norm = 0.0
        for c in range(d):
            norm += dot(P[c], P[c], Z.shape[1])
        norm = np.sqrt(norm)
        scale = 1.0
        for a in range(size):
            scale += abs(r[a])
        if sweep == 2 or norm <= 0.01 * DEPENDENT * scale:
            break
        forward(P, start, D, Z, U, margins)
        for a in range(size):
            y[a] = margins[active[a]]
        solve_lower(L, size, y)
        solve_upper(L, size, y)
        for a in range(size):
            r[a] += y[a]
    return norm, scale


@njit(**HELPER)
def warm_start(lam, active, G, known, L, values, target, b, equal, inside, owner, start, D, Dt, ZZ, capacity):
    """Active set with lam = G_act^-1 b_act >= 0 from multipliers `lam` [m], equality rows first; returns its size."""
    size = NOTHING
    for stage in range(2):
        for k in range(b.size):
            wanted = equal[k] if stage == 0 else (not equal[k] and lam[k] > 0.0)
            if not wanted or size == capacity:
                continue
            gram_row(k, G, known, owner, start, D, Dt, ZZ)
            for a in range(size):
                L[size, a] = G[k, active[a]]
            solve_lower(L, size, L[size])
            delta = G[k, k] - dot(L[size], L[size], size)
            if delta > 1e-6 * G[k, k]:
                L[size, size] = np.sqrt(delta)
                active[size] = k
                values[size] = 0.0 if equal[k] else lam[k]
                inside[k] = True
                size += 1
    return settle(L, active, values, target, b, equal, inside, size)


@njit(**HELPER)
def solve_gram(
    lam, b, equal, weight, reach, owner, start, D, Dt, Z, ZZ, G, L, active, known, inside, values, r, y, s, U, P
):
    """Solve one scaled problem (see above) on its Gram matrix.

    `lam` [m] holds the warm start (zeros: none), `weight` [m] is 1 / ||a_k||, `reach` [m] the largest |b| in the units
    of each row; the other arrays are scratch.

    Returns (verdict, size, entering, steps): `active[:size]` with `values`; when INFEASIBLE the ray is -`r[:size]` on
    the active rows and -`r[size]` (+1, or -1 on an equality row) on `entering`.
    """
    m = b.size
    capacity = min(m, D.shape[1] * Z.shape[1])
    known[:m] = False
    inside[:m] = False
    warm = False
    for k in range(m):
        warm = warm or equal[k] or lam[k] > 0.0
    size = NOTHING
    if warm:
        size = warm_start(lam, active, G, known, L, values, y, b, equal, inside, owner, start, D, Dt, ZZ, capacity)
    best, stalled, steps, ignored = -np.inf, 0, 0, 0
    limit = 20 * m + 100
    while True:
        # slack of every row, the dual value, and the worst row
        for k in range(m):
            s[k] = -b[k]
        total, value = 0.0, 0.0
        for a in range(size):
            row, x = G[active[a]], values[a]
            total += abs(x)
            value += x * b[active[a]]
            for k in range(m):
                s[k] += x * row[k]
        noise = 4.0 * EPSILON * total
        j, worst = NONE, 0.0
        for k in range(m):
            slack = -abs(s[k]) if equal[k] else s[k]
            if slack * weight[k] < worst and not inside[k] and slack < -(TOLERANCE * reach[k] + noise):
                j, worst = k, slack * weight[k]
        if j < 0:
            return OPTIMAL, size, NONE, steps
        if value > best:
            best, stalled = value, 0
        else:
            stalled += 1
            if stalled > 10 + ignored:
                return UNSURE, size, j, steps
        gram_row(j, G, known, owner, start, D, Dt, ZZ)
        sign = 1.0 if s[j] < 0.0 else -1.0  # an equality row may enter from above: enter its negative
        slack, entering = -abs(s[j]), 0.0
        while True:
            steps += 1
            if steps > limit:
                return UNSURE, size, j, steps
            for a in range(size):
                y[a] = G[j, active[a]]
            solve_lower(L, size, y)
            delta = G[j, j] - dot(y, y, size)
            for a in range(size):
                r[a] = y[a]
            solve_upper(L, size, r)
            dependent, scale = size == capacity, 1.0
            if delta < DOUBTFUL or dependent:
                distance, scale = distance_to_span(j, r, active, size, L, owner, start, D, Z, U, P, s, y)
                dependent = distance <= DEPENDENT * scale
                delta = distance * distance
                if not dependent and (delta < DOUBTFUL or size == capacity):
                    return UNSURE, size, j, steps
                for a in range(size):
                    y[a] = G[j, active[a]]
                solve_lower(L, size, y)
            if sign < 0.0:
                for a in range(size):
                    r[a] = -r[a]
            step, blocking = ratio_test(values, r, active, size, equal, NEGLIGIBLE)
            full = np.inf if dependent else -slack / delta
            if dependent and blocking < 0:
                if entering == 0.0 and -slack <= 64.0 * EPSILON * scale * max(total, 1.0):
                    inside[j] = True  # a redundant row, violated by round-off only
                    ignored += 1
                    break
                r[size] = -sign
                return INFEASIBLE, size, j, steps
            step = min(step, full)
            entering += step
            move(values, r, step, active, size, equal)
            if step == full:
                for a in range(size):
                    L[size, a] = y[a]
                L[size, size] = np.sqrt(delta)
                active[size] = j
                values[size] = sign * entering
                inside[j] = True
                size += 1
                if ignored > 0:  # the span has changed: look at them again
                    ignored = 0
                    inside[:m] = False
                    for a in range(size):
                        inside[active[a]] = True
                break
            slack += step * (0.0 if dependent else delta)
            size = drop(L, active, values, inside, size, blocking)
