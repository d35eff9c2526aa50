"""Compiled Schur matrices for the CPU: one problem at a time stays in cache, batched products stream through memory."""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def schur_blocks(left, queries, y, g, out):
    """out[p, k, l] = tr(F_k Y F_l G) of problem p, rows in equal blocks of inputs; see `ReducedRows.schur`."""
    batch, m, rx = left.shape
    n, rz = queries.shape[1], queries.shape[2]
    block = m // n
    turned = np.empty((rx, m))
    dy, dg = np.empty(rx), np.empty(rx)
    cy, cg = np.empty((m, n)), np.empty((m, n))
    zy, zg = np.empty((n, n)), np.empty((n, n))
    first, second = np.empty(m), np.empty(m)
    ty, tg = np.empty((rx, n)), np.empty((rx, n))
    for p in range(batch):
        d, z, yy, gg, h = left[p], queries[p], y[p], g[p], out[p]
        for i in range(n):
            for c in range(rx + rz):  # [Y_12 z_i; Y_22 z_i]
                sy = sg = 0.0
                for e in range(rz):
                    sy += yy[c, rx + e] * z[i, e]
                    sg += gg[c, rx + e] * z[i, e]
                if c < rx:
                    ty[c, i], tg[c, i] = sy, sg
                else:
                    for j in range(n):
                        if c == rx:
                            zy[i, j] = zg[i, j] = 0.0
                        zy[i, j] += sy * z[j, c - rx]
                        zg[i, j] += sg * z[j, c - rx]
        for k in range(m):
            for i in range(n):
                cy[k, i] = cg[k, i] = 0.0
            for c in range(rx):
                value = d[k, c]
                turned[c, k] = value
                for i in range(n):
                    cy[k, i] += value * ty[c, i]
                    cg[k, i] += value * tg[c, i]
        for k in range(m):
            i = k // block
            last = (i + 1) * block
            dy[:] = 0.0
            dg[:] = 0.0
            for c in range(rx):
                value = d[k, c]
                for e in range(rx):
                    dy[e] += value * yy[c, e]
                    dg[e] += value * gg[c, e]
            first[:last] = 0.0
            second[:last] = 0.0
            for c in range(rx):
                a, b = dy[c], dg[c]
                for other in range(last):
                    first[other] += a * turned[c, other]
                    second[other] += b * turned[c, other]
            for j in range(i + 1):
                wg, wy, ay, ag = zg[i, j], zy[i, j], cy[k, j], cg[k, j]
                for other in range(j * block, (j + 1) * block):
                    value = first[other] * wg + second[other] * wy + ay * cg[other, i] + ag * cy[other, i]
                    h[k, other] = value
                    h[other, k] = value
