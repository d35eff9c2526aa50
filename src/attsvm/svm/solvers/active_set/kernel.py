"""The compiled loop over a batch of Frobenius problems: load, solve, refine, check.

An answer of `gram` is taken only when a check on the problem's own rows confirms it; otherwise `rowspace` goes on.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
from __future__ import annotations

import numpy as np
from numba import njit

from attsvm.svm.solvers.active_set.gram import (
    HELPER,
    OPTIONS,
    adjoint,
    dot,
    forward,
    power_of_two,
    solve_gram,
    solve_lower,
    solve_upper,
)
from attsvm.svm.solvers.base import ABSENT, BOUND, EPSILON, EQUALITY, INFEASIBLE, OPTIMAL, RAY


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
    """Solve one problem after the other with `gram` into `weights`, `duals` and `steps`, which come in as zeros.

    `D_all` ``[B, n, T, d]``, `Z_all` ``[B, n, dq]``, `b_all` and `kinds` ``[B, n, T]`` are the rows; `warm` holds
    duals to start from, ``[B, n, T]`` or ``[1, n, T]``. Where a ray is found the duals hold it, with b^T duals = 1, and
    the weights stay 0. Returns ``[B]`` where neither passes its check: the duals are then a guess for `rowspace`.
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
