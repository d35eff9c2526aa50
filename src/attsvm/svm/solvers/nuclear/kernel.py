"""One nuclear attention SVM from start to polish, compiled for the CPU, or for a thread of a GPU.

    dual    max b^T lam     S = I - F(lam) psd,  lam >= 0        F(lam) = [[0, M], [M^T, 0]],  M = sum lam_k d_k z_k^T
    primal  min tr Y        <F_k, Y> - sigma_k = b_k,  Y psd, sigma >= 0            W = 2 Y_12,  <F_k, Y> = d_k^T W z_k
    path    Y S = mu I,  lam_k sigma_k = mu

Interior point (HKM direction, second-order corrector): S depends on lam alone, so the dual is feasible throughout, and
a full step makes the primal feasible. Newton's equations reduce to the Schur matrix tr(F_k Y F_l S^-1) +
diag(sigma / lam) of order m. S^-1 comes from (I - M^T M)^-1, and whether matrices are positive definite from their
Cholesky factors, so that no eigenvalues are needed. Equality rows have no sigma.

Polish: at a moderate gap the rank of W and the active rows can usually be read off, and with both known the optimality
conditions are smooth equations that a few Newton steps solve to round-off. A wrong guess does no harm: every pair is
measured, and only a smaller error replaces it.

Arrays are those of one problem, rows in equal blocks of inputs: d ``[m, rx]``, z ``[n, rz]``, b and kind ``[m]``.
Nothing is allocated here: the threads of a GPU bring views of a common workspace.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
from __future__ import annotations

import math
from typing import Any, NamedTuple

from numba import njit

from attsvm.svm.solvers.base import ABSENT, EQUALITY, INEQUALITY
from attsvm.svm.solvers.nuclear.rows import FACE

_STAGES, _FIRST = 5, 1e-3  # how often a polish is tried, first at this gap, then at a hundredth each time
_ENOUGH = 1e-11  # error at which a problem needs no further stage
_NEWTON, _PROXIMAL = 4, 1e-11  # steps of a polish, weight of its proximal terms
_TINY = 1e-300
_PLAIN = {"nogil": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_FAST = {**_PLAIN, "fastmath": {"reassoc", "contract", "nsz"}}


class Workspace(NamedTuple):
    """What the kernel writes on, two axes each; M and its like are stored by columns."""

    system: Any  # the Schur matrix, or the equations of the polish
    y: Any
    g: Any  # S^-1, or its part on a complement
    dy: Any  # the step of Y, or B
    core: Any  # the corrector's centre, or Y of the polish with W in its corner
    product: Any  # Y F, a trial of Y, or the vectors e
    turned: Any
    cross: Any
    grams: Any
    columns: Any  # M, its step, a trial, and the vectors u_i s_i
    square: Any  # a factor of I - M^T M, its inverse, and the vectors v_i
    vectors: Any
    rows: Any  # integers: picked rows, active rows


def shapes(m: int, n: int, rx: int, rz: int) -> Workspace:
    """Shapes of the workspace of one problem."""
    p, r = rx + rz, min(rx, rz)
    size = m + r * (r + 1) // 2
    matrix = (p, p)
    return Workspace(
        (size, size), matrix, matrix, matrix, matrix, matrix, (rx, m), (2 * n, m), (2 * n, max(n, rx)), (4 * rz, rx),
        (3 * rz, rz), (14, max(size, p)), (2, m),
    )  # fmt: skip


@njit(**_PLAIN)
def greater(x, y):
    """Python's max, which does not compile for every GPU target of Numba."""
    return x if x > y else y


@njit(**_PLAIN)
def smaller(x, y):
    """Python's min."""
    return x if x < y else y


@njit(**_FAST)
def dot(x, y, size):
    """x^T y."""
    total = 0.0
    for c in range(size):
        total += x[c] * y[c]
    return total


@njit(**_FAST)
def add(f, x, size, out):
    """out += f x."""
    for c in range(size):
        out[c] += f * x[c]


@njit(**_FAST)
def add_matrix(x, f, y, rows, columns, out):
    """out = x + f y."""
    for i in range(rows):
        for c in range(columns):
            out[i, c] = x[i, c] + f * y[i, c]


@njit(**_FAST)
def combine(d, z, duals, out):
    """The columns of M = sum_k lam_k d_k z_k^T."""
    block = len(d) // len(z)
    for e in range(z.shape[1]):
        for c in range(d.shape[1]):
            out[e, c] = 0.0
    for k in range(len(d)):
        if duals[k] != 0.0:
            for e in range(z.shape[1]):
                f = duals[k] * z[k // block, e]
                for c in range(d.shape[1]):
                    out[e, c] += f * d[k, c]


@njit(**_PLAIN)
def margins(d, z, pair, times, out):
    """out[k] = times d_k^T W z_k, W the corner of `pair`."""
    m, rx = d.shape
    block = m // len(z)
    for k in range(m):
        out[k] = 0.0
    for i in range(len(z)):
        for c in range(rx):
            x = times * dot(pair[c, rx:], z[i], z.shape[1])
            for k in range(i * block, (i + 1) * block):
                out[k] += x * d[k, c]


@njit(**_FAST)
def factor(a, size):
    """a = U^T U on the upper triangle, in place; False where a is not positive definite."""
    for i in range(size):
        for k in range(0, i - 1, 2):  # two rows at a time: half as many passes over row i
            f, x = a[k, i], a[k + 1, i]
            for j in range(i, size):
                a[i, j] -= f * a[k, j] + x * a[k + 1, j]
        if i % 2:
            f = a[i - 1, i]
            for j in range(i, size):
                a[i, j] -= f * a[i - 1, j]
        if not a[i, i] > 0.0:
            return False
        f = 1.0 / math.sqrt(a[i, i])
        for j in range(i, size):
            a[i, j] *= f
    return True


@njit(**_FAST)
def solve_factored(u, size, x):
    """x <- (U^T U)^-1 x."""
    for i in range(size):
        f = x[i] / u[i, i]
        x[i] = f
        for j in range(i + 1, size):
            x[j] -= f * u[i, j]
    for i in range(size - 1, -1, -1):
        f = x[i]
        for j in range(i + 1, size):
            f -= u[i, j] * x[j]
        x[i] = f / u[i, i]


@njit(**_FAST)
def solve_any(a, size, x):
    """x <- a^-1 x by elimination with partial pivoting, a overwritten; False where a is singular."""
    for k in range(size):
        best = k
        for i in range(k + 1, size):
            if abs(a[i, k]) > abs(a[best, k]):
                best = i
        if not abs(a[best, k]) > 0.0:
            return False
        if best != k:
            for j in range(k, size):
                a[k, j], a[best, j] = a[best, j], a[k, j]
            x[k], x[best] = x[best], x[k]
        for i in range(k + 1, size):
            f = a[i, k] / a[k, k]
            if f != 0.0:
                for j in range(k + 1, size):
                    a[i, j] -= f * a[k, j]
                x[i] -= f * x[k]
    for i in range(size - 1, -1, -1):
        f = x[i]
        for j in range(i + 1, size):
            f -= a[i, j] * x[j]
        x[i] = f / a[i, i]
    return True


@njit(**_FAST)
def rotate(x, y, cos, sin, size):
    """Turn x and y into each other."""
    for c in range(size):
        f = x[c]
        x[c] = cos * f - sin * y[c]
        y[c] = sin * f + cos * y[c]


@njit(**_PLAIN)
def jacobi(x, v, count, length, width, s):
    """Make `count` rows of x orthogonal by rotations and sort them, s their lengths; the rows of v turn along.

    With v = 1 at the start x^T = U diag(s) V^T, the rows of x u_i s_i and those of v v_i.
    """
    for _ in range(30):
        turned = False
        for i in range(count - 1):
            for j in range(i + 1, count):
                aa, bb, ab = dot(x[i], x[i], length), dot(x[j], x[j], length), dot(x[i], x[j], length)
                if bb > aa:  # sorts along the way
                    rotate(x[i], x[j], 0.0, -1.0, length)
                    rotate(v[i], v[j], 0.0, -1.0, width)
                    aa, bb, ab = bb, aa, -ab
                if abs(ab) > 1e-15 * math.sqrt(aa * bb) and ab * ab > 1e-40:
                    turned = True
                    tau = (bb - aa) / (2.0 * ab)
                    t = 1.0 / (abs(tau) + math.sqrt(1.0 + tau * tau))
                    t = t if tau >= 0.0 else -t
                    cos = 1.0 / math.sqrt(1.0 + t * t)
                    rotate(x[i], x[j], cos, cos * t, length)
                    rotate(v[i], v[j], cos, cos * t, width)
        if not turned:
            break
    for i in range(count):
        s[i] = math.sqrt(dot(x[i], x[i], length))


@njit(**_FAST)
def schur(d, z, picked, count, y, g, work):
    """work.system[a, o] = tr(F_k Y F_l G) of the rows k, l = picked[a], picked[o]; Y and G symmetric.

    F_k has d_k z_k^T in its corner. What depends on a row through its query alone is computed once for each input.
    """
    m, rx = d.shape
    n, rz = z.shape
    block = m // n
    h, turned, cross, grams, vectors = work.system, work.turned, work.cross, work.grams, work.vectors
    first, second, dy, dg = vectors[0], vectors[1], vectors[2], vectors[3]
    for a in range(count):
        for c in range(rx):
            turned[c, a] = d[picked[a], c]
    for i in range(n):
        for o in range(count):
            cross[i, o] = cross[n + i, o] = 0.0
        for c in range(rx):  # cross: d_k^T Y_12 z_i, grams: z_i^T Y_22 z_j, and the same with G
            sy, sg = dot(y[c, rx:], z[i], rz), dot(g[c, rx:], z[i], rz)
            for o in range(count):
                cross[i, o] += sy * turned[c, o]
                cross[n + i, o] += sg * turned[c, o]
        for j in range(n):
            grams[i, j] = grams[n + i, j] = 0.0
        for e in range(rz):
            sy, sg = dot(y[rx + e, rx:], z[i], rz), dot(g[rx + e, rx:], z[i], rz)
            for j in range(n):
                grams[i, j] += sy * z[j, e]
                grams[n + i, j] += sg * z[j, e]
    for a in range(count):
        k = picked[a]
        i = k // block
        for c in range(rx):
            dy[c] = dg[c] = 0.0
        for e in range(rx):
            x = d[k, e]
            for c in range(rx):
                dy[c] += x * y[e, c]
                dg[c] += x * g[e, c]
        for o in range(a, count):
            first[o], second[o] = dy[0] * turned[0, o], dg[0] * turned[0, o]
        for c in range(1, rx - 1, 2):  # two at a time: half as many passes
            sy, sg, ty, tg = dy[c], dg[c], dy[c + 1], dg[c + 1]
            for o in range(a, count):
                first[o] += sy * turned[c, o] + ty * turned[c + 1, o]
                second[o] += sg * turned[c, o] + tg * turned[c + 1, o]
        if rx % 2 == 0:
            for o in range(a, count):
                first[o] += dy[rx - 1] * turned[rx - 1, o]
                second[o] += dg[rx - 1] * turned[rx - 1, o]
        begin = a
        while begin < count:  # the rows of one input after the other
            j = picked[begin] // block
            end = begin
            while end < count and picked[end] < (j + 1) * block:
                end += 1
            wg, wy, ay, ag = grams[n + i, j], grams[i, j], cross[j, a], cross[n + j, a]
            for o in range(begin, end):
                h[a, o] = first[o] * wg + second[o] * wy + ay * cross[n + i, o] + ag * cross[i, o]
            begin = end
    for a in range(count):
        for o in range(a):
            h[a, o] = h[o, a]


@njit(**_PLAIN)
def within(columns, square, rx, rz):
    """Whether ||M|| < 1; the first rows of `square` get the factor of I - M^T M."""
    for i in range(rz):
        for j in range(i, rz):
            square[i, j] = (1.0 if i == j else 0.0) - dot(columns[i], columns[j], rx)
    return factor(square, rz)


@njit(**_PLAIN)
def inverse(columns, square, rx, rz, g):
    """g = S^-1 = [[I + M P M^T, M P], [P M^T, P]], P = (I - M^T M)^-1; False where S is not positive definite."""
    if not within(columns, square, rx, rz):
        return False
    for i in range(rx + rz):
        for j in range(rx):
            g[i, j] = 1.0 if i == j else 0.0
    for i in range(rz):
        inside = square[rz + i]
        for e in range(rz):
            inside[e] = 1.0 if e == i else 0.0
        solve_factored(square, rz, inside)
        for e in range(rz):
            g[rx + i, rx + e] = inside[e]
            add(inside[e], columns[e], rx, g[rx + i])
    for c in range(rx):
        for e in range(rz):
            g[c, rx + e] = g[rx + e, c]
            add(g[c, rx + e], columns[e], rx, g[c])
    return True


@njit(**_FAST)
def moved(y, columns, rx, rz, g, product, out):
    """out = the symmetric part of Y F G, F = [[0, D], [D^T, 0]], D by its columns."""
    p = rx + rz
    for i in range(p):
        for c in range(p):
            product[i, c] = out[i, c] = 0.0
        for e in range(rz):
            f, x = y[i, rx + e], 0.0
            for c in range(rx):
                product[i, c] += f * columns[e, c]
                x += y[i, c] * columns[e, c]
            product[i, rx + e] = x
        for c in range(p):
            f = product[i, c]
            for j in range(p):
                out[i, j] += f * g[c, j]
    for i in range(p):
        for j in range(i):
            out[i, j] = out[j, i] = 0.5 * (out[i, j] + out[j, i])


@njit(**_PLAIN)
def longest(step, of_y, work, rx, rz):
    """The largest step up to this one, to a tenth of it, with Y + step dY psd, or with ||M + step D|| < 1."""
    low, tried, columns = 0.0, step, work.columns
    while step - low > 0.08 * step and step > 1e-9:
        if of_y:
            add_matrix(work.y, tried, work.dy, rx + rz, rx + rz, work.product)
            good = factor(work.product, rx + rz)
        else:
            add_matrix(columns, tried, columns[rz:], rz, rx, columns[2 * rz :])
            good = within(columns[2 * rz :], work.square, rx, rz)
        if good:
            low = tried
        else:
            step = tried
        tried = 0.5 * (low + step) if low > 0.0 else 0.75 * step
    return low


@njit(**_FAST)
def advance(d, z, b, kind, lam, sig, last, work):
    """One predictor-corrector step, in place; returns the relative gap plus the largest miss, the step, b^T lam.

    A step of 0 means that nothing was changed: float64 makes no further progress. `last` is the step before.
    """
    m, rx = d.shape
    rz = z.shape[1]
    p = rx + rz
    y, g, dy, core, h, columns = work.y, work.g, work.dy, work.core, work.system, work.columns
    picked, vectors = work.rows[0], work.vectors
    dlam, dsig, scale, right, ratio, diagonal = vectors[4], vectors[5], vectors[6], vectors[7], vectors[8], vectors[9]
    combine(d, z, lam, columns)
    if not inverse(columns, work.square, rx, rz, g):
        return math.inf, 0.0, 0.0
    mu, units = 0.0, p
    for c in range(p):
        mu += y[c, c]
    for e in range(rz):
        mu -= 2.0 * dot(y[rx + e], columns[e], rx)
    for k in range(m):
        mu += lam[k] * sig[k]
        units += kind[k] != EQUALITY
        picked[k] = k
    # A constant reduction needs as few iterations here as Mehrotra's; short steps ask for more centring.
    target = (0.5 if last < 0.1 else 0.1) * mu / units
    schur(d, z, picked, m, y, g, work)
    for k in range(m):
        ratio[k] = 0.0 if kind[k] == EQUALITY else sig[k] / lam[k]
        h[k, k] += ratio[k]
        scale[k] = 1.0 / math.sqrt(greater(h[k, k], _TINY))
    for k in range(m):
        for o in range(m):
            h[k, o] *= scale[k] * scale[o]
        h[k, k] += 1e-14
        diagonal[k] = h[k, k]  # the factor overwrites it, and leaves what is below
    if not factor(h, m):
        return math.inf, 0.0, 0.0
    for corrector in range(2):
        if corrector:
            moved(dy, columns[rz:], rx, rz, g, work.product, core)
            add_matrix(core, target, g, p, p, core)
            margins(d, z, core, 2.0, dsig)
        for k in range(m):
            right[k] = b[k] * scale[k]
            if corrector:
                second = 0.0 if kind[k] == EQUALITY else (target + dlam[k] * (sig[k] + ratio[k] * dlam[k])) / lam[k]
                right[k] += (second - dsig[k]) * scale[k]
            dlam[k] = right[k]
        solve_factored(h, m, dlam)
        if corrector:  # one step of refinement
            for k in range(m):
                right[k] -= diagonal[k] * dlam[k] + dot(h[k], dlam, k)
                add(-dlam[k], h[k], k, right)
            solve_factored(h, m, right)
            add(1.0, right, m, dlam)
        for k in range(m):
            dlam[k] *= scale[k]
        combine(d, z, dlam, columns[rz:])
        moved(y, columns[rz:], rx, rz, g, work.product, dy)
        add_matrix(dy, -1.0, y, p, p, dy)
    add_matrix(dy, 1.0, core, p, p, dy)
    add_matrix(y, 1.0, dy, p, p, core)
    margins(d, z, core, 2.0, dsig)
    dual = primal = 1.1
    for k in range(m):
        dsig[k] = 0.0 if kind[k] == EQUALITY else dsig[k] - b[k] - sig[k]
        if kind[k] != EQUALITY and dlam[k] < 0.0:
            dual = smaller(dual, -lam[k] / dlam[k])
        if dsig[k] < 0.0:
            primal = smaller(primal, -sig[k] / dsig[k])
    dual, primal = longest(dual, False, work, rx, rz), longest(primal, True, work, rx, rz)
    step = smaller(smaller(dual, primal), 1.0)
    if not step > 1e-8:
        return math.inf, 0.0, 0.0
    keep = 0.9 + 0.09 * step
    dual, primal = smaller(keep * dual, 1.0), smaller(keep * primal, 1.0)
    add(dual, dlam, m, lam)
    add(primal, dsig, m, sig)
    add_matrix(y, primal, dy, p, p, y)
    value, trace, short = dot(b, lam, m), 0.0, 0.0
    for c in range(p):
        trace += y[c, c]
    margins(d, z, y, 2.0, right)
    for k in range(m):
        short = greater(short, abs(right[k] - sig[k] - b[k]))
    gap = abs(trace - value) / greater(greater(abs(trace), abs(value)), 1e-12) + short
    return gap, (step if gap < math.inf else 0.0), value


@njit(**_PLAIN)
def decompose(d, z, duals, fresh, work):
    """Singular values of M in vectors[11], and [u_i; v_i] / sqrt 2 in the rows e of `product`.

    Unless `fresh`, the v_i that are there are close already.
    """
    rx, rz = d.shape[1], z.shape[1]
    columns, vectors, e, s = work.columns[3 * rz :], work.square[2 * rz :], work.product, work.vectors[11]
    combine(d, z, duals, work.columns)
    for i in range(rz):
        for c in range(rx):
            columns[i, c] = 0.0
        for c in range(rz):
            if fresh:
                vectors[i, c] = 1.0 if c == i else 0.0
            add(vectors[i, c], work.columns[c], rx, columns[i])
    jacobi(columns, vectors, rz, rx, rz, s)
    for i in range(rz):
        for c in range(rx):
            e[i, c] = math.sqrt(0.5) * columns[i, c] / greater(s[i], _TINY)
        for c in range(rz):
            e[i, rx + c] = math.sqrt(0.5) * vectors[i, c]


@njit(**_PLAIN)
def compress(y, r, p, work):
    """B = e^T Y e in `dy`."""
    line = work.vectors[0]
    for i in range(r):
        for c in range(p):
            line[c] = dot(y[c], work.product[i], p)
        for j in range(r):
            work.dy[i, j] = dot(line, work.product[j], p)


@njit(**_PLAIN)
def expand(r, p, out, work):
    """out = e B e^T."""
    for c in range(p):
        for o in range(p):
            out[c, o] = 0.0
        for i in range(r):
            for j in range(r):
                add(work.dy[i, j] * work.product[i, c], work.product[j], p, out[c])


@njit(**_PLAIN)
def pairing(row, query, i, j, rx, rz, e):
    """<F_k, e_i e_j^T> times 2 off the diagonal: the part of B_ij in the margin of a row, half of it."""
    x = dot(row, e[i], rx) * dot(query, e[j, rx:], rz)
    return 2.0 * x if i == j else 2.0 * (x + dot(row, e[j], rx) * dot(query, e[i, rx:], rz))


@njit(**_PLAIN)
def complement(r, rx, rz, work):
    """g = S^-1 on the complement of the r first vectors e_i, whose eigenvalues 1 - s_i are (nearly) 0."""
    g, s, columns, vectors = work.g, work.vectors[11], work.columns[3 * rz :], work.square[2 * rz :]
    for c in range(rx + rz):
        for o in range(rx + rz):
            g[c, o] = 1.0 if c == o and c < rx else 0.0
    for i in range(rz):
        right = 1.0 / (greater(abs(1.0 - s[i]), 1e-12) * (1.0 + s[i]))
        left = cross = right
        if i < r:
            right = 0.5 / (1.0 + s[i])
            left, cross = (right - 1.0) / (s[i] * s[i]), -right / s[i]
        for c in range(rx):
            add(left * columns[i, c], columns[i], rx, g[c])
            add(cross * columns[i, c], vectors[i], rz, g[c, rx:])
        for c in range(rz):
            add(right * vectors[i, c], vectors[i], rz, g[rx + c, rx:])
            add(cross * vectors[i, c], columns[i], rx, g[rx + c])


@njit(**_PLAIN)
def polish(d, z, b, count, r, duals, work):
    """Newton steps on the rows work.rows[0][:count] and rank r, from the multipliers `duals` and Y = work.core.

    Unknowns are lam_k in units of their own size (nearly infeasible problems have large, cancelling multipliers) and B,
    W = 2 E_1 B E_2^T; values are divided by the optimal value, so that tr B = 1 at the solution. Writes the duals, and
    W / 2 into the corner of `core`; returns ||W||_*, infinite where B is not positive definite, -1 where steps diverge.
    """
    m, rx = d.shape
    rz = z.shape[1]
    p, block, size = rx + rz, m // len(z), count + r * (r + 1) // 2
    system, core, small, picked, s = work.system, work.core, work.dy, work.rows[0], work.vectors[11]
    unit, known = work.vectors[4], work.vectors[5]
    value = largest = 0.0
    for c in range(p):
        value += core[c, c]
    for a in range(count):
        largest = greater(largest, abs(duals[picked[a]]))
    for a in range(count):
        unit[a] = greater(greater(abs(duals[picked[a]]), 0.01 * largest), _TINY)
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
        for a in range(count):
            for o in range(count):
                system[a, o] *= 2.0 * unit[a] * unit[o]
            system[a, a] += _PROXIMAL
            known[a] = b[picked[a]] / value * unit[a]
        at = count
        for i in range(r):
            for j in range(i, r):
                weight = _PROXIMAL if i == j else 2.0 * _PROXIMAL
                for a in range(size):
                    system[at, a] = 0.0
                    if a < count:
                        k = picked[a]
                        x = unit[a] * pairing(d[k], z[k // block], i, j, rx, rz, work.product)
                        system[a, at] = system[at, a] = x
                system[at, at] = -weight
                known[at] = (1.0 - s[i] if i == j else 0.0) - weight * small[i, j]
                at += 1
        if not solve_any(system, size, known):
            return -1.0
        change = total = apart = 0.0
        for a in range(count):
            duals[picked[a]] += known[a] * unit[a]
            change = greater(change, abs(known[a] * unit[a]))
            total = greater(total, abs(duals[picked[a]]))
        at = count
        for i in range(r):
            for j in range(i, r):
                apart = greater(apart, abs(known[at] - small[i, j]))
                small[i, j] = small[j, i] = known[at]
                at += 1
        expand(r, p, core, work)
        change = change / greater(total, _TINY) + apart
        if not change <= 10.0:
            return -1.0
        if change < 1e-8:  # quadratic: the next error is 1e-16
            left = 0
    add_matrix(core, value - 1.0, core, p, p, core)
    for i in range(r):
        largest = small[i, i] if i == 0 else largest + small[i, i]
    return largest * value if factor(small, r) else math.inf


@njit(**_PLAIN)
def judge(d, z, b, kind, trial, pair, nuclear, best, weights, duals, slack, work):
    """Measure W = 2 `pair` (its corner) and lam = `trial`: relative gap plus largest violation.

    W is divided by its smallest margin where every row asks for a positive one, lam clipped and divided by ||M||. A
    pair better than `best` is stored. `slack` gets the margins less b. Returns the smaller error.
    """
    m, rx = d.shape
    theta, total, scalable, clipped, violation = math.inf, 0.0, True, work.vectors[9], 0.0
    margins(d, z, pair, 2.0, slack)
    for k in range(m):
        clipped[k] = trial[k] if kind[k] == EQUALITY else greater(trial[k], 0.0)
        total += b[k] * clipped[k]
        scalable = scalable and (kind[k] == ABSENT or (kind[k] == INEQUALITY and b[k] > 0.0))
        if b[k] > 0.0:
            theta = smaller(theta, slack[k] / b[k])
    if not (scalable and 0.0 < theta < math.inf):
        theta = 1.0
    for k in range(m):
        x = slack[k] / theta - b[k]
        slack[k] -= b[k]
        if kind[k] != ABSENT:
            x = abs(x) if kind[k] == EQUALITY else greater(-x, 0.0)
            violation = greater(violation, x / (abs(b[k]) if b[k] != 0.0 else 1.0))
    decompose(d, z, clipped, False, work)
    spectral = greater(work.vectors[11, 0], 1.0)
    nuclear, total = nuclear / theta, total / spectral
    error = abs(nuclear - total) / greater(greater(nuclear, abs(total)), _TINY) + violation
    if not error < best:
        return best
    for k in range(m):
        duals[k] = clipped[k] / spectral
    for c in range(rx):
        for e in range(z.shape[1]):
            weights[c, e] = 2.0 * pair[c, rx + e] / theta
    return error


@njit(**_PLAIN)
def proved_unique(d, z, kind, duals, work):
    """Whether W is the only solution.

    Every solution is E B E^T, E the null space of S, and meets rows with lam_k > 0 with equality. So W is unique when
    svec(E^T F_k E) over these rows has full column rank, E from every singular value of M close to 1.
    """
    m, rx = d.shape
    rz = z.shape[1]
    r, at, largest, system, s, sizes = 0, 0, 0.0, work.system, work.vectors[11], work.vectors[0]
    decompose(d, z, duals, False, work)
    while r < smaller(rx, rz) and s[r] > 1.0 - FACE:
        r += 1
    for k in range(m):
        largest = greater(largest, abs(duals[k]))
    for i in range(r):
        for j in range(i, r):
            for k in range(m):
                held = kind[k] == EQUALITY or duals[k] > 1e-9 * largest
                system[at, k] = pairing(d[k], z[k // (m // len(z))], i, j, rx, rz, work.product) if held else 0.0
            at += 1
    jacobi(system, system, at, m, 0, sizes)
    return at > 0 and sizes[at - 1] > 3e-6 * sizes[0]


@njit(**_PLAIN)
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
    for k in range(m):
        lam[k] = 0.0 if kind[k] == EQUALITY else 1.0
    combine(d, z, lam, work.columns)
    size = 1.0
    for e in range(rz):
        size += dot(work.columns[e], work.columns[e], rx)
    size = 0.9 / math.sqrt(size)
    for k in range(m):
        lam[k] *= size
        sig[k] = 0.0 if kind[k] == EQUALITY else 1.0 / size
    add_matrix(work.columns, size - 1.0, work.columns, rz, rx, work.columns)
    inverse(work.columns, work.square, rx, rz, y)
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
        for k in range(m):
            largest = greater(largest, abs(lam[k]))
        for k in range(m):
            active[k] = kind[k] == EQUALITY or lam[k] > sig[k] * largest
        for _ in range(2 if stage else 1):  # as identified, and as repaired
            count = 0
            for k in range(m):
                trial[k] = 0.0
                if active[k]:
                    picked[count] = k
                    trial[k] = lam[k]
                    count += 1
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
            for k in range(m):
                largest = greater(largest, abs(trial[k]))
            for k in range(m):
                if kind[k] == INEQUALITY:
                    active[k] = slack[k] < -1e-12 or (active[k] and trial[k] >= -1e-12 * largest)
            if nuclear == math.inf:
                r -= 1
            for i in range(r, smaller(rx, rz) if nuclear < math.inf else 0):
                r += s[i] > 1.0 + 1e-12
        if best > _ENOUGH and (stage or step == 0.0):
            best = judge(d, z, b, kind, lam, y, trace, best, weights, duals, slack, work)
        if best <= _ENOUGH or step == 0.0:
            break
    report[0], report[1], report[2], report[3] = best, spent, not slow and proved_unique(d, z, kind, duals, work), slow


@njit(cache=True, nogil=True)
def solve_many(d, z, b, kind, limit, patience, weights, duals, report, work):
    """`solve_one` for problem after problem."""
    for i in range(len(d)):
        solve_one(d[i], z[i], b[i], kind[i], limit, patience, weights[i], duals[i], report[i], work)
