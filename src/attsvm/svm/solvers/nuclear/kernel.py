"""One nuclear attention SVM from start to polish, compiled for the CPU, or for some threads of a GPU.

Stages of the interior point, each to a hundredth of the gap before, and after each an attempt to polish: at a moderate
gap the rank of W and the active rows can usually be read off, and with both known the optimality conditions are smooth
equations that a few Newton steps solve to round-off. A wrong guess does no harm: every pair is measured, and only a
smaller error replaces it.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
from __future__ import annotations

import math

import numpy as np
from numba import njit

from attsvm.svm.solvers.base import ABSENT, EQUALITY, INEQUALITY
from attsvm.svm.solvers.nuclear.interior import advance, inverse, schur
from attsvm.svm.solvers.nuclear.rows import FACE

from attsvm.svm.solvers.nuclear.workers import (  # isort: skip
    COLUMNS, LINES, PLAIN, TINY, WORKERS, add_matrix, barrier, combine, dot, factor, greater, highest, jacobi,
    margins, mine, multiply, my_column, my_line, shapes, smaller, solve_any, total, workspace,
)  # fmt: skip

_STAGES, _FIRST = 5, 1e-3  # how often a polish is tried, first at this gap, then at a hundredth each time
_ENOUGH = 1e-11  # error at which a problem needs no further stage
_NEWTON, _PROXIMAL = 4, 1e-11  # steps of a polish, weight of its proximal terms


@njit(**PLAIN)
def decompose(d, z, duals, fresh, work):
    """Singular values of M in vectors[11], and [u_i; v_i] / sqrt 2 in the rows e of `product`.

    Unless `fresh`, the v_i that are there are close already.
    """
    rx, rz = d.shape[1], z.shape[1]
    turned, s = work.singular, work.vectors[11]
    if fresh:
        for i in range(my_line(0), rz, LINES):
            for c in range(my_column(0), rz, COLUMNS):
                turned[i, rx + c] = 1.0 if c == i else 0.0
    combine(d, z, duals, work.columns, work)
    multiply(turned[:, rx:], work.columns, rz, rz, rx, turned)
    jacobi(turned, rz, rx, rx + rz, s)
    for i in range(my_line(0), rz, LINES):
        for c in range(my_column(0), rx + rz, COLUMNS):
            work.product[i, c] = math.sqrt(0.5) * turned[i, c] / (greater(s[i], TINY) if c < rx else 1.0)
    barrier()


@njit(**PLAIN)
def compress(y, r, p, work):
    """B = e^T Y e in `dy`."""
    multiply(work.product, y, r, p, p, work.g)
    for i in range(my_line(0), r, LINES):
        for j in range(my_column(0), r, COLUMNS):
            work.dy[i, j] = dot(work.g[i], work.product[j], p)
    barrier()


@njit(**PLAIN)
def expand(r, p, out, work):
    """out = e B e^T."""
    multiply(work.dy, work.product, r, r, p, work.g)
    multiply(work.product.T, work.g, p, r, p, out)


@njit(**PLAIN)
def project(d, z, picked, count, r, work):
    """Projections of the picked rows onto the first r vectors: d_k^T e_i,1 in cross[i], z_k^T e_i,2 in cross[n + i]."""
    n, (m, rx), e, cross = len(z), d.shape, work.product, work.cross
    for i in range(my_line(0), r, LINES):
        for a in range(my_column(0), count, COLUMNS):
            cross[i, a] = dot(d[picked[a]], e[i], rx)
            cross[n + i, a] = dot(z[picked[a] // (m // n)], e[i, rx:], z.shape[1])
    barrier()


@njit(**PLAIN)
def pairing(cross, n, i, j, a):
    """<F_k, e_i e_j^T> times 2 off the diagonal: the part of B_ij in the margin of a projected row, half of it."""
    x = cross[i, a] * cross[n + j, a]
    return 2.0 * x if i == j else 2.0 * (x + cross[j, a] * cross[n + i, a])


@njit(**PLAIN)
def complement(r, rx, rz, work):
    """g = S^-1 on the complement of the r first vectors e_i, whose eigenvalues 1 - s_i are (nearly) 0.

    S^-1 is the identity on the u, and a matrix of order 2 for every pair of u_i and v_i.
    """
    g, s, e, upper, lower = work.g, work.vectors[11], work.product, work.inputs, work.inputs[rz:]
    for i in range(my_line(0), rz, LINES):
        right = 1.0 / (greater(abs(1.0 - s[i]), 1e-12) * (1.0 + s[i]))
        left, cross = right * s[i] * s[i], right * s[i]
        if i < r:
            right = 0.5 / (1.0 + s[i])
            left, cross = right - 1.0, -right
        for c in range(my_column(0), rx + rz, COLUMNS):
            upper[i, c] = 2.0 * e[i, c] * (left if c < rx else cross)
            lower[i, c] = 2.0 * e[i, c] * (cross if c < rx else right)
    barrier()
    multiply(e.T, upper, rx, rz, rx + rz, g)
    multiply(e[:, rx:].T, lower, rz, rz, rx + rz, g[rx:])
    for c in range(mine(0), rx, WORKERS):
        g[c, c] += 1.0
    barrier()


@njit(**PLAIN)
def polish(d, z, b, count, r, duals, work):
    """Newton steps on the rows work.rows[0][:count] and rank r, from the multipliers `duals` and Y = work.core.

    Unknowns are lam_k in units of their own size (nearly infeasible problems have large, cancelling multipliers) and B,
    W = 2 E_1 B E_2^T; values are divided by the optimal value, so that tr B = 1 at the solution. Writes the duals, and
    W / 2 into the corner of `core`; returns ||W||_*, infinite where B is not positive definite, -1 where steps diverge.
    """
    n, rx, rz = len(z), d.shape[1], z.shape[1]
    p, size = rx + rz, count + r * (r + 1) // 2
    system, core, small, picked, s = work.system, work.core, work.dy, work.rows[0], work.vectors[11]
    unit, known = work.vectors[4], work.vectors[5]
    value = largest = 0.0
    for c in range(mine(0), p, WORKERS):
        value += core[c, c]
    for a in range(mine(0), count, WORKERS):
        largest = greater(largest, abs(duals[picked[a]]))
    value, largest = total(value), highest(largest)
    for a in range(mine(0), count, WORKERS):
        unit[a] = greater(greater(abs(duals[picked[a]]), 0.01 * largest), TINY)
    add_matrix(core, 1.0 / value - 1.0, core, p, p, core)
    left = _NEWTON
    while True:
        decompose(d, z, duals, False, work)
        compress(core, r, p, work)
        expand(r, p, core, work)
        if left == 0:
            break
        left -= 1
        complement(r, rx, rz, work)
        schur(d, z, picked, count, core, work.g, work)
        project(d, z, picked, count, r, work)
        for a in range(my_line(0), count, LINES):
            for o in range(my_column(0), count, COLUMNS):
                system[a, o] = 2.0 * unit[a] * unit[o] * system[a, o] + (_PROXIMAL if a == o else 0.0)
        for a in range(mine(0), count, WORKERS):
            system[a, size] = b[picked[a]] / value * unit[a]
        at = count
        for i in range(r):
            for j in range(i, r):
                weight = _PROXIMAL if i == j else 2.0 * _PROXIMAL
                for a in range(mine(0), size, WORKERS):
                    system[at, a] = -weight if a == at else 0.0
                    if a < count:
                        system[a, at] = system[at, a] = unit[a] * pairing(work.cross, n, i, j, a)
                if mine(at) == at:
                    system[at, size] = (1.0 - s[i] if i == j else 0.0) - weight * small[i, j]
                at += 1
        barrier()
        if not solve_any(system, size, known):
            return -1.0
        change = most = apart = 0.0
        for a in range(mine(0), count, WORKERS):
            duals[picked[a]] += known[a] * unit[a]
            change = greater(change, abs(known[a] * unit[a]))
            most = greater(most, abs(duals[picked[a]]))
        at = count
        for i in range(r):
            for j in range(i, r):
                if mine(at) == at:
                    apart = greater(apart, abs(known[at] - small[i, j]))
                    small[i, j] = small[j, i] = known[at]
                at += 1
        change = highest(change) / greater(highest(most), TINY) + highest(apart)
        expand(r, p, core, work)
        if not change <= 10.0:
            return -1.0
        if change < 1e-8:  # quadratic: the next error is 1e-16
            left = 0
    add_matrix(core, value - 1.0, core, p, p, core)
    largest = 0.0
    for i in range(r):
        largest += small[i, i]
    return largest * value if factor(small, r, r, work.vectors[1]) else math.inf


@njit(**PLAIN)
def judge(d, z, b, kind, trial, pair, nuclear, best, weights, duals, slack, work):
    """Measure W = 2 `pair` (its corner) and lam = `trial`: relative gap plus largest violation.

    W is divided by its smallest margin where every row asks for a positive one, lam clipped and divided by ||M||. A
    pair better than `best` is stored. `slack` gets the margins less b. Returns the smaller error.
    """
    m, rx = d.shape
    theta, value, fixed, clipped, violation = -math.inf, 0.0, 0.0, work.vectors[9], 0.0
    margins(d, z, pair, slack, work)
    for k in range(mine(0), m, WORKERS):
        clipped[k] = trial[k] if kind[k] == EQUALITY else greater(trial[k], 0.0)
        value += b[k] * clipped[k]
        if not (kind[k] == ABSENT or (kind[k] == INEQUALITY and b[k] > 0.0)):
            fixed = 1.0
        if b[k] > 0.0:
            theta = greater(theta, -slack[k] / b[k])
    value, theta = total(value), -highest(theta)
    if not (highest(fixed) == 0.0 and 0.0 < theta < math.inf):
        theta = 1.0
    for k in range(mine(0), m, WORKERS):
        x = slack[k] / theta - b[k]
        slack[k] -= b[k]
        if kind[k] != ABSENT:
            x = abs(x) if kind[k] == EQUALITY else greater(-x, 0.0)
            violation = greater(violation, x / (abs(b[k]) if b[k] != 0.0 else 1.0))
    violation = highest(violation)
    decompose(d, z, clipped, False, work)
    spectral = greater(work.vectors[11, 0], 1.0)
    nuclear, value = nuclear / theta, value / spectral
    error = abs(nuclear - value) / greater(greater(nuclear, abs(value)), TINY) + violation
    if not error < best:
        return best
    for k in range(mine(0), m, WORKERS):
        duals[k] = clipped[k] / spectral
    for c in range(my_line(0), rx, LINES):
        for e in range(my_column(0), z.shape[1], COLUMNS):
            weights[c, e] = 2.0 * pair[c, rx + e] / theta
    barrier()
    return error


@njit(**PLAIN)
def proved_unique(d, z, kind, duals, work):
    """Whether W is the only solution.

    Every solution is E B E^T, E the null space of S, and meets rows with lam_k > 0 with equality. So W is unique when
    svec(E^T F_k E) over these rows has full column rank, E from every singular value of M close to 1. The least
    singular value has to pass 3e-6 times a bound of the largest, the root of 2 m: the Gram matrix less the square of
    that must be positive definite. What round-off could do to the Gram matrix is far smaller.
    """
    n, (m, rx), rz = len(z), d.shape, z.shape[1]
    r, at, largest, system, s, picked = 0, 0, 0.0, work.system, work.vectors[11], work.rows[0]
    decompose(d, z, duals, False, work)
    while r < smaller(rx, rz) and s[r] > 1.0 - FACE:
        r += 1
    size = r * (r + 1) // 2
    if size == 0 or size > m:
        return False
    for k in range(mine(0), m, WORKERS):
        largest, picked[k] = greater(largest, abs(duals[k])), k
    largest = highest(largest)
    project(d, z, picked, m, r, work)
    for i in range(r):
        for j in range(i, r):
            for k in range(mine(0), m, WORKERS):
                held = kind[k] == EQUALITY or duals[k] > 1e-9 * largest
                system[at, k] = pairing(work.cross, n, i, j, k) if held else 0.0
            at += 1
    barrier()
    for i in range(my_line(0), size, LINES):
        for j in range(my_column(i), size, COLUMNS):
            system[size + i, j] = dot(system[i], system[j], m) - (1.8e-11 * m if i == j else 0.0)
    barrier()
    return factor(system[size:], size, size, work.vectors[1])


@njit(**PLAIN)
def solve_one(d, z, b, kind, limit, patience, weights, duals, report, work):
    """Solve one normalised problem: the best pair goes into `weights` and `duals`.

    report gets the error, the iterations, whether W is proved unique, and whether a ray should be looked for: the dual
    value passed `limit`, or a stage took more than `patience` iterations.
    """
    m, rx = d.shape
    rz = z.shape[1]
    p, y, core, picked, active, vectors = rx + rz, work.y, work.core, work.rows[0], work.rows[1], work.vectors
    trial, slack, s, lam, sig = vectors[6], vectors[10], vectors[11], vectors[12], vectors[13]
    # lam a multiple of one with ||M||_F <= 0.9, Y and sigma on the central path of mu = 1
    for k in range(mine(0), m, WORKERS):
        lam[k] = 0.0 if kind[k] == EQUALITY else 1.0
    barrier()
    combine(d, z, lam, work.columns, work)
    size = 0.0
    for e in range(mine(0), rz, WORKERS):
        size += dot(work.columns[e], work.columns[e], rx)
    size = 0.9 / math.sqrt(1.0 + total(size))
    for k in range(mine(0), m, WORKERS):
        lam[k] *= size
        sig[k] = 0.0 if kind[k] == EQUALITY else 1.0 / size
    add_matrix(work.columns, size - 1.0, work.columns, rz, rx, work.columns)
    inverse(work.columns, rx, rz, y, work)
    best, spent, step, gap, value, goal, slow = math.inf, 0, 1.0, math.inf, 0.0, _FIRST, False
    for stage in range(_STAGES):
        first = spent
        while gap > goal and step > 0.0 and not slow:
            now, step, value = advance(d, z, b, kind, lam, sig, step, work)
            if step > 0.0:
                gap = now
                spent += 1
            slow = value > limit or spent - first > patience
        if slow:
            break
        goal *= 0.01
        # The rank: singular values of W that beat 1 - those of M; active rows: lam_k that beat sigma_k.
        decompose(d, z, lam, True, work)
        compress(y, smaller(rx, rz), p, work)
        r, trace, largest = 0, 0.0, 0.0
        for c in range(p):
            trace += y[c, c]
        for i in range(smaller(rx, rz)):
            r += work.dy[i, i] > (1.0 - s[i]) * trace
        for k in range(mine(0), m, WORKERS):
            largest = greater(largest, abs(lam[k]))
        largest = highest(largest)
        for k in range(mine(0), m, WORKERS):
            active[k] = kind[k] == EQUALITY or lam[k] > sig[k] * largest
        barrier()
        for _ in range(2 if stage else 1):  # as identified, and as repaired
            count = 0
            for k in range(m):
                if mine(k) == k:
                    trial[k] = lam[k] if active[k] else 0.0
                    if active[k]:
                        picked[count] = k
                count += active[k]
            barrier()
            if r == 0 or count == 0:
                break
            add_matrix(y, 0.0, y, p, p, core)
            nuclear = polish(d, z, b, count, r, trial, work)
            if nuclear < 0.0:
                break
            best = judge(d, z, b, kind, trial, core, nuclear, best, weights, duals, slack, work)
            if best <= _ENOUGH:
                break
            # Rows that turned negative leave, violated rows enter; the rank follows B and M.
            largest = 0.0
            for k in range(mine(0), m, WORKERS):
                largest = greater(largest, abs(trial[k]))
            largest = highest(largest)
            for k in range(mine(0), m, WORKERS):
                if kind[k] == INEQUALITY:
                    active[k] = slack[k] < -1e-12 or (active[k] and trial[k] >= -1e-12 * largest)
            barrier()
            if nuclear == math.inf:
                r -= 1
            for i in range(r, smaller(rx, rz) if nuclear < math.inf else 0):
                r += s[i] > 1.0 + 1e-12
        if best > _ENOUGH and (stage or step == 0.0):
            best = judge(d, z, b, kind, lam, y, trace, best, weights, duals, slack, work)
        if best <= _ENOUGH or step == 0.0:
            break
    unique = not slow and proved_unique(d, z, kind, duals, work)
    if mine(0) == 0:
        report[0], report[1], report[2], report[3] = best, spent, unique, slow


@njit(cache=True, nogil=True)
def solve_many(d, z, b, kind, limit, patience, weights, duals, report, work):
    """`solve_one` for problem after problem."""
    for i in range(len(d)):
        solve_one(d[i], z[i], b[i], kind[i], limit, patience, weights[i], duals[i], report[i], work)


def solve_none() -> None:
    """A batch without problems, of the types that all others have: compiles `solve_many`, and stores it on disk."""
    d, z, b, kind = np.empty((0, 4, 4)), np.empty((0, 2, 2)), np.empty((0, 4)), np.empty((0, 4), dtype=np.int8)
    weights, duals, report = np.empty((0, 4, 2)), np.empty((0, 4)), np.empty((0, 4))
    solve_many(d, z, b, kind, 1.0, 1, weights, duals, report, workspace(shapes(4, 2, 4, 2)))
