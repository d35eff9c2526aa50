"""Proximal semismooth Newton on the working set (augmented Lagrangian; proximal point in the dual).

With centre lam_0 and penalty sigma it minimises, by Newton steps with an exact line search,

    phi(W) = 1/2 ||W||^2 + sigma/2 || (b - A W + lam_0 / sigma)_+ ||^2        (no positive part on equality rows)

and returns lam = (lam_0 + sigma (b - A W))_+. With J = {lam > 0} and g = A*(lam) - W the step solves
(I + sigma A_J^T A_J) dW = g: regular even when J has more rows than W has entries, where the face system of a
hard-margin problem is singular. Far from the solution conjugate gradients solve it; near it the Cholesky factor of
(I/sigma + A_J A_J^T), updated while J changes by few rows (`ActiveFactor`).
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from attsvm.svm.solvers.block_descent.working_set import WorkingSet, conjugate_gradients, polish_face

_NEWTON_STEPS = 20  # of one proximal step
_SEARCHES = 40  # of one line search
_SLAB = 512  # rows of the Gram matrix whose second factor is held at once


class ProximalNewton:
    """Proximal steps with the penalty `sigma` and the Cholesky factor they share, of at most `direct_limit` rows.

    After each step ``steps`` and ``converged`` say how it went.
    """

    def __init__(self, sigma: float, direct_limit: int) -> None:
        self.sigma, self.direct_limit = sigma, direct_limit
        self.steps, self.converged = 0, False
        self._factor: ActiveFactor | None = None
        self._prefer_direct = False

    def minimise(self, rows: WorkingSet, weights: np.ndarray, tolerance: float) -> None:
        """One proximal step from ``rows.lam``; updates ``rows.lam`` and ``weights`` = A*(lam) in place.

        Both are left as they were when the relative gradient stayed above 10 `tolerance`.
        """
        centre, origin = rows.lam.copy(), weights.copy()
        everything = np.ones(len(centre), bool)
        margins = rows.forward(weights, everything)
        self.steps = 0
        while True:
            lam = self._multipliers(rows, centre, margins)
            gradient = rows.adjoint(lam) - weights
            residual = float(np.linalg.norm(gradient)) / max(float(np.linalg.norm(weights)), 1e-300)
            if residual <= tolerance or self.steps == _NEWTON_STEPS:
                break
            direction = self._direction(rows, gradient, (lam > 0) | rows.equalities, min(1e-2, residual**0.5))
            change = rows.forward(direction, everything)
            products = float(np.vdot(weights, direction)), float(np.vdot(direction, direction))
            length = self._line_search(rows, centre, margins, change, *products)
            weights += length * direction
            margins += length * change
            self.steps += 1
        self.converged = residual <= max(10 * tolerance, 1e-10)
        if self.converged:
            rows.lam[:] = lam
            weights += gradient
        else:
            rows.lam[:], weights[:] = centre, origin

    def polish(self, rows: WorkingSet, weights: np.ndarray) -> None:
        """The last digits: the unregularised face system by conjugate gradients on the kept factor."""
        if self._factor is not None:
            polish_face(rows, weights, 1e-3, 30, lambda vector, face: self._regularised(rows, vector, face))

    def set_sigma(self, sigma: float) -> None:
        """Change the penalty; the kept factor goes with the old one."""
        self.sigma, self._factor = sigma, None

    def _multipliers(self, rows: WorkingSet, centre: np.ndarray, margins: np.ndarray) -> np.ndarray:
        lam = centre + self.sigma * (rows.right_hand_side - margins)
        return np.where(rows.equalities, lam, np.maximum(lam, 0.0))

    def _direction(self, rows: WorkingSet, gradient: np.ndarray, active: np.ndarray, tolerance: float) -> np.ndarray:
        """(I + sigma A_J^T A_J)^-1 gradient, by whichever way is cheaper so far."""
        count = int(active.sum())
        direct = count <= self.direct_limit
        if not (direct and self._prefer_direct):
            d, dq = gradient.shape
            product_cost = 4.0 * len(rows.queries) * d * dq + 4.0 * len(rows.place) * d
            direct_cost = count**3 / 3 + 2.0 * count**2 * (d + dq)
            limit = max(10, int(0.5 * direct_cost / product_cost)) if direct else 1000

            def product(p: np.ndarray) -> np.ndarray:
                return p + self.sigma * rows.adjoint(rows.forward(p, active))

            target = tolerance**2 * np.vdot(gradient, gradient)
            step, solved = conjugate_gradients(product, gradient, lambda left: np.vdot(left, left) <= target, limit)
            if solved or not direct:
                return step
            self._prefer_direct = True
        return gradient + rows.adjoint(self._regularised(rows, -rows.forward(gradient, active), active))

    def _regularised(self, rows: WorkingSet, right: np.ndarray, active: np.ndarray) -> np.ndarray:
        """(I/sigma + A_J A_J^T)^-1 right on the active rows, 0 elsewhere; factors anew only after many changes of J."""
        ids, differences, queries = rows.place[active], rows.differences[active], rows.queries[rows.owner[active]]
        if self._factor is None or self._factor.changes(ids) > max(64, 0.1 * len(ids)):
            self._factor = ActiveFactor(ids, differences, queries, 1.0 / self.sigma)
        out = np.zeros(len(active))
        out[active] = self._factor.solve(ids, differences, queries, right[active])
        return out

    def _line_search(
        self, rows: WorkingSet, centre: np.ndarray, margins: np.ndarray, change: np.ndarray, first: float, second: float
    ) -> float:
        """Minimiser of the convex piecewise quadratic t -> phi(W + t dW): safeguarded Newton on its derivative.

        `change` are the margins of dW, `first` and `second` its products with W and with itself.
        """
        low, high, t = 0.0, np.inf, 1.0
        for _ in range(_SEARCHES):
            lam = self._multipliers(rows, centre, margins + t * change)
            slope = first + t * second - float(lam @ change)
            if abs(slope) <= 1e-10 * (abs(first) + second):
                break
            low, high = (low, t) if slope > 0 else (t, high)
            curvature = second + self.sigma * float((change[(lam > 0) | rows.equalities] ** 2).sum())
            proposal = t - slope / curvature
            if not low < proposal < high:
                proposal = 0.5 * (low + high) if np.isfinite(high) else 2 * t
            if abs(proposal - t) <= 1e-12 * t:
                break
            t = proposal
        return t


def _factored(matrix: np.ndarray, ridge: float) -> np.ndarray:
    shifted = matrix.copy()
    shifted.flat[:: len(matrix) + 1] += ridge
    lower: np.ndarray = scipy.linalg.cholesky(shifted.T, lower=True, overwrite_a=True, check_finite=False)
    return lower


class ActiveFactor:
    """Solves (ridge I + A_J A_J^T) x = r for row sets J near the set J_0 it was factored at.

    Rows that left J_0 are held at 0 by a multiplier, rows that joined border the system; with B the added columns and
    V = L^-1 B, only the Schur complement C - V^T V of the changed rows is solved anew. Columns V are kept by row id.
    Rows are given by ascending ids ``[rows]``, differences D_k ``[rows, d]`` and own queries z_k ``[rows, dq]``.
    """

    def __init__(self, ids: np.ndarray, differences: np.ndarray, queries: np.ndarray, ridge: float) -> None:
        self.ids = ids
        self.differences, self.queries = differences, queries
        matrix = _gram(differences, queries, differences, queries)
        try:
            self.lower = _factored(matrix, ridge)
        except np.linalg.LinAlgError:  # dependent rows and a ridge below round-off: the step may be shorter
            ridge += 1e-12 * float(matrix.trace())
            self.lower = _factored(matrix, ridge)
        self.ridge = ridge
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
