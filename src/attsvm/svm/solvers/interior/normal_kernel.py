"""Compiled normal matrices for the CPU: rows in blocks of inputs, one problem after the other."""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def normal_blocks(differences, queries, omega, cross, out):
    """out[p, k, l] = <A_k, Theta A_l> of problem p, Theta_ab(X) = omega_ab X_ab - cross_ab X_ba.

    The rows come in equal blocks, one for each of the n queries; `cross` is empty where nothing is coupled.
    """
    batch, m, d = differences.shape
    n, dq = queries.shape[1:]
    block, r = m // n, min(d, dq)
    turned, weighted = np.empty((d, m)), np.empty((d, m))
    both, weight = np.empty(dq), np.empty(d)
    for p in range(batch):
        D, Z, H = differences[p], queries[p], out[p]
        for k in range(m):
            for a in range(d):
                turned[a, k] = D[k, a]
        for i in range(n):
            last = (i + 1) * block
            for j in range(i + 1):
                for e in range(dq):
                    both[e] = Z[i, e] * Z[j, e]
                for a in range(d):
                    total = 0.0
                    for e in range(dq):
                        total += omega[p, a, e] * both[e]
                    for other in range(j * block, (j + 1) * block):
                        weighted[a, other] = total * turned[a, other]
            for k in range(i * block, last):
                row = H[k]
                row[:last] = 0.0
                for a in range(d):
                    x = D[k, a]
                    for other in range(last):
                        row[other] += x * weighted[a, other]
                if cross.shape[0] == batch:
                    for j in range(i + 1):
                        weight[:r] = 0.0
                        for a in range(r):
                            x = D[k, a] * Z[j, a]
                            for e in range(r):
                                weight[e] += x * cross[p, a, e]
                        for e in range(r):
                            x = weight[e] * Z[i, e]
                            for other in range(j * block, (j + 1) * block):
                                row[other] -= x * turned[e, other]
        for k in range(m):
            for other in range(k):
                H[other, k] = H[k, other]
