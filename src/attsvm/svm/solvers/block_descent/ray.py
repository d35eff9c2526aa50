"""A proof of infeasibility: lam >= 0 with A*(lam) = 0 and b^T lam > 0, refined from the growing dual iterate.

On an infeasible problem descent keeps W = A*(lam) bounded while b^T lam grows, so lam / sum(lam) tends to a ray. The
correction lam (1 - A y), (A^T diag(lam) A) y = A*(lam), removes the rest; rows that would turn negative are dropped.
"""

from __future__ import annotations

import numpy as np

from attsvm.svm.solvers.block_descent.proximal import conjugate_gradients
from attsvm.svm.solvers.block_descent.working_set import WorkingSet

_TARGET = 1e-12  # residual at which a ray needs no further round
_ROUNDS = 12
_PRODUCTS = 200  # of conjugate gradients in each round


def refine_ray(rows: WorkingSet) -> tuple[np.ndarray, float] | None:
    """Try to turn ``rows.lam`` into a ray on the working set.

    Returns:
        lam ``[rows]`` and ``||A*(lam)|| / sum_k |lam_k| ||A_k||``; None where b^T lam > 0 is lost on the way.
    """
    norms = np.sqrt(rows.squares)
    everything = np.ones(len(rows.lam), bool)
    lam = rows.lam.copy()
    image = rows.adjoint(lam)
    residual = _relative(lam, norms, image)
    best: tuple[np.ndarray, float] | None = None
    for _ in range(_ROUNDS):
        weight = np.where(rows.equalities, np.maximum(np.abs(lam), np.abs(lam).mean()), lam)
        correction = weight * rows.forward(_potential(rows, weight, image, everything), everything)
        lam = np.where(rows.equalities, lam - correction, np.maximum(lam - correction, 0.0))
        image = rows.adjoint(lam)
        old, residual = residual, _relative(lam, norms, image)
        if lam @ rows.right_hand_side <= 0 or not np.isfinite(residual):
            return None
        if best is None or residual < best[1]:
            best = lam.copy(), residual
        if residual <= _TARGET or residual > 0.5 * old:
            break
    return best


def _relative(lam: np.ndarray, norms: np.ndarray, image: np.ndarray) -> float:
    total = np.abs(lam) @ norms
    return float(np.linalg.norm(image) / total) if total > 0 else float("inf")


def _potential(rows: WorkingSet, weight: np.ndarray, image: np.ndarray, everything: np.ndarray) -> np.ndarray:
    """(A^T diag(weight) A)^-1 image, to round-off; consistent although it may be singular."""

    def product(p: np.ndarray) -> np.ndarray:
        return rows.adjoint(weight * rows.forward(p, everything))

    return conjugate_gradients(product, image, 1e-24, _PRODUCTS)[0]
