"""Proximal semismooth Newton on the working set (augmented Lagrangian; proximal point in the dual).

With centre lam_0 and penalty sigma it minimises, by Newton steps with an exact line search,

    phi(W) = 1/2 ||W||^2 + sigma/2 || (b - A W + lam_0 / sigma)_+ ||^2        (no positive part on equality rows)

and returns lam = (lam_0 + sigma (b - A W))_+. With J = {lam > 0} and g = A*(lam) - W the step solves
(I + sigma A_J^T A_J) dW = g: regular even when J has more rows than W has entries, where the face system of a
hard-margin problem is singular. Far from the solution conjugate gradients solve it; near it the Cholesky factor of
(I/sigma + A_J A_J^T), updated while J changes by few rows (factor.py).
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, allow-incomplete-defs
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attsvm.svm.solvers.large.factor import ActiveFactor
from attsvm.svm.solvers.large.polish import polish_face


@dataclass
class ProximalNewton:
    """Penalty, kept factor and work counts; ``direct_limit`` is the most rows a dense factor may have."""

    sigma: float
    direct_limit: int = 8000
    factor: ActiveFactor | None = None
    prefer_direct: bool = False
    newton: int = 0
    products: int = 0
    factorizations: int = 0

    def minimise(self, rows, weights, tolerance, limit=20):
        """One proximal step from ``rows.lam``; updates ``rows.lam`` and ``weights`` = A*(lam). Returns (Newton steps,
        final relative gradient); both arrays are left as they were when the gradient stayed above 10 ``tolerance``."""
        centre, origin = rows.lam.copy(), weights.copy()
        everything = np.ones(len(centre), bool)
        margins = rows.forward(weights, everything)
        residual = np.inf
        for count in range(limit + 1):
            lam = self._multipliers(rows, centre, margins)
            gradient = rows.adjoint(lam) - weights
            residual = float(np.linalg.norm(gradient) / max(np.linalg.norm(weights), 1e-300))
            if residual <= tolerance or count == limit:
                break
            direction = self._direction(rows, gradient, (lam > 0) | rows.free, min(1e-2, residual**0.5))
            change = rows.forward(direction, everything)
            length = self._line_search(rows, centre, weights, direction, margins, change)
            weights += length * direction
            margins += length * change
            self.newton += 1
        if residual > max(10 * tolerance, 1e-10) or not np.isfinite(residual):
            rows.lam[:], weights[:] = centre, origin
        else:
            rows.lam[:] = lam
            weights += gradient
        return count, residual

    def set_sigma(self, sigma):
        self.sigma, self.factor = sigma, None

    def _multipliers(self, rows, centre, margins):
        lam = centre + self.sigma * (rows.rhs - margins)
        return np.where(rows.free, lam, np.maximum(lam, 0.0))

    def _direction(self, rows, gradient, active, tolerance):
        count = int(active.sum())
        direct = count <= self.direct_limit
        if not (direct and self.prefer_direct):
            d, dq = gradient.shape
            product_cost = 4.0 * len(rows.inputs) * d * dq + 4.0 * len(rows.token) * d
            direct_cost = count**3 / 3 + 2.0 * count**2 * (d + dq)
            limit = max(10, int(0.5 * direct_cost / product_cost)) if direct else 1000
            step, solved = self._conjugate_gradients(rows, gradient, active, tolerance, limit)
            if solved or not direct:
                return step
            self.prefer_direct = True
        return gradient + rows.adjoint(self._regularised(rows, -rows.forward(gradient, active), active))

    def _regularised(self, rows, right, active):
        """(I/sigma + A_J A_J^T)^-1 right on the active rows, 0 elsewhere; factors anew only after many changes of J."""
        ids, differences, queries = rows.ids[active], rows.differences[active], rows.queries[rows.owner[active]]
        if self.factor is None or self.factor.changes(ids) > max(64, 0.1 * len(ids)):
            self.factor = ActiveFactor(ids, differences, queries, 1.0 / self.sigma)
            self.factorizations += 1
        out = np.zeros(len(active))
        out[active] = self.factor.solve(ids, differences, queries, right[active])
        return out

    def polish(self, rows, weights):
        """The last digits: the unregularised face system by conjugate gradients on the kept factor."""
        if self.factor is not None:
            polish_face(rows, weights, 1e-3, 30, lambda vector, face: self._regularised(rows, vector, face))

    def _conjugate_gradients(self, rows, gradient, active, tolerance, limit):
        r, step = gradient.copy(), np.zeros_like(gradient)
        p = r.copy()
        rho = np.vdot(r, r)
        target = tolerance**2 * rho
        for _ in range(limit):
            product = p + self.sigma * rows.adjoint(rows.forward(p, active))
            self.products += 1
            alpha = rho / np.vdot(p, product)
            step += alpha * p
            r -= alpha * product
            rho, old = np.vdot(r, r), rho
            if rho <= target:
                return step, True
            p *= rho / old
            p += r
        return step, False

    def _line_search(self, rows, centre, weights, direction, margins, change):
        """Minimiser of the convex piecewise quadratic t -> phi(W + t dW): safeguarded Newton on its derivative."""
        linear, square = np.vdot(weights, direction), np.vdot(direction, direction)
        low, high, t = 0.0, np.inf, 1.0
        for _ in range(40):
            lam = self._multipliers(rows, centre, margins + t * change)
            slope = linear + t * square - lam @ change
            if abs(slope) <= 1e-10 * (abs(linear) + square):
                break
            low, high = (low, t) if slope > 0 else (t, high)
            curvature = square + self.sigma * (change[(lam > 0) | rows.free] ** 2).sum()
            proposal = t - slope / curvature
            if not low < proposal < high:
                proposal = 0.5 * (low + high) if np.isfinite(high) else 2 * t
            if abs(proposal - t) <= 1e-12 * t:
                break
            t = proposal
        return t
