"""The interior point of the nuclear kernel.

    dual    max b^T lam     S = I - F(lam) psd,  lam >= 0        F(lam) = [[0, M], [M^T, 0]],  M = sum lam_k d_k z_k^T
    primal  min tr Y        <F_k, Y> - sigma_k = b_k,  Y psd, sigma >= 0            W = 2 Y_12,  <F_k, Y> = d_k^T W z_k
    path    Y S = mu I,  lam_k sigma_k = mu

HKM direction, second-order corrector: S depends on lam alone, so the dual is feasible throughout, and a full step makes
the primal feasible. Newton's equations reduce to the Schur matrix tr(F_k Y F_l S^-1) + diag(sigma / lam) of order m.
S^-1 comes from (I - M^T M)^-1, and whether matrices are positive definite from their elimination, so that no
eigenvalues are needed. Equality rows have no sigma.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
from __future__ import annotations

import math

from numba import njit

from attsvm.svm.solvers.base import EQUALITY

from attsvm.svm.solvers.nuclear.workers import (  # isort: skip
    COLUMNS, FAST, LINES, PLAIN, WORKERS, add_matrix, barrier, combine, dot, factor, gather, greater, highest,
    margins, mine, multiply, my_column, my_line, smaller, solve_factored, total,
)  # fmt: skip


@njit(**FAST)
def schur(d, z, picked, count, y, g, work):
    """work.system[a, o] = tr(F_k Y F_l G) of the rows k, l = picked[a], picked[o]; Y and G symmetric.

    F_k has d_k z_k^T in its corner. What depends on a row through its query alone is computed once for each input.
    """
    n, (m, rx), rz = len(z), d.shape, z.shape[1]
    block, h, turned, cross, grams, begins = m // n, work.system, work.turned, work.cross, work.grams, work.rows[2]
    first, second = work.parts[2 * my_line(0)], work.parts[2 * my_line(0) + 1]
    for j in range(mine(0), n + 1, WORKERS):
        below = 0
        for a in range(count):
            below += picked[a] < j * block
        begins[j] = below
    for c in range(my_line(0), rx, LINES):
        for a in range(my_column(0), count, COLUMNS):
            turned[c, a] = d[picked[a], c]
    barrier()
    for half in range(2):
        matrix, inputs = g if half else y, work.inputs[half * n :]
        multiply(turned.T, matrix, count, rx, rx, work.images[half * m :])
        multiply(z, matrix[rx:], n, rz, rx + rz, inputs)
        multiply(inputs, turned, n, rx, count, cross[half * n :])  # d_k^T Y_12 z_i
        for i in range(my_line(0), n, LINES):
            for j in range(my_column(0), n, COLUMNS):
                grams[half * n + i, j] = dot(inputs[i, rx:], z[j], rz)  # z_i^T Y_22 z_j
    barrier()
    for a in range(my_line(0), count, LINES):
        gather(work.images[a], turned, rx, a, count, first)
        gather(work.images[m + a], turned, rx, a, count, second)
        i = picked[a] // block
        for j in range(i, n):  # the rows of one input after the other
            wg, wy, ay, ag = grams[n + i, j], grams[i, j], cross[j, a], cross[n + j, a]
            for o in range(my_column(greater(a, begins[j])), begins[j + 1], COLUMNS):
                h[a, o] = first[o] * wg + second[o] * wy + ay * cross[n + i, o] + ag * cross[i, o]
    barrier()
    for a in range(my_line(0), count, LINES):
        for o in range(my_column(0), a, COLUMNS):
            h[a, o] = h[o, a]
    barrier()


@njit(**PLAIN)
def within(columns, rx, rz, width, work):
    """Whether ||M|| < 1: eliminates I - M^T M in the first columns of `square`, those up to `width` along with it."""
    square = work.square
    for i in range(my_line(0), rz, LINES):
        for j in range(my_column(i), rz, COLUMNS):
            square[i, j] = (1.0 if i == j else 0.0) - dot(columns[i], columns[j], rx)
    barrier()
    return factor(square, rz, width, work.vectors[1])


@njit(**FAST)
def inverse(columns, rx, rz, g, work):
    """g = S^-1 = [[I, 0], [0, 0]] + [M^T, I]^T (I - M^T M)^-1 [M^T, I]; False where S is not positive definite."""
    p, square, product, pivots = rx + rz, work.square, work.product, work.vectors[1]
    for i in range(my_line(0), rz, LINES):
        for c in range(my_column(0), rx, COLUMNS):
            square[i, rz + c] = columns[i, c]
        for c in range(my_column(0), rz, COLUMNS):
            square[i, p + c] = 1.0 if c == i else 0.0
    if not within(columns, rx, rz, rz + p, work):
        return False
    for i in range(my_line(0), rz, LINES):
        for c in range(my_column(0), p, COLUMNS):
            product[i, c] = pivots[i] * square[i, rz + c]
    barrier()
    multiply(square[:, rz:].T, product, p, rz, p, g)
    for c in range(mine(0), rx, WORKERS):
        g[c, c] += 1.0
    barrier()
    return True


@njit(**FAST)
def moved(y, columns, rx, rz, g, product, out):
    """out = the symmetric part of Y F G, F = [[0, D], [D^T, 0]], D by its columns."""
    p = rx + rz
    multiply(y[:, rx:], columns, p, rz, rx, product)
    for i in range(my_line(0), p, LINES):
        for e in range(my_column(0), rz, COLUMNS):
            product[i, rx + e] = dot(y[i], columns[e], rx)
    barrier()
    multiply(product, g, p, p, p, out)
    for i in range(my_line(0), p, LINES):
        for j in range(my_column(0), i, COLUMNS):
            out[i, j] = out[j, i] = 0.5 * (out[i, j] + out[j, i])
    barrier()


@njit(**PLAIN)
def longest(step, of_y, work, rx, rz):
    """The largest step up to this one, to a tenth of it, with Y + step dY psd, or with ||M + step D|| < 1."""
    low, tried, columns, p = 0.0, step, work.columns, rx + rz
    while step - low > 0.08 * step and step > 1e-9:
        if of_y:
            add_matrix(work.y, tried, work.dy, p, p, work.product)
            good = factor(work.product, p, p, work.vectors[1])
        else:
            add_matrix(columns, tried, columns[rz:], rz, rx, columns[2 * rz :])
            good = within(columns[2 * rz :], rx, rz, rz, work)
        if good:
            low = tried
        else:
            step = tried
        tried = 0.5 * (low + step) if low > 0.0 else 0.75 * step
    return low


@njit(**FAST)
def advance(d, z, b, kind, lam, sig, last, work):
    """One predictor-corrector step, in place; returns the relative gap plus the largest miss, the step, b^T lam.

    A step of 0 means that nothing was changed: float64 makes no further progress. `last` is the step before.
    """
    m, rx = d.shape
    rz = z.shape[1]
    p = rx + rz
    y, g, dy, core, h, columns = work.y, work.g, work.dy, work.core, work.system, work.columns
    picked, vectors, pivots = work.rows[0], work.vectors, work.vectors[0]
    dlam, dsig, right, ratio, diagonal = vectors[4], vectors[5], vectors[7], vectors[8], vectors[9]
    combine(d, z, lam, columns, work)
    if not inverse(columns, rx, rz, g, work):
        return math.inf, 0.0, 0.0
    mu, units = 0.0, 0.0
    for c in range(mine(0), p, WORKERS):
        mu += y[c, c]
    for e in range(mine(0), rz, WORKERS):
        mu -= 2.0 * dot(y[rx + e], columns[e], rx)
    for k in range(mine(0), m, WORKERS):
        mu += lam[k] * sig[k]
        units += kind[k] != EQUALITY
        picked[k] = k
    # A constant reduction needs as few iterations here as Mehrotra's; short steps ask for more centring.
    target = (0.5 if last < 0.1 else 0.1) * total(mu) / (p + total(units))
    schur(d, z, picked, m, y, g, work)
    for k in range(mine(0), m, WORKERS):
        ratio[k] = 0.0 if kind[k] == EQUALITY else sig[k] / lam[k]
        h[k, k] = diagonal[k] = (1.0 + 1e-14) * (h[k, k] + ratio[k])  # the elimination leaves what is below
    barrier()
    if not factor(h, m, m, pivots):
        return math.inf, 0.0, 0.0
    for corrector in range(2):
        if corrector:
            moved(dy, columns[rz:], rx, rz, g, work.product, core)
            add_matrix(core, target, g, p, p, core)
            margins(d, z, core, dsig, work)
        for k in range(mine(0), m, WORKERS):
            right[k] = b[k]
            if corrector:
                second = 0.0 if kind[k] == EQUALITY else (target + dlam[k] * (sig[k] + ratio[k] * dlam[k])) / lam[k]
                right[k] += second - dsig[k]
            dlam[k] = right[k]
        barrier()
        solve_factored(h, m, pivots, dlam)
        if corrector:  # one step of refinement
            for k in range(mine(0), m, WORKERS):
                right[k] -= diagonal[k] * dlam[k] + dot(h[k], dlam, k)
            for k in range(m):
                for o in range(mine(0), k, WORKERS):
                    right[o] -= h[k, o] * dlam[k]
            barrier()
            solve_factored(h, m, pivots, right)
            for k in range(mine(0), m, WORKERS):
                dlam[k] += right[k]
            barrier()
        combine(d, z, dlam, columns[rz:], work)
        moved(y, columns[rz:], rx, rz, g, work.product, dy)
        add_matrix(dy, -1.0, y, p, p, dy)
    add_matrix(dy, 1.0, core, p, p, dy)
    add_matrix(y, 1.0, dy, p, p, core)
    margins(d, z, core, dsig, work)
    dual = primal = -1.1
    for k in range(mine(0), m, WORKERS):
        dsig[k] = 0.0 if kind[k] == EQUALITY else dsig[k] - b[k] - sig[k]
        if kind[k] != EQUALITY and dlam[k] < 0.0:
            dual = greater(dual, lam[k] / dlam[k])
        if dsig[k] < 0.0:
            primal = greater(primal, sig[k] / dsig[k])
    dual = longest(-highest(dual), False, work, rx, rz)
    primal = longest(-highest(primal), True, work, rx, rz)
    step = smaller(smaller(dual, primal), 1.0)
    if not step > 1e-8:
        return math.inf, 0.0, 0.0
    keep = 0.9 + 0.09 * step
    dual, primal = smaller(keep * dual, 1.0), smaller(keep * primal, 1.0)
    for k in range(mine(0), m, WORKERS):
        lam[k] += dual * dlam[k]
        sig[k] += primal * dsig[k]
    add_matrix(y, primal, dy, p, p, y)
    margins(d, z, y, right, work)
    value = trace = short = 0.0
    for c in range(mine(0), p, WORKERS):
        trace += y[c, c]
    for k in range(mine(0), m, WORKERS):
        value += b[k] * lam[k]
        short = greater(short, abs(right[k] - sig[k] - b[k]))
    trace, value, short = total(trace), total(value), highest(short)
    gap = abs(trace - value) / greater(greater(abs(trace), abs(value)), 1e-12) + short
    return gap, (step if gap < math.inf else 0.0), value
