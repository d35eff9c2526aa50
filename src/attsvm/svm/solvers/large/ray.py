"""A proof of infeasibility: lam >= 0 with A*(lam) = 0 and b^T lam > 0, refined from the growing dual iterate.

On an infeasible problem descent keeps W = A*(lam) bounded while b^T lam grows, so lam / sum(lam) tends to a ray. The
correction lam (1 - A y), (A^T diag(lam) A) y = A*(lam), removes the rest; rows that would turn negative are dropped.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, allow-incomplete-defs
from __future__ import annotations

import numpy as np


def refine_ray(rows, target=1e-12, rounds=12, products=200):
    """Try to turn ``rows.lam`` into a ray on the working set. Returns (lam, ||A* lam|| / sum |lam_k| ||A_k||) or None."""
    norms = np.sqrt(rows.gram[rows.diagonal])
    everything = np.ones(len(rows.lam), bool)
    lam = rows.lam.copy()
    image = rows.adjoint(lam)
    residual = relative(lam, norms, image)
    best = None
    for _ in range(rounds):
        weight = np.where(rows.free, np.maximum(np.abs(lam), np.abs(lam).mean()), lam)
        potential = conjugate_gradients(rows, weight, image, everything, products)
        correction = weight * rows.forward(potential, everything)
        lam = np.where(rows.free, lam - correction, np.maximum(lam - correction, 0.0))
        image = rows.adjoint(lam)
        old, residual = residual, relative(lam, norms, image)
        if lam @ rows.rhs <= 0 or not np.isfinite(residual):
            return None
        if best is None or residual < best[1]:
            best = lam.copy(), residual
        if residual <= target or residual > 0.5 * old:
            break
    return best


def relative(lam, norms, image):
    total = np.abs(lam) @ norms
    return float(np.linalg.norm(image) / total) if total > 0 else np.inf


def conjugate_gradients(rows, weight, right, everything, limit):
    """(A^T diag(weight) A) y = right, to round-off or ``limit`` products; consistent although it may be singular."""
    r, y = right.copy(), np.zeros_like(right)
    p = r.copy()
    rho = first = np.vdot(r, r)
    for _ in range(limit):
        if rho <= 1e-24 * first or rho == 0:
            break
        product = rows.adjoint(weight * rows.forward(p, everything))
        curvature = np.vdot(p, product)
        if curvature <= 0:
            break
        alpha = rho / curvature
        y += alpha * p
        r -= alpha * product
        rho, old = np.vdot(r, r), rho
        p *= rho / old
        p += r
    return y
