"""Acceleration on the identified face: preconditioned conjugate gradients in the dual, then a projected step.

On the face F = {k : lam_k > 0 or k an equality} the optimum solves A_F A_F^T delta = b_F - A_F W. Products are matrix-free
(one adjoint, one forward over the working rows); the preconditioner is the block diagonal of the Gram, one block an input.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, allow-incomplete-defs
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attsvm.svm.solvers.large import kernels


@dataclass(frozen=True)
class PolishReport:
    iterations: int
    clipped: int
    residual: float
    decrease: float


def polish_face(rows, weights, tolerance, limit, precondition=None, backtracks=8):
    """Move ``rows.lam`` and ``weights`` (in place) to, or towards, the optimum of the current face.

    The full step is projected on lam >= 0 and halved until the dual objective falls; the longest feasible step, which
    always lowers it, is the last resort. ``precondition(vector, face)`` replaces the block diagonal. ``residual`` is max |margin - b| on the face before the move.
    """
    face = (rows.lam > 0) | rows.free
    residual = np.where(face, rows.rhs - rows.forward(weights, face), 0.0)
    before = float(np.abs(residual).max(initial=0.0))
    if before == 0.0:
        return PolishReport(0, 0, 0.0, 0.0)
    precondition = precondition or block_diagonal(rows, face)
    step, step_weights, iterations = conjugate_gradients(rows, residual, face, tolerance, limit, precondition)
    moved, decrease, clipped = project(rows, residual, step, step_weights, backtracks)
    if moved is not None:
        rows.lam[:] = moved
        weights[:] = rows.adjoint(rows.lam)
    return PolishReport(iterations, clipped, before, decrease)


def block_diagonal(rows, face):
    """The block-Jacobi preconditioner of the face: one Cholesky an input."""
    factor = np.empty_like(rows.gram)
    kernels.factor_blocks(rows.gram, rows.gram_start, rows.start, face, 0.0, factor)

    def apply(vector, _):
        out = np.empty_like(vector)
        kernels.apply_factor(factor, rows.gram_start, rows.start, vector, out)
        return out

    return apply


def conjugate_gradients(rows, residual, face, tolerance, limit, precondition):
    """Solve A_F A_F^T step = residual to a relative residual ``tolerance`` (maximum norm), at most ``limit`` products."""
    r = residual.copy()
    step = np.zeros_like(r)
    p = precondition(r, face)
    rho = r @ p
    target = tolerance * np.abs(r).max()
    step_weights = 0.0
    for iteration in range(1, limit + 1):
        image = rows.adjoint(p)
        product = rows.forward(image, face)
        curvature = p @ product
        if curvature <= 1e-14 * rho:  # a direction without curvature: dependent rows, or an unbounded dual
            break
        alpha = rho / curvature
        step += alpha * p
        step_weights = step_weights + alpha * image
        r -= alpha * product
        if np.abs(r).max() <= target:
            break
        scaled = precondition(r, face)
        rho, old = r @ scaled, rho
        p *= rho / old
        p += scaled
    return step, step_weights, iteration


def project(rows, residual, step, step_weights, backtracks):
    """The best of the projected steps: (new multipliers or None, decrease of the dual objective, rows clipped)."""
    lam, free = rows.lam, rows.free
    blocked = ~free & (lam + step < 0)
    if not blocked.any():
        decrease = residual @ step - 0.5 * np.vdot(step_weights, step_weights)
        return lam + step, decrease, 0
    size = 1.0
    for _ in range(backtracks):
        moved = np.where(free, lam + size * step, np.maximum(lam + size * step, 0.0))
        change = moved - lam
        image = rows.adjoint(change)
        decrease = residual @ change - 0.5 * np.vdot(image, image)
        if decrease > 0:
            return moved, decrease, int(np.sum(~free & (moved == 0) & (lam > 0)))
        size *= 0.5
    size = float((lam[blocked] / -step[blocked]).min())
    moved = np.where(free, lam + size * step, np.maximum(lam + size * step, 0.0))
    decrease = size * (residual @ step) - 0.5 * size**2 * np.vdot(step_weights, step_weights)
    return (moved, decrease, 1) if decrease > 0 else (None, 0.0, 0)
