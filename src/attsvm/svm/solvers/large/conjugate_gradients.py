"""Conjugate gradients in the space of W."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def conjugate_gradients(
    product: Callable[[np.ndarray], np.ndarray], right: np.ndarray, reduction: float, limit: int
) -> tuple[np.ndarray, bool]:
    """Solve ``product(x) = right`` for a positive semidefinite operator on matrices ``[d, dq]``.

    Returns:
        x after at most `limit` products, and whether the squared residual fell below `reduction` times the first one. A
        direction without curvature ends the iteration: a singular system that is consistent may stop short of it.
    """
    residual, x = right.copy(), np.zeros_like(right)
    p = residual.copy()
    rho = np.vdot(residual, residual)
    target = reduction * rho
    for _ in range(limit):
        if rho <= target:
            break
        image = product(p)
        curvature = np.vdot(p, image)
        if curvature <= 0:
            break
        alpha = rho / curvature
        x += alpha * p
        residual -= alpha * image
        rho, old = np.vdot(residual, residual), rho
        p *= rho / old
        p += residual
    return x, bool(rho <= target)
