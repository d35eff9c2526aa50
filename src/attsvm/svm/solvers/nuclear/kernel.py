"""One nuclear attention SVM from start to polish, compiled for the CPU, or for a warp of a GPU.

    dual    max b^T lam     S = I - F(lam) psd,  lam >= 0        F(lam) = [[0, M], [M^T, 0]],  M = sum lam_k d_k z_k^T
    primal  min tr Y        <F_k, Y> - sigma_k = b_k,  Y psd, sigma >= 0            W = 2 Y_12,  <F_k, Y> = d_k^T W z_k
    path    Y S = mu I,  lam_k sigma_k = mu

Interior point (HKM direction, second-order corrector): S depends on lam alone, so the dual is feasible throughout, and
a full step makes the primal feasible. Newton's equations reduce to the Schur matrix tr(F_k Y F_l S^-1) +
diag(sigma / lam) of order m. S^-1 comes from (I - M^T M)^-1, and whether matrices are positive definite from their
elimination, so that no eigenvalues are needed. Equality rows have no sigma.

Polish: at a moderate gap the rank of W and the active rows can usually be read off, and with both known the optimality
conditions are smooth equations that a few Newton steps solve to round-off. A wrong guess does no harm: every pair is
measured, and only a smaller error replaces it.

Arrays are those of one problem, rows in equal blocks of inputs: d ``[m, rx]``, z ``[n, rz]``, b and kind ``[m]``.
Nothing is allocated here.

On a GPU several workers share a problem (`device`), and all of them run this text. Each writes its own entries of
vectors and matrices; functions end with a barrier, after which everybody may read them. What decides where the text
goes on is the same for all workers to the last bit, so that all meet at every barrier.
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
_INSIDE = {**_FAST, "forceinline": True}  # a call would take longer than the work


class Workspace(NamedTuple):
    """What the kernel writes on, two axes each; M and its like are stored by columns."""

    system: Any  # the Schur matrix, or the equations of the polish with their right-hand side
    y: Any
    g: Any  # S^-1, or its part on a complement; a product on the way to others
    dy: Any  # the step of Y, or B
    core: Any  # the corrector's centre, or Y of the polish with W in its corner
    product: Any  # Y F, a trial of Y, or the vectors e
    turned: Any  # d_k of the picked rows, by coordinates
    images: Any  # d_k^T Y_11 and d_k^T G_11 of the picked rows
    parts: Any  # of a row of the Schur matrix, two for each line of workers
    inputs: Any  # what depends on an input, or on a singular vector
    cross: Any
    grams: Any
    columns: Any  # M, its step, a trial
    square: Any  # I - M^T M beside [M^T, I]
    singular: Any  # the vectors [u_i s_i; v_i]
    vectors: Any
    rows: Any  # integers: picked rows, active rows, where the picked rows of each input begin


def shapes(m: int, n: int, rx: int, rz: int) -> Workspace:
    """Shapes of the workspace of one problem."""
    p, r = rx + rz, min(rx, rz)
    size = m + r * (r + 1) // 2
    matrix = (p, p)
    return Workspace(
        (size, size + 1), matrix, matrix, matrix, matrix, matrix, (rx, m), (2 * m, rx), (4, m), (2 * max(n, rz), p),
        (2 * n, m), (2 * n, n), (3 * rz, rx), (rz, rz + p), (rz, p), (14, max(size, p)), (3, m + 1),
    )  # fmt: skip


# The words of this text that mean something else on a GPU. Entry j of a vector belongs to worker j modulo WORKERS, an
# entry of a matrix to the worker of its row modulo LINES and its column modulo COLUMNS; here one worker has them all.
WORKERS = LINES = COLUMNS = 1


@njit(**_PLAIN)
def itself(x):
    """What `mine`, `my_line` and `my_column` say of one worker, and sums and maxima over one."""
    return x


@njit(**_PLAIN)
def barrier():
    """Wait until everybody may read what was written before."""


mine = my_line = my_column = itself  # the first own entry of a vector, row, column of a matrix, from here on
total = highest = itself  # over the workers, the same for all of them; a barrier, too


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
    """x^T y, by one worker."""
    value = 0.0
    for c in range(size):
        value += x[c] * y[c]
    return value


@njit(**_FAST)
def add_matrix(x, f, y, rows, columns, out):
    """out = x + f y."""
    for i in range(my_line(0), rows, LINES):
        for c in range(my_column(0), columns, COLUMNS):
            out[i, c] = x[i, c] + f * y[i, c]
    barrier()


@njit(**_INSIDE)
def gather(x, y, count, begin, end, out):
    """out[j] = sum_k x[k] y[k, j] for begin <= j < end, by one line of workers; no barrier."""
    for j in range(my_column(begin), end, COLUMNS):
        out[j] = 0.0
    for k in range(0, count - 3, 4):  # four terms at a time: a quarter of the passes over `out`
        f, g, u, v = x[k], x[k + 1], x[k + 2], x[k + 3]
        for j in range(my_column(begin), end, COLUMNS):
            out[j] += f * y[k, j] + g * y[k + 1, j] + u * y[k + 2, j] + v * y[k + 3, j]
    for k in range(count - count % 4, count):
        f = x[k]
        for j in range(my_column(begin), end, COLUMNS):
            out[j] += f * y[k, j]


@njit(**_INSIDE)
def multiply(x, y, rows, count, columns, out):
    """out = x y, `count` the number of columns of x."""
    for i in range(my_line(0), rows, LINES):
        gather(x[i], y, count, 0, columns, out[i])
    barrier()


@njit(**_PLAIN)
def combine(d, z, duals, out, work):
    """The columns of M = sum_k lam_k d_k z_k^T."""
    n, (m, rx) = len(z), d.shape
    block = m // n
    for i in range(my_line(0), n, LINES):
        gather(duals[i * block :], d[i * block :], block, 0, rx, work.inputs[i])
    barrier()
    multiply(z.T, work.inputs, z.shape[1], n, rx, out)


@njit(**_PLAIN)
def margins(d, z, pair, out, work):
    """out[k] = d_k^T W z_k, W twice the corner of `pair`."""
    n, (m, rx) = len(z), d.shape
    block, inputs = m // n, work.inputs
    for i in range(my_line(0), n, LINES):
        for c in range(my_column(0), rx, COLUMNS):
            inputs[i, c] = 2.0 * dot(pair[c, rx:], z[i], z.shape[1])
    barrier()
    for i in range(my_line(0), n, LINES):
        for k in range(my_column(i * block), (i + 1) * block, COLUMNS):
            out[k] = dot(d[k], inputs[i], rx)
    barrier()


@njit(**_FAST)
def factor(a, size, width, pivots):
    """Eliminate below the diagonal of a symmetric matrix, which is a = U^T diag(pivots) U on the upper triangle then.

    Columns right of it, up to `width`, go along: an identity becomes diag(1 / pivots) U^-T. What is below the diagonal
    stays as it is. False where a is not positive definite.
    """
    for i in range(size):
        for k in range(0, i - 3, 4):  # four rows at a time: a quarter of the passes over row i
            f, g = a[k, i] * pivots[k], a[k + 1, i] * pivots[k + 1]
            u, v = a[k + 2, i] * pivots[k + 2], a[k + 3, i] * pivots[k + 3]
            for j in range(mine(i), width, WORKERS):
                a[i, j] -= f * a[k, j] + g * a[k + 1, j] + u * a[k + 2, j] + v * a[k + 3, j]
        for k in range(i - i % 4, i):
            f = a[k, i] * pivots[k]
            for j in range(mine(i), width, WORKERS):
                a[i, j] -= f * a[k, j]
        barrier()
        if not a[i, i] > 0.0:
            barrier()  # before somebody writes on a again
            return False
        if mine(i) == i:
            pivots[i] = 1.0 / a[i, i]
        barrier()
    return True


@njit(**_FAST)
def solve_factored(u, size, pivots, x):
    """x <- (U^T diag(pivots) U)^-1 x."""
    for i in range(size):
        f = x[i] * pivots[i]
        for j in range(mine(i + 1), size, WORKERS):
            x[j] -= f * u[i, j]
        barrier()
    for i in range(size - 1, -1, -1):
        f = x[i] if mine(i) == i else 0.0
        for j in range(mine(i + 1), size, WORKERS):
            f -= u[i, j] * x[j]
        f = total(f)
        if mine(i) == i:
            x[i] = f * pivots[i]
    barrier()


@njit(**_FAST)
def solve_any(a, size, x):
    """Solve a x = (column `size` of a) by elimination with partial pivoting; False where a is singular."""
    for k in range(size):
        largest, best = 0.0, size
        for i in range(mine(k), size, WORKERS):
            if abs(a[i, k]) > largest:
                largest, best = abs(a[i, k]), i
        most = highest(largest)
        if not most > 0.0:
            return False
        best = -highest(-best if largest == most else -size)  # the first where it is reached
        if best != k:
            for j in range(mine(k), size + 1, WORKERS):
                a[k, j], a[best, j] = a[best, j], a[k, j]
        barrier()
        inverted = 1.0 / a[k, k]
        for i in range(my_line(k + 1), size, LINES):
            f = a[i, k] * inverted
            if f != 0.0:
                for j in range(my_column(k + 1), size + 1, COLUMNS):
                    a[i, j] -= f * a[k, j]
        barrier()
    for i in range(size - 1, -1, -1):
        f = a[i, size] if mine(i) == i else 0.0
        for j in range(mine(i + 1), size, WORKERS):
            f -= a[i, j] * x[j]
        f = total(f)
        if mine(i) == i:
            x[i] = f / a[i, i]
    barrier()
    return True


@njit(**_FAST)
def jacobi(x, count, length, width, s):
    """Rotate rows [u_i s_i, v_i] in pairs until the first `length` entries are orthogonal; sorts them by s.

    The pairs of a round have no row in common, so that workers share them; all rounds of a sweep meet every pair.
    """
    for _ in range(30):
        turned = 0.0
        for first in range(count):
            for i in range(mine(0), count, WORKERS):
                j = first - i + (count if i > first else 0)
                if j <= i:
                    continue
                aa, bb, ab = dot(x[i], x[i], length), dot(x[j], x[j], length), dot(x[i], x[j], length)
                cos, sin, least, most = 1.0, 0.0, smaller(aa, bb), greater(aa, bb)
                if abs(ab) > 1e-15 * math.sqrt(aa * bb) and ab * ab > 1e-40:
                    tau = (least - most) / (2.0 * ab)
                    sin = (1.0 if tau >= 0.0 else -1.0) / (abs(tau) + math.sqrt(1.0 + tau * tau))
                    cos = 1.0 / math.sqrt(1.0 + sin * sin)
                    sin *= cos
                if bb > aa:  # sorts along the way
                    cos, sin = -sin, -cos
                if sin != 0.0:
                    turned = 1.0
                    for c in range(width):
                        f = x[i, c]
                        x[i, c] = cos * f - sin * x[j, c]
                        x[j, c] = sin * f + cos * x[j, c]
            barrier()
        if highest(turned) == 0.0:
            break
    for i in range(mine(0), count, WORKERS):
        s[i] = math.sqrt(dot(x[i], x[i], length))
    barrier()


@njit(**_FAST)
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


@njit(**_PLAIN)
def within(columns, rx, rz, width, work):
    """Whether ||M|| < 1: eliminates I - M^T M in the first columns of `square`, those up to `width` along with it."""
    square = work.square
    for i in range(my_line(0), rz, LINES):
        for j in range(my_column(i), rz, COLUMNS):
            square[i, j] = (1.0 if i == j else 0.0) - dot(columns[i], columns[j], rx)
    barrier()
    return factor(square, rz, width, work.vectors[1])


@njit(**_FAST)
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


@njit(**_FAST)
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


@njit(**_PLAIN)
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


@njit(**_FAST)
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


@njit(**_PLAIN)
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
            work.product[i, c] = math.sqrt(0.5) * turned[i, c] / (greater(s[i], _TINY) if c < rx else 1.0)
    barrier()


@njit(**_PLAIN)
def compress(y, r, p, work):
    """B = e^T Y e in `dy`."""
    multiply(work.product, y, r, p, p, work.g)
    for i in range(my_line(0), r, LINES):
        for j in range(my_column(0), r, COLUMNS):
            work.dy[i, j] = dot(work.g[i], work.product[j], p)
    barrier()


@njit(**_PLAIN)
def expand(r, p, out, work):
    """out = e B e^T."""
    multiply(work.dy, work.product, r, r, p, work.g)
    multiply(work.product.T, work.g, p, r, p, out)


@njit(**_PLAIN)
def project(d, z, picked, count, r, work):
    """Projections of the picked rows onto the first r vectors: d_k^T e_i,1 in cross[i], z_k^T e_i,2 in cross[n + i]."""
    n, (m, rx), e, cross = len(z), d.shape, work.product, work.cross
    for i in range(my_line(0), r, LINES):
        for a in range(my_column(0), count, COLUMNS):
            cross[i, a] = dot(d[picked[a]], e[i], rx)
            cross[n + i, a] = dot(z[picked[a] // (m // n)], e[i, rx:], z.shape[1])
    barrier()


@njit(**_PLAIN)
def pairing(cross, n, i, j, a):
    """<F_k, e_i e_j^T> times 2 off the diagonal: the part of B_ij in the margin of a projected row, half of it."""
    x = cross[i, a] * cross[n + j, a]
    return 2.0 * x if i == j else 2.0 * (x + cross[j, a] * cross[n + i, a])


@njit(**_PLAIN)
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


@njit(**_PLAIN)
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
        change = highest(change) / greater(highest(most), _TINY) + highest(apart)
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


@njit(**_PLAIN)
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
    error = abs(nuclear - value) / greater(greater(nuclear, abs(value)), _TINY) + violation
    if not error < best:
        return best
    for k in range(mine(0), m, WORKERS):
        duals[k] = clipped[k] / spectral
    for c in range(my_line(0), rx, LINES):
        for e in range(my_column(0), z.shape[1], COLUMNS):
            weights[c, e] = 2.0 * pair[c, rx + e] / theta
    barrier()
    return error


@njit(**_PLAIN)
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
