"""Rays of infeasible attention SVMs: lam >= 0 with sum_k lam_k A_k = 0 and b^T lam > 0 (Farkas).

    min_{lam >= 0}  || sum_k lam_k A_k ||_F^2 + (b^T lam - 1)^2

is 0 exactly when a ray exists. Otherwise, with residual (R, rho) at the optimum, W = R / (-rho) meets every row: the
same solve proves feasibility. Equality rows enter with both signs. The active-set method of Lawson and Hanson ends on
an exact least-squares solution, so the residual of a true ray is round-off.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from attsvm.svm.solvers.nuclear.rows import ReducedRows

_RESIDUAL = 2e-14  # ||sum lam_k A_k||_F <= _RESIDUAL * sum |lam_k| ||A_k||_F counts as zero


def find_ray(rows: ReducedRows) -> Tensor | None:
    """A ray ``[m]`` of one normalised problem (batch 1), scaled to sum_k |lam_k| <= 1; None where none is found."""
    from scipy.optimize import nnls  # slow to import, and few problems come here

    d, z, b = (x[0].cpu().numpy() for x in (rows.differences, rows.queries, rows.right_hand_side))
    real, equal = rows.present[0].cpu().numpy(), rows.equalities[0].cpu().numpy()
    index = np.concatenate([np.flatnonzero(real), np.flatnonzero(equal)])
    sign = np.concatenate([np.ones(real.sum()), -np.ones(equal.sum())])
    matrix = (d[index, :, None] * z[index, None, :]).reshape(len(index), -1).T * sign
    sides = b[index] * sign
    stacked = np.vstack([matrix, sides])
    if stacked.shape[0] > 2 * stacked.shape[1]:  # same normal equations, fewer rows
        q, stacked = np.linalg.qr(stacked)
        target = q[-1]
    else:
        target = np.zeros(stacked.shape[0])
        target[-1] = 1.0
    try:
        x, _ = nnls(stacked, target, maxiter=20 * stacked.shape[1])
    except RuntimeError:  # iteration limit: no verdict
        return None
    total = x.sum()
    if not (total > 0 and np.linalg.norm(matrix @ x) <= _RESIDUAL * total and sides @ x > 0.5):
        return None
    flat = np.zeros(len(b))
    np.add.at(flat, index, x * sign)
    return torch.from_numpy(flat).to(rows.right_hand_side) / max(total, 1e-300)
