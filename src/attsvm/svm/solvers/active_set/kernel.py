"""Dual active set on the Gram matrix (Goldfarb and Idnani, 1983), for one problem after the other.

    min 1/2 ||A^T lam||^2 - b^T lam,  lam >= 0 (free on equality rows),   G = A A^T = (D D^T) o (Z Z^T)

It keeps a set of independent active rows with lam = G_act^-1 b_act >= 0, lets the most violated row enter, and drops
the rows whose multiplier would turn negative on the way. In exact arithmetic every entry strictly raises the dual value
(the entering row is violated), at most |act| rows are dropped per entry, and an active set is never met twice: the
method ends. In floating point the same is enforced by a cap on steps and by a check that the dual value rises; when
either fails, or a row is dependent on the active ones to an extent the Gram matrix cannot tell, the verdict is UNSURE
and the caller goes on with `solve_again`, which works on the rows themselves. It also does where an answer fails its
check on the problem's own rows.

One problem is held as rows a_k = d_k z_{i(k)}^T, scaled by powers of two (exact) so that ||d_k|| and ||z_i|| lie in
[1, 2), sorted by input: the rows of input i are `start[i]:start[i+1]`. A row is never written out as a d x dq matrix:

    A(W)_k    = d_k^T (W z_i)                  `forward`   (one attention forward)
    A*(lam)   = sum_i (sum_k lam_k d_k) z_i^T  `adjoint`   (one attention backward)

The active rows are held by a lower triangular `L` with A_act A_act^T = L L^T; rows enter at the end and leave by
Givens rotations (`drop`).
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from attsvm.svm.solvers.base import ABSENT, BOUND, EPSILON, EQUALITY, INFEASIBLE, OPTIMAL, RAY, UNSURE

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
def drop(L, active, multipliers, inside, size, a):
    """Row a leaves the active set and L; returns the new size."""
    inside[active[a]] = False
    for i in range(a + 1, size):
        for c in range(i + 1):
            L[i - 1, c] = L[i, c]
    for c in range(a, size - 1):
        active[c] = active[c + 1]
        multipliers[c] = multipliers[c + 1]
        x, y = L[c, c], L[c, c + 1]
        h = np.sqrt(x * x + y * y)  # no overflow: row norms are below 4
        cos, sin = x / h, y / h
        L[c, c] = h
        L[c, c + 1] = 0.0
        for i in range(c + 1, size - 1):
            x, y = L[i, c], L[i, c + 1]
            L[i, c] = cos * x + sin * y
            L[i, c + 1] = cos * y - sin * x
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
            for a in range(size):  # round-off below 0 is cut away on inequality rows
                values[a] -= step * r[a]
                if values[a] < 0.0 and not equal[active[a]]:
                    values[a] = 0.0
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


@njit(**HELPER)
def check_solution(W, M, lam, active, size, b, reach, equal, owner, start, D, Z, U, s, accuracy):
    """Margins of W on all rows, stationarity and gap, with the multipliers clipped to their sign."""
    largest, value, good = 0.0, 0.0, True
    for a in range(size):
        largest = max(largest, abs(lam[a]))
    for a in range(size):
        if lam[a] < 0.0 and not equal[active[a]]:
            good = good and lam[a] >= -1e-11 * largest  # round-off
            lam[a] = 0.0
        value += lam[a] * b[active[a]]
    forward(W, start, D, Z, U, s)
    adjoint(lam, active, size, owner, D, Z, U, M)
    square, difference = 0.0, 0.0
    for c in range(W.shape[0]):
        for e in range(W.shape[1]):
            square += W[c, e] * W[c, e]
            difference += (W[c, e] - M[c, e]) ** 2
    norm = np.sqrt(square)
    good = good and np.sqrt(difference) <= 0.3 * accuracy * norm and abs(square - value) <= accuracy * square
    for k in range(b.size):
        missing = abs(b[k] - s[k]) if equal[k] else b[k] - s[k]
        # margins are known to about EPSILON ||W||; a row with b = 0 is only asked to hold to that
        missing += 2.0 * EPSILON * norm if b[k] != 0.0 else -64.0 * EPSILON * norm
        if missing > 0.5 * accuracy * reach[k]:
            good = False
    return good


@njit(**HELPER)
def refine(W, P, L, lam, correction, active, size, b, owner, start, D, Z, U, s):
    """Iterative refinement of the active equations A_act W = b_act with the rows themselves."""
    adjoint(lam, active, size, owner, D, Z, U, W)
    before = np.inf
    for _ in range(6):
        forward(W, start, D, Z, U, s)
        error, square = 0.0, 0.0
        for c in range(W.shape[0]):
            square += dot(W[c], W[c], W.shape[1])
        for a in range(size):
            correction[a] = b[active[a]] - s[active[a]]
            error = max(error, abs(correction[a]))
        if error <= 2.0 * EPSILON * np.sqrt(square) or error > 0.5 * before:
            break
        before = error
        solve_lower(L, size, correction)
        solve_upper(L, size, correction)
        adjoint(correction, active, size, owner, D, Z, U, P)
        for a in range(size):
            lam[a] += correction[a]
        for c in range(W.shape[0]):
            for e in range(W.shape[1]):
                W[c, e] += P[c, e]


@njit(**HELPER)
def check_ray(ray, active, size, b, equal, owner, D, Z, U, M):
    """Clip the ray to its sign; b^T lam where sum lam A = 0 and b^T lam > 0 to the accepted precision, else 0."""
    total, value, noise = 0.0, 0.0, 0.0
    for a in range(size):
        k = active[a]
        if ray[a] < 0.0 and not equal[k]:
            ray[a] = 0.0
        total += abs(ray[a])
        value += ray[a] * b[k]
        noise += abs(ray[a] * b[k])
    adjoint(ray, active, size, owner, D, Z, U, M)
    square = 0.0
    for c in range(M.shape[0]):
        square += dot(M[c], M[c], M.shape[1])
    norm = np.sqrt(square)
    return value if norm <= RAY * total and value > 1e-13 * noise and value > BOUND * norm else 0.0


@njit(**HELPER)
def load(
    D_in, kinds, Z_in, b_in, duals_in, D, Dt, Z, b, lam, factor, weight, reach, equal, owner, token, start,
    ray,
):  # fmt: skip
    """Write one problem as rows scaled by powers of two, right-hand sides too, so that the largest lies in [1, 2).

    A zero row holds by itself or is a ray by itself (into `ray`). Returns the number of rows and the power of two that
    right-hand sides were multiplied with, 0 where there is nothing left to solve.
    """
    n, T, d = D_in.shape
    dq = Z_in.shape[1]
    m, feasible, largest, widest = 0, True, 0.0, 0.0
    for i in range(n):
        start[i] = m
        length = np.sqrt(dot(Z_in[i], Z_in[i], dq))
        shrink = power_of_two(length) if length > 0.0 else 0.0
        for e in range(dq):
            Z[i, e] = Z_in[i, e] * shrink
        for t in range(T):
            kind, value = kinds[i, t], b_in[i, t]
            if kind == ABSENT:
                continue
            size = np.sqrt(dot(D_in[i, t], D_in[i, t], d))
            if size * length == 0.0:
                if feasible and (value > 0.0 or (kind == EQUALITY and value < 0.0)):
                    feasible = False
                    ray[i, t] = 1.0 / value
                continue
            scale = power_of_two(size)
            for c in range(d):
                x = D_in[i, t, c] * scale
                D[m, c] = x
                Dt[c, m] = x
            factor[m] = scale * shrink
            weight[m] = 1.0 / (size * length * factor[m])
            b[m] = value * factor[m]
            lam[m] = duals_in[i, t] / factor[m]
            equal[m] = kind == EQUALITY
            if value > 0.0 or kind == EQUALITY:
                largest = max(largest, abs(b[m]))
                widest = max(widest, abs(value))
            owner[m] = i
            token[m] = t
            m += 1
    start[n] = m
    if not feasible or largest == 0.0:
        return m, 0.0
    unit = power_of_two(largest)
    for k in range(m):
        b[k] *= unit
        lam[k] *= unit
        reach[k] = widest * factor[k] * unit
    return m, unit


@njit(**OPTIONS)
def solve_batch(D_all, kinds, Z_all, b_all, warm, accuracy, weights, duals, steps):
    """Solve one problem after the other with `solve_gram` into `weights`, `duals` and `steps`, which come in as zeros.

    `D_all` ``[B, n, T, d]``, `Z_all` ``[B, n, dq]``, `b_all` and `kinds` ``[B, n, T]`` are the rows; `warm` holds
    duals to start from, ``[B, n, T]`` or ``[1, n, T]``. Where a ray is found the duals hold it, with b^T duals = 1, and
    the weights stay 0. Returns ``[B]`` where neither passes its check: the duals are then a guess for `solve_again`.
    """
    B, n, T, d = D_all.shape
    dq = Z_all.shape[2]
    most = n * T
    D, Dt, Z, ZZ = np.empty((most, d)), np.empty((d, most)), np.empty((n, dq)), np.empty((n, n))
    cap = min(most, d * dq) + 1
    G, L = np.empty((most, most)), np.zeros((cap, cap))
    values, r, y, s = np.empty(most + 1), np.empty(most + 1), np.empty(most + 1), np.empty(most + 1)
    lam, b, factor, weight, reach = np.empty(most), np.empty(most), np.empty(most), np.empty(most), np.empty(most)
    active, owner = np.empty(most + 1, np.int64), np.empty(most, np.int64)
    token, start = np.empty(most, np.int64), np.empty(n + 1, np.int64)
    known, inside, equal = np.empty(most, np.bool_), np.empty(most, np.bool_), np.empty(most, np.bool_)
    U, W, M = np.empty((n, d)), np.empty((d, dq)), np.empty((d, dq))
    unsure = np.zeros(B, np.bool_)
    for problem in range(B):
        m, unit = load(
            D_all[problem], kinds[problem], Z_all[problem], b_all[problem], warm[problem if warm.shape[0] == B else 0],
            D, Dt, Z, b, lam, factor, weight, reach, equal, owner, token, start, duals[problem],
        )  # fmt: skip
        if unit == 0.0:
            continue
        for i in range(n):
            for other in range(i + 1):
                x = dot(Z[i], Z[other], dq)
                ZZ[i, other] = x
                ZZ[other, i] = x
        bm, em, om = b[:m], equal[:m], owner[:m]
        verdict, size, j, steps[problem] = solve_gram(
            lam[:m], bm, em, weight, reach, om, start, D, Dt, Z, ZZ,
            G, L, active, known, inside, values, r, y, s, U, M,
        )  # fmt: skip
        scale, unsure[problem] = 1.0 / unit, True
        if verdict == INFEASIBLE:
            for a in range(size + 1):
                values[a] = -r[a]
            active[size] = j
            size += 1
            earned = check_ray(values, active, size, bm, em, om, D, Z, U, M)
            if earned > 0.0:
                scale, unsure[problem] = unit / earned, False
        elif verdict == OPTIMAL:
            refine(W, M, L, values, y, active, size, bm, om, start, D, Z, U, s)
            if check_solution(W, M, values, active, size, bm, reach, em, om, start, D, Z, U, s, accuracy):
                unsure[problem] = False
                for c in range(d):
                    for e in range(dq):
                        weights[problem, c, e] = W[c, e] / unit
        for a in range(size):
            k = active[a]
            duals[problem, owner[k], token[k]] = values[a] * factor[k] * scale
    return unsure
