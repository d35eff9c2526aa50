"""Cholesky of the active Gram, kept across small changes of the active rows (Schur complement of a bordered system)."""

from __future__ import annotations

import numpy as np
import scipy.linalg

_SLAB = 512  # rows of the Gram matrix whose second factor is held at once


class ActiveFactor:
    """Solves (ridge I + A_J A_J^T) x = r for row sets J near the set J_0 it was factored at.

    Rows that left J_0 are held at 0 by a multiplier, rows that joined border the system; with B the added columns and
    V = L^-1 B, only the Schur complement C - V^T V of the changed rows is solved anew. Columns V are kept by row id.

    Arguments:
        ids: of the rows of J_0, ascending, ``[rows]``.
        differences: D_k, ``[rows, d]``.
        queries: each row's own z_k, ``[rows, dq]``.
        ridge: positive.
    """

    def __init__(self, ids: np.ndarray, differences: np.ndarray, queries: np.ndarray, ridge: float) -> None:
        self.ids, self.ridge = ids, ridge
        self.differences, self.queries = differences, queries
        matrix = _gram(differences, queries, differences, queries)
        matrix[np.diag_indices_from(matrix)] += ridge
        self.lower = scipy.linalg.cholesky(matrix.T, lower=True, overwrite_a=True, check_finite=False)
        self.columns = np.empty((len(ids), 0), order="F")
        self.known = np.empty(0, np.int64)

    def changes(self, ids: np.ndarray) -> int:
        """How many rows joined or left since the factorization."""
        return len(ids) + len(self.ids) - 2 * len(np.intersect1d(ids, self.ids, assume_unique=True))

    def solve(self, ids: np.ndarray, differences: np.ndarray, queries: np.ndarray, right: np.ndarray) -> np.ndarray:
        """x for the rows J given by `ids`, `differences` and `queries`; right and x are ``[rows of J]``."""
        place = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        inside = self.ids[place] == ids
        joined = np.flatnonzero(~inside)
        left = np.setdiff1d(np.arange(len(self.ids)), place[inside], assume_unique=True)
        base = np.zeros(len(self.ids))
        base[place[inside]] = right[inside]
        half = self._forward(base)
        count = len(joined)
        border = np.empty(0)
        if count + len(left):
            v = self._borders(ids[joined], differences[joined], queries[joined], left)
            corner = np.zeros((v.shape[1], v.shape[1]))
            corner[:count, :count] = _gram(differences[joined], queries[joined], differences[joined], queries[joined])
            corner[np.arange(count), np.arange(count)] += self.ridge
            target = np.concatenate([right[joined], np.zeros(len(left))]) - v.T @ half
            border = scipy.linalg.solve(corner - v.T @ v, target, assume_a="sym", check_finite=False)
            half = half - v @ border
        full = scipy.linalg.solve_triangular(self.lower, half, lower=True, trans=1, check_finite=False)
        out = np.empty(len(ids))
        out[inside] = full[place[inside]]
        out[joined] = border[:count]
        return out

    def _forward(self, right: np.ndarray) -> np.ndarray:
        return scipy.linalg.solve_triangular(self.lower, right, lower=True, check_finite=False)

    def _borders(self, ids: np.ndarray, differences: np.ndarray, queries: np.ndarray, left: np.ndarray) -> np.ndarray:
        """Columns V of the rows that joined (`ids`) and of the rows that left (`left`, places in J_0)."""
        wanted = np.concatenate([ids, self.ids[left]])
        missing = np.flatnonzero(~np.isin(wanted, self.known))
        if len(missing):
            fresh = np.zeros((len(self.ids), len(missing)), order="F")
            joined = missing[missing < len(ids)]
            fresh[:, : len(joined)] = _gram(self.differences, self.queries, differences[joined], queries[joined])
            gone = left[missing[missing >= len(ids)] - len(ids)]
            fresh[gone, len(joined) + np.arange(len(gone))] = 1.0
            self.columns = np.concatenate([self.columns, self._forward(fresh)], axis=1)
            self.known = np.concatenate([self.known, wanted[missing]])
        order = np.argsort(self.known)
        return self.columns[:, order[np.searchsorted(self.known, wanted, sorter=order)]]


def _gram(left: np.ndarray, left_queries: np.ndarray, right: np.ndarray, right_queries: np.ndarray) -> np.ndarray:
    """<A_k, A_l> = (D_k . D_l)(z_k . z_l): the Hadamard Gram, built by slabs of rows."""
    out = left @ right.T
    for low in range(0, len(left), _SLAB):
        out[low : low + _SLAB] *= left_queries[low : low + _SLAB] @ right_queries.T
    return out
