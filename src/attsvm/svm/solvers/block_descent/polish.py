"""Acceleration on the identified face: preconditioned conjugate gradients in the dual, then a projected step.

On the face F = {k : lam_k > 0 or k an equality} the optimum solves A_F A_F^T delta = b_F - A_F W. Products are
matrix-free (one adjoint, one forward over the working rows); the preconditioner is the block diagonal of the Gram
matrix, with a block for each input.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from attsvm.svm.solvers.block_descent import kernels
from attsvm.svm.solvers.block_descent.working_set import WorkingSet

Preconditioner = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(vector, face) -> an approximate (A_F A_F^T)^-1 vector, both [rows]."""

_HALVINGS = 8  # of a step that does not lower the dual objective


def polish_face(
    rows: WorkingSet, weights: np.ndarray, tolerance: float, limit: int, precondition: Preconditioner | None = None
) -> None:
    """Move ``rows.lam`` and ``weights`` (in place) to, or towards, the optimum of the current face.

    The full step is projected on lam >= 0 and halved until the dual objective falls; the longest feasible step, which
    always lowers it, is the last resort.

    Arguments:
        tolerance: relative residual of the face system.
        limit: most products with it.
        precondition: replaces the block diagonal.
    """
    face = (rows.lam > 0) | rows.equalities
    residual = np.where(face, rows.right_hand_side - rows.forward(weights, face), 0.0)
    if not residual.any():
        return
    precondition = precondition or _block_diagonal(rows, face)
    step, step_weights = _conjugate_gradients(rows, residual, face, tolerance, limit, precondition)
    moved = _projected(rows, residual, step, step_weights)
    if moved is not None:
        rows.lam[:] = moved
        weights[:] = rows.adjoint(rows.lam)


def _block_diagonal(rows: WorkingSet, face: np.ndarray) -> Preconditioner:
    """The block-Jacobi preconditioner of the face: a Cholesky factor for each input."""
    factor = np.empty_like(rows.gram)
    kernels.factor_blocks(rows.gram, rows.gram_start, rows.start, face, factor)

    def apply(vector: np.ndarray, _: np.ndarray) -> np.ndarray:
        out = np.empty_like(vector)
        kernels.apply_factor(factor, rows.gram_start, rows.start, vector, out)
        return out

    return apply


def _conjugate_gradients(
    rows: WorkingSet,
    residual: np.ndarray,
    face: np.ndarray,
    tolerance: float,
    limit: int,
    precondition: Preconditioner,
) -> tuple[np.ndarray, np.ndarray]:
    """Step with A_F A_F^T step = residual to `tolerance` (maximum norm), and A*(step)."""
    r = residual.copy()
    step = np.zeros_like(r)
    step_weights = np.zeros((rows.differences.shape[1], rows.queries.shape[1]))
    p = precondition(r, face)
    rho = r @ p
    target = tolerance * np.abs(r).max()
    for _ in range(limit):
        image = rows.adjoint(p)
        product = rows.forward(image, face)
        curvature = p @ product
        if curvature <= 1e-14 * rho:  # a direction without curvature: dependent rows, or an unbounded dual
            break
        alpha = rho / curvature
        step += alpha * p
        step_weights += alpha * image
        r -= alpha * product
        if np.abs(r).max() <= target:
            break
        scaled = precondition(r, face)
        rho, old = r @ scaled, rho
        p *= rho / old
        p += scaled
    return step, step_weights


def _projected(rows: WorkingSet, residual: np.ndarray, step: np.ndarray, step_weights: np.ndarray) -> np.ndarray | None:
    """The multipliers after the longest step that, projected, lowers the dual objective; None where none does."""
    lam, free = rows.lam, rows.equalities
    blocked = ~free & (lam + step < 0)
    if not blocked.any():
        return lam + step
    size = 1.0
    for _ in range(_HALVINGS):
        moved = np.where(free, lam + size * step, np.maximum(lam + size * step, 0.0))
        change = moved - lam
        image = rows.adjoint(change)
        if residual @ change - 0.5 * np.vdot(image, image) > 0:
            return moved
        size *= 0.5
    size = float((lam[blocked] / -step[blocked]).min())
    lowers = size * (residual @ step) - 0.5 * size**2 * np.vdot(step_weights, step_weights) > 0
    return np.where(free, lam + size * step, np.maximum(lam + size * step, 0.0)) if lowers else None
