"""What the nuclear kernel is made of: workers that share a problem, where they write, and small matrices.

On the CPU one worker has a problem for itself. On a GPU several share it (`device`), and all of them run this text.
Each writes its own entries of vectors and matrices; functions end with a barrier, after which everybody may read them.
What decides where the text goes on is the same for all workers to the last bit, so that all meet at every barrier.

Arrays are those of one problem, rows in equal blocks of inputs: d ``[m, rx]``, z ``[n, rz]``, b and kind ``[m]``.
Nothing is allocated here.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

TINY = 1e-300
PLAIN = {"nogil": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
FAST = {**PLAIN, "fastmath": {"reassoc", "contract", "nsz"}}
INSIDE = {**FAST, "forceinline": True}  # a call would take longer than the work


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
    p, r, most = rx + rz, (rx if rx < rz else rz), (n if n > rz else rz)
    size = m + r * (r + 1) // 2
    matrix, longest = (p, p), (size if size > p else p)
    return Workspace(
        (size, size + 1), matrix, matrix, matrix, matrix, matrix, (rx, m), (2 * m, rx), (2 * LINES, m), (2 * most, p),
        (2 * n, m), (2 * n, n), (3 * rz, rx), (rz, rz + p), (rz, p), (14, longest), (3, m + 1),
    )  # fmt: skip


def workspace(sizes: Workspace) -> Workspace:
    """Arrays of these shapes for one worker."""
    return Workspace(*(np.empty(shape, np.int64 if shape is sizes.rows else float) for shape in sizes))


# The words of this text that mean something else on a GPU. Entry j of a vector belongs to worker j modulo WORKERS, an
# entry of a matrix to the worker of its row modulo LINES and its column modulo COLUMNS; here one worker has them all.
WORKERS = LINES = COLUMNS = 1


@njit(**PLAIN)
def itself(x):
    """What `mine`, `my_line` and `my_column` say of one worker, and sums and maxima over one."""
    return x


@njit(**PLAIN)
def barrier():
    """Wait until everybody may read what was written before."""


mine = my_line = my_column = itself  # the first own entry of a vector, row, column of a matrix, from here on
total = highest = itself  # over the workers, the same for all of them; a barrier, too


@njit(**PLAIN)
def greater(x, y):
    """Python's max, which does not compile for every GPU target of Numba."""
    return x if x > y else y


@njit(**PLAIN)
def smaller(x, y):
    """Python's min."""
    return x if x < y else y


@njit(**FAST)
def dot(x, y, size):
    """x^T y, by one worker."""
    value = 0.0
    for c in range(size):
        value += x[c] * y[c]
    return value


@njit(**FAST)
def add_matrix(x, f, y, rows, columns, out):
    """out = x + f y."""
    for i in range(my_line(0), rows, LINES):
        for c in range(my_column(0), columns, COLUMNS):
            out[i, c] = x[i, c] + f * y[i, c]
    barrier()


@njit(**INSIDE)
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


@njit(**INSIDE)
def multiply(x, y, rows, count, columns, out):
    """out = x y, `count` the number of columns of x."""
    for i in range(my_line(0), rows, LINES):
        gather(x[i], y, count, 0, columns, out[i])
    barrier()


@njit(**PLAIN)
def combine(d, z, duals, out, work):
    """The columns of M = sum_k lam_k d_k z_k^T."""
    n, (m, rx) = len(z), d.shape
    block = m // n
    for i in range(my_line(0), n, LINES):
        gather(duals[i * block :], d[i * block :], block, 0, rx, work.inputs[i])
    barrier()
    multiply(z.T, work.inputs, z.shape[1], n, rx, out)


@njit(**PLAIN)
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


@njit(**FAST)
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


@njit(**FAST)
def solve_factored(u, size, pivots, x):
    """x <- (U^T diag(pivots) U)^-1 x."""
    for i in range(size):
        f = x[i] * pivots[i]
        for j in range(mine(i + 1), size, WORKERS):
            x[j] -= f * u[i, j]
        barrier()
    for i in range(size - 1, -1, -1):
        f = x[i] * pivots[i]
        for j in range(mine(0), i, WORKERS):
            x[j] -= f * u[j, i]
        barrier()
        if mine(i) == i:
            x[i] = f
    barrier()


@njit(**FAST)
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
        best = -int(highest(-best if largest == most else -size))  # the first where it is reached
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


@njit(**FAST)
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
                        f, g = x[i, c], x[j, c]
                        x[i, c], x[j, c] = cos * f - sin * g, sin * f + cos * g
            barrier()
        if highest(turned) == 0.0:
            break
    for i in range(mine(0), count, WORKERS):
        s[i] = math.sqrt(dot(x[i], x[i], length))
    barrier()
