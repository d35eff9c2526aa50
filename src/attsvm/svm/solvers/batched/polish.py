"""From a guess of the active rows to an answer that holds on the rows themselves, batched.

`polish` solves G_act lam = b_act by masked Cholesky, moves the rows whose multiplier or margin has the wrong sign, and
refines with the rows; `polish_ray` corrects u - G_act^-1 A (A^T u) until A^T u = 0 to round-off. Both check what they
return.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from attsvm.svm.solvers.base import BOUND, EPSILON, RAY
from attsvm.svm.solvers.batched.rows import ScaledRows


def polish(
    gram: Tensor, rows: ScaledRows, active: Tensor, accuracy: float, rounds: int = 12
) -> tuple[Tensor, Tensor, Tensor]:
    """W, lam and where they are optimal to `accuracy`, by a primal-dual active set from the rows `active`."""
    batch = len(gram)
    weights = gram.new_zeros(batch, rows.differences.shape[2], rows.queries.shape[2])
    multipliers = torch.zeros_like(rows.right_hand_side)
    good = torch.zeros(batch, dtype=torch.bool, device=gram.device)
    left = torch.arange(batch, device=gram.device)
    for _ in range(rounds):
        inverse = _active_inverse(gram, active, ridge=1e-12)  # duplicates may make G_act singular
        lam = inverse(rows.right_hand_side)
        W = rows.combine(lam)
        for _ in range(2):
            correction = inverse(rows.right_hand_side - rows.margins(W))
            lam = lam + correction
            W = W + rows.combine(correction)
        margins = rows.margins(W)
        done, lam = _checked(rows, W, lam, margins, accuracy)
        weights[left[done]], multipliers[left[done]], good[left[done]] = W[done], lam[done], True
        keep = ~done & torch.isfinite(lam).all(1)
        if not bool(keep.any()):
            break
        wrong_sign = active & ~rows.equalities & (lam < 0)
        violated = rows.present & ~active & ((rows.right_hand_side - margins > 1e-12 * rows.reach) | rows.equalities)
        active = ((active & ~wrong_sign) | violated)[keep]
        left, rows, gram = left[keep], rows[keep], gram[keep]
    return weights, multipliers, good


def polish_ray(gram: Tensor, rows: ScaledRows, multipliers: Tensor, slacks: Tensor) -> tuple[Tensor, Tensor]:
    """Rays from multipliers u, with b^T ray = 1, and where they are rays: corrections remove what A^T u has left."""
    support = rows.present & (rows.equalities | (multipliers > slacks))
    ray, inverse = torch.where(support, multipliers, 0.0), _active_inverse(gram, support, ridge=1e-11)
    best, good = ray, torch.zeros(len(ray), dtype=torch.bool, device=ray.device)
    for _ in range(4):
        M = rows.combine(ray)
        norm, total, value = M.flatten(1).norm(dim=1), ray.abs().sum(1), (rows.right_hand_side * ray).sum(1)
        noise = (rows.right_hand_side * ray).abs().sum(1)
        accepted = (norm <= RAY * total) & (value > 1e-13 * noise) & (value > BOUND * norm) & ~good
        scaled = ray / torch.where(value > 0, value, 1.0)[:, None]
        best, good = torch.where(accepted[:, None], scaled, best), good | accepted
        ray = ray - inverse(rows.margins(M))
        ray = torch.where(rows.equalities, ray, ray.clamp(min=0.0))
    return best, good


def _active_inverse(gram: Tensor, active: Tensor, ridge: float) -> Callable[[Tensor], Tensor]:
    """right -> (G_act + ridge I)^-1 right_act, zero elsewhere; factored once."""
    both, diagonal = active[:, :, None] & active[:, None, :], torch.where(active, ridge, 1.0)
    factor = torch.linalg.cholesky_ex(torch.where(both, gram, 0.0) + torch.diag_embed(diagonal)).L
    return lambda right: torch.cholesky_solve(torch.where(active, right, 0.0)[..., None], factor)[..., 0]


def _checked(rows: ScaledRows, W: Tensor, lam: Tensor, margins: Tensor, accuracy: float) -> tuple[Tensor, Tensor]:
    """Where (W, lam) is optimal (margins, signs, stationarity and gap, on the rows), and lam, there without signs."""
    largest = lam.abs().amax(1, keepdim=True)
    signed = ((lam >= -1e-11 * largest) | rows.equalities).all(1)
    clipped = torch.where(rows.equalities, lam, lam.clamp(min=0.0))
    norm = W.flatten(1).norm(dim=1)
    missing = torch.where(rows.equalities, (rows.right_hand_side - margins).abs(), rows.right_hand_side - margins)
    # margins are known to about EPSILON ||W||; a row with b = 0 is only asked to hold to that
    missing = missing + EPSILON * norm[:, None] * torch.where(rows.right_hand_side == 0, -64.0, 2.0)
    feasible = ((missing <= 0.5 * accuracy * rows.reach) | ~rows.present).all(1)
    stationary = (W - rows.combine(clipped)).flatten(1).norm(dim=1) <= 0.3 * accuracy * norm
    gap = (norm**2 - (rows.right_hand_side * clipped).sum(1)).abs() <= accuracy * norm**2
    done = signed & feasible & stationary & gap
    return done, torch.where(done[:, None], clipped, lam)
