"""Dual active set on the rows themselves (Goldfarb and Idnani with an orthonormal basis): the robust kernel.

The same method as `gram`, with A_act = L Q, Q orthonormal rows in R^{d dq}. The Gram matrix squares the condition
number of the active rows; here nothing is squared: the distance of an entering row to the span of the active ones is
right to a few units of round-off (repeated Gram-Schmidt), and W = Q^T L^-1 b_act is recomputed after every entry. About
ten times slower, and called only where `gram` is unsure.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
from __future__ import annotations

import numpy as np
from numba import njit

from attsvm.svm.solvers.active_set.factorization import (
    HELPER,
    NONE,
    NOTHING,
    dot,
    drop,
    forward,
    move,
    only_active,
    ratio_test,
    settle,
    solve_lower,
    solve_upper,
)
from attsvm.svm.solvers.base import EPSILON, INFEASIBLE, OPTIMAL, UNSURE


@njit(**HELPER)
def split(j, owner, D, Z, Q, size, p, y):
    """a_j = y Q + p with p orthogonal to Q; returns ||p||."""
    d, dq = D.shape[1], Z.shape[1]
    for c in range(d):
        for e in range(dq):
            p[c * dq + e] = D[j, c] * Z[owner[j], e]
    y[:size] = 0.0
    for _ in range(3):
        for a in range(size):
            x = dot(Q[a], p, p.size)
            y[a] += x
            for c in range(p.size):
                p[c] -= x * Q[a, c]
    return np.sqrt(dot(p, p, p.size))


@njit(**HELPER)
def point_on_active(L, Q, size, active, b, u, W):
    """W = Q^T L^-1 b_act, the smallest W with the active rows tight; u <- L^-1 b_act."""
    d, dq = W.shape
    for a in range(size):
        u[a] = b[active[a]]
    solve_lower(L, size, u)
    W[:, :] = 0.0
    for a in range(size):
        for c in range(d):
            for e in range(dq):
                W[c, e] += u[a] * Q[a, c * dq + e]
    return np.sqrt(dot(u, u, size))


@njit(**HELPER)
def extend(L, Q, active, values, inside, size, k, y, p, distance, value):
    """Row k = y Q + p enters the active set with this multiplier; returns the new size."""
    for a in range(size):
        L[size, a] = y[a]
    L[size, size] = distance
    for c in range(p.size):
        Q[size, c] = p[c] / distance
    active[size] = k
    values[size] = value
    inside[k] = True
    return size + 1


@njit(**HELPER)
def solve_rowspace(guess, b, equal, weight, tolerance, owner, start, D, Z, active, values, r, W):
    """One scaled problem (see `factorization`), from the rows whose multiplier in `guess` [m] is positive.

    Returns (verdict, size, entering, steps) like `gram.solve_gram`, and W when OPTIMAL.
    """
    m = b.size
    d, dq = D.shape[1], Z.shape[1]
    capacity = min(m, d * dq)
    L = np.zeros((capacity + 1, capacity + 1))
    Q = np.empty((capacity + 1, d * dq))
    U = np.empty((start.size - 1, d))
    s, y, u, p = np.empty(m), np.empty(capacity + 1), np.empty(capacity + 1), np.empty(d * dq)
    inside = np.zeros(m, dtype=np.bool_)
    # the guess, equality rows first; rows close to the span of the others are left to enter later
    size = NOTHING
    for stage in range(2):
        for k in range(m):
            if size < capacity and (equal[k] if stage == 0 else (not equal[k] and guess[k] > 0.0)):
                distance = split(k, owner, D, Z, Q, size, p, y)
                if distance > 1e-3:
                    value = 0.0 if equal[k] else guess[k]
                    size = extend(L, Q, active, values, inside, size, k, y, p, distance, value)
    size = settle(L, Q, active, values, y, b, equal, inside, size)
    best, stalled, steps, ignored = -np.inf, 0, 0, 0
    limit = 20 * m + 100
    while True:
        norm = point_on_active(L, Q, size, active, b, u, W)
        forward(W, start, D, Z, U, s)
        j, worst = NONE, 0.0
        for k in range(m):
            slack = -abs(s[k] - b[k]) if equal[k] else s[k] - b[k]
            if slack * weight[k] < worst and not inside[k] and slack < -(tolerance[k] + 8.0 * EPSILON * norm):
                j, worst = k, slack * weight[k]
        if j < 0:
            for a in range(size):
                values[a] = u[a]
            solve_upper(L, size, values)
            return OPTIMAL, size, NONE, steps
        if norm > best * (1.0 + EPSILON):
            best, stalled = norm, 0
        else:
            stalled += 1
        if stalled > 10 + ignored:
            for a in range(size):
                values[a] = u[a]
            solve_upper(L, size, values)
            return UNSURE, size, j, steps
        sign = 1.0 if s[j] < b[j] else -1.0
        slack, entering = -abs(s[j] - b[j]), 0.0
        while True:
            steps += 1
            if steps > limit:
                return UNSURE, size, j, steps
            distance = split(j, owner, D, Z, Q, size, p, y)
            scale = 1.0
            for a in range(size):
                r[a] = sign * y[a]
            solve_upper(L, size, r)
            for a in range(size):
                scale += abs(r[a])
            dependent = size == capacity or distance <= 16.0 * EPSILON * min(scale, 1e3)
            step, blocking = ratio_test(values, r, active, size, equal, 1e-15 * scale)
            if dependent and blocking < 0:
                if entering == 0.0 and -slack <= 64.0 * EPSILON * scale * norm:
                    inside[j] = True  # a redundant row, violated by round-off only
                    ignored += 1
                    break
                r[size] = -sign
                return INFEASIBLE, size, j, steps
            full = np.inf if dependent else -slack / (distance * distance)
            step = min(step, full)
            entering += step
            move(values, r, step, active, size, equal)
            if step == full:
                size = extend(L, Q, active, values, inside, size, j, y, p, distance, sign * entering)
                if ignored > 0:  # the span has changed: look at them again
                    ignored = 0
                    only_active(inside, m, active, size)
                break
            if not dependent:
                slack += step * distance * distance
            size = drop(L, Q, active, values, inside, size, blocking)
