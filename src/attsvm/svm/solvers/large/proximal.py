"""Proximal semismooth Newton on the working set (augmented Lagrangian; proximal point in the dual).

With centre lam_0 and penalty sigma it minimises, by Newton steps with an exact line search,

    phi(W) = 1/2 ||W||^2 + sigma/2 || (b - A W + lam_0 / sigma)_+ ||^2        (no positive part on equality rows)

and returns lam = (lam_0 + sigma (b - A W))_+. With J = {lam > 0} and g = A*(lam) - W the step solves
(I + sigma A_J^T A_J) dW = g: regular even when J has more rows than W has entries, where the face system of a
hard-margin problem is singular. Far from the solution conjugate gradients solve it; near it the Cholesky factor of
(I/sigma + A_J A_J^T), updated while J changes by few rows (factor.py).
"""

from __future__ import annotations

import numpy as np

from attsvm.svm.solvers.large.conjugate_gradients import conjugate_gradients
from attsvm.svm.solvers.large.factor import ActiveFactor
from attsvm.svm.solvers.large.polish import polish_face
from attsvm.svm.solvers.large.working_set import WorkingSet

_NEWTON_STEPS = 20  # of one proximal step
_SEARCHES = 40  # of one line search


class ProximalNewton:
    """Penalty and kept factor of one run; ``steps`` and ``converged`` say how the last proximal step went.

    Arguments:
        sigma: penalty to start with.
        direct_limit: most rows a dense factor may have.
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
            direction = self._direction(rows, gradient, (lam > 0) | rows.free, min(1e-2, residual**0.5))
            change = rows.forward(direction, everything)
            length = self._line_search(rows, centre, weights, direction, margins, change)
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
        lam = centre + self.sigma * (rows.rhs - margins)
        return np.where(rows.free, lam, np.maximum(lam, 0.0))

    def _direction(self, rows: WorkingSet, gradient: np.ndarray, active: np.ndarray, tolerance: float) -> np.ndarray:
        """(I + sigma A_J^T A_J)^-1 gradient, by whichever way is cheaper so far."""
        count = int(active.sum())
        direct = count <= self.direct_limit
        if not (direct and self._prefer_direct):
            d, dq = gradient.shape
            product_cost = 4.0 * len(rows.inputs) * d * dq + 4.0 * len(rows.token) * d
            direct_cost = count**3 / 3 + 2.0 * count**2 * (d + dq)
            limit = max(10, int(0.5 * direct_cost / product_cost)) if direct else 1000

            def product(p: np.ndarray) -> np.ndarray:
                return p + self.sigma * rows.adjoint(rows.forward(p, active))

            step, solved = conjugate_gradients(product, gradient, tolerance**2, limit)
            if solved or not direct:
                return step
            self._prefer_direct = True
        return gradient + rows.adjoint(self._regularised(rows, -rows.forward(gradient, active), active))

    def _regularised(self, rows: WorkingSet, right: np.ndarray, active: np.ndarray) -> np.ndarray:
        """(I/sigma + A_J A_J^T)^-1 right on the active rows, 0 elsewhere; factors anew only after many changes of J."""
        ids, differences, queries = rows.ids[active], rows.differences[active], rows.queries[rows.owner[active]]
        if self._factor is None or self._factor.changes(ids) > max(64, 0.1 * len(ids)):
            self._factor = ActiveFactor(ids, differences, queries, 1.0 / self.sigma)
        out = np.zeros(len(active))
        out[active] = self._factor.solve(ids, differences, queries, right[active])
        return out

    def _line_search(
        self,
        rows: WorkingSet,
        centre: np.ndarray,
        weights: np.ndarray,
        direction: np.ndarray,
        margins: np.ndarray,
        change: np.ndarray,
    ) -> float:
        """Minimiser of the convex piecewise quadratic t -> phi(W + t dW): safeguarded Newton on its derivative."""
        linear, square = float(np.vdot(weights, direction)), float(np.vdot(direction, direction))
        low, high, t = 0.0, np.inf, 1.0
        for _ in range(_SEARCHES):
            lam = self._multipliers(rows, centre, margins + t * change)
            slope = linear + t * square - float(lam @ change)
            if abs(slope) <= 1e-10 * (abs(linear) + square):
                break
            low, high = (low, t) if slope > 0 else (t, high)
            curvature = square + self.sigma * float((change[(lam > 0) | rows.free] ** 2).sum())
            proposal = t - slope / curvature
            if not low < proposal < high:
                proposal = 0.5 * (low + high) if np.isfinite(high) else 2 * t
            if abs(proposal - t) <= 1e-12 * t:
                break
            t = proposal
        return t
