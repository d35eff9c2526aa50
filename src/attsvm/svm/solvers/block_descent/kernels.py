"""Compiled loops of the large Frobenius solver: scan of all rows, choice of working rows, block descent, face products.

Notation: input r of the working set has rows ``start[r]:start[r + 1]``; row k has difference D_k = x_reference - x_t in
R^d, right-hand side b_k and multiplier lam_k; its matrix row is A_k = D_k z_r^T, so <A_k, W> = D_k . (W z_r). For all
rows ``kinds`` [n, T] says what each is: ABSENT, INEQUALITY or EQUALITY.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
from __future__ import annotations

import numpy as np
from numba import njit

from attsvm.svm.solvers.base import ABSENT, EQUALITY

# Reductions may be reordered (SIMD); infinities and nans keep their meaning.
FAST = {"reassoc", "contract", "nsz", "arcp"}
OPTIONS = {"nogil": True, "cache": True, "fastmath": FAST, "error_model": "numpy"}


@njit(**OPTIONS)
def dot(a, b):
    """a^T b; the sum may be reordered."""
    total = 0.0
    for j in range(a.shape[0]):
        total += a[j] * b[j]
    return total


@njit(**OPTIONS)
def scan_margins(tokens, shared, reference, kinds, projected, margins):
    """margins[i, t] = (x_reference - x_t) . projected_i of every row, 0 where none is; `shared` inputs a sequence."""
    for i in range(reference.shape[0]):
        own, u = tokens[i // shared], projected[i]
        best = dot(own[reference[i]], u)
        for t in range(own.shape[0]):
            margins[i, t] = best - dot(own[t], u) if kinds[i, t] != ABSENT else 0.0


@njit(**OPTIONS)
def choose_rows(margins, b, kinds, duals, keep_slack, add_slack, cap, chosen):
    """Mark the next working rows in ``chosen`` [n, T].

    Every row with a multiplier, every equality, working rows within ``keep_slack`` of active, and per input the ``cap``
    worst other rows whose slack is below ``add_slack``.
    """
    scratch = np.empty(margins.shape[1])
    for i in range(margins.shape[0]):
        fresh = 0
        for t in range(margins.shape[1]):
            was = chosen[i, t]
            chosen[i, t] = False
            if kinds[i, t] == ABSENT:
                continue
            slack = margins[i, t] - b[i, t]
            if duals[i, t] != 0.0 or kinds[i, t] == EQUALITY or (was and slack < keep_slack):
                chosen[i, t] = True
            elif slack < add_slack:
                scratch[fresh] = slack
                fresh += 1
        if fresh == 0:
            continue
        limit = add_slack
        if fresh > cap:
            limit = np.partition(scratch[:fresh], cap - 1)[cap - 1]
        for t in range(margins.shape[1]):
            if kinds[i, t] != ABSENT and not chosen[i, t] and margins[i, t] - b[i, t] <= limit:
                chosen[i, t] = True


@njit(**OPTIONS)
def block_grams(differences, start, gram_start, square, gram):
    """gram of block r, row-major k x k: ||z_r||^2 D_r D_r^T."""
    for r in range(start.shape[0] - 1):
        lo, k = start[r], start[r + 1] - start[r]
        for a in range(k):
            for c in range(a + 1):
                value = square[r] * dot(differences[lo + a], differences[lo + c])
                gram[gram_start[r] + a * k + c] = value
                gram[gram_start[r] + c * k + a] = value


@njit(**OPTIONS)
def descend(weights, queries, near, group, order, start, differences, b, equal, lam, gram_start, gram, inner, rotate):
    """One pass of exact block dual coordinate descent over the working set; updates ``weights`` and ``lam`` in place.

    Inputs come in groups of ``group``: W z for a whole group is one matrix product, and inside the group the effect of
    earlier inputs is added through ``near[r, c] = z_r . z_(group start + c)``, so the pass equals one-at-a-time descent
    (Gauss-Seidel, not Jacobi) while W is read and written once per group; it starts ``rotate`` inputs into each group.
    """
    blocks, d = queries.shape[0], weights.shape[0]
    step = np.zeros((group, d))
    slack = np.empty(np.max(start[1:] - start[:-1]))
    old = np.empty_like(slack)
    for g in order:
        lo = g * group
        size = min(group, blocks - lo)
        z = queries[lo : lo + size]
        u = np.dot(z, weights.T)
        moved = False
        for c0 in range(size):
            c = (c0 + rotate) % size
            r = lo + c
            first, k = start[r], start[r + 1] - start[r]
            q = gram[gram_start[r] : gram_start[r + 1]]
            for a in range(k):
                slack[a] = dot(differences[first + a], u[c]) - b[first + a]
                old[a] = lam[first + a]
            first_change = 0.0
            for sweep in range(inner):
                change = 0.0
                for a in range(k):
                    curvature = q[a * k + a]
                    if curvature <= 0.0:
                        continue
                    target = lam[first + a] - slack[a] / curvature
                    if target < 0.0 and not equal[first + a]:
                        target = 0.0
                    delta = target - lam[first + a]
                    if delta != 0.0:
                        lam[first + a] = target
                        change -= delta * (slack[a] + 0.5 * curvature * delta)
                        row = q[a * k : a * k + k]
                        for e in range(k):
                            slack[e] += delta * row[e]
                if sweep == 0:
                    first_change = change
                if change <= 0.01 * first_change:
                    break
            touched = False
            for j in range(d):
                step[c, j] = 0.0
            for a in range(k):
                delta = lam[first + a] - old[a]
                if delta != 0.0:
                    touched = True
                    row = differences[first + a]
                    for j in range(d):
                        step[c, j] += delta * row[j]
            if touched:
                moved = True
                for c1 in range(c0 + 1, size):
                    e = (c1 + rotate) % size
                    weight = near[r, e]
                    for j in range(d):
                        u[e, j] += weight * step[c, j]
        if moved:
            weights += np.dot(step[:size].T, z)


@njit(**OPTIONS)
def rows_to_blocks(vector, start, differences, out):
    """out[r] = sum_k vector_k D_k over the rows of input r."""
    for r in range(start.shape[0] - 1):
        out[r, :] = 0.0
        for k in range(start[r], start[r + 1]):
            value = vector[k]
            if value != 0.0:
                for j in range(out.shape[1]):
                    out[r, j] += value * differences[k, j]


@njit(**OPTIONS)
def blocks_to_rows(projected, start, differences, face, out):
    """out_k = D_k . projected_r on the rows of the face, 0 elsewhere."""
    for r in range(start.shape[0] - 1):
        for k in range(start[r], start[r + 1]):
            out[k] = dot(differences[k], projected[r]) if face[k] else 0.0


@njit(**OPTIONS)
def factor_blocks(gram, gram_start, start, face, factor):
    """Cholesky of each block Gram, restricted to the face (identity elsewhere): the block-Jacobi preconditioner."""
    for r in range(start.shape[0] - 1):
        lo, k, base = start[r], start[r + 1] - start[r], gram_start[r]
        for a in range(k):
            diagonal = gram[base + a * k + a]
            for c in range(a + 1):
                inside = face[lo + a] and face[lo + c]
                value = gram[base + a * k + c] if inside else 0.0
                for e in range(c):
                    value -= factor[base + a * k + e] * factor[base + c * k + e]
                if c < a:
                    factor[base + a * k + c] = value / factor[base + c * k + c]
                elif face[lo + a]:
                    factor[base + a * k + a] = np.sqrt(max(value, 1e-10 * diagonal + 1e-300))
                else:
                    factor[base + a * k + a] = 1.0


@njit(**OPTIONS)
def apply_factor(factor, gram_start, start, vector, out):
    """out = (L L^T)^-1 vector, block by block."""
    for r in range(start.shape[0] - 1):
        lo, k, base = start[r], start[r + 1] - start[r], gram_start[r]
        for a in range(k):
            value = vector[lo + a]
            for e in range(a):
                value -= factor[base + a * k + e] * out[lo + e]
            out[lo + a] = value / factor[base + a * k + a]
        for a in range(k - 1, -1, -1):
            value = out[lo + a] / factor[base + a * k + a]
            out[lo + a] = value
            for e in range(a):
                out[lo + e] -= factor[base + a * k + e] * value
