"""Rows of a batch, scaled by powers of two, the way back, and from a guess of the active ones to an answer on them.

`polish` solves G_act lam = b_act by masked Cholesky, moves the rows whose multiplier or margin has the wrong sign, and
refines with the rows; `polish_ray` corrects u - G_act^-1 A (A^T u) until A^T u = 0 to round-off. Both check what they
return.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.base import BOUND, EPSILON, RAY, RowList

_ROUNDS = 12  # of `polish`


@dataclass(frozen=True, eq=False)
class ScaledRows(RowList):
    """Rows a_k = d_k z_k^T with ||d_k|| and ||z_k|| in [1, 2), scaled by powers of two (exact)."""

    reach: Tensor  #: the problem's largest |b| in the units of each row, ``[batch, m]``


class Guess(NamedTuple):
    """Where the active rows of each problem, or a ray, may be; `polish` decides."""

    multipliers: Tensor  #: a row is guessed active where this beats its slack, ``[batch, m]``
    slacks: Tensor  #: ``[batch, m]``
    hopeless: Tensor  #: where the multipliers look like a ray, ``[batch]``
    steps: Tensor  #: that the guess took, ``[batch]``


@dataclass(frozen=True, eq=False)
class Scaling:
    """What leads from scaled rows back to the problem.

    With W' and lam' the scaled answer, W = W' / unit and lam = lam' factor / unit, or lam' factor unit for a ray.
    """

    index: Tensor  #: place of each row in n * T, ``[batch, m]``
    factor: Tensor  #: row scale, ``[batch, m]``
    unit: Tensor  #: scale of the right-hand sides, ``[batch, 1]``
    lone: Tensor  #: a ray of zero rows that ask for something, ``[batch, m]``; 0 where there are none


def scale(problem: AttentionSVM, m: int) -> tuple[ScaledRows, Scaling]:
    """The rows of every problem in a list of m (padding where fewer exist), scaled, and the way back.

    A zero row holds by itself or is a ray by itself, and is taken out.
    """
    index = torch.argsort((~problem.rows).flatten(1).to(torch.int8), dim=1, stable=True)[:, :m]
    all_rows = RowList.of(problem, index)
    d, z, b = all_rows.differences, all_rows.queries, all_rows.right_hand_side
    d_norm, z_norm = d.norm(dim=2), z.norm(dim=2)
    zero = (d_norm * z_norm) == 0
    hopeless = all_rows.asking & zero
    lone = torch.where(hopeless, 1.0 / torch.where(b == 0, 1.0, b), 0.0) / hopeless.sum(1, keepdim=True).clamp(min=1)
    present, asks = all_rows.present & ~zero, all_rows.asking & ~zero
    d_scale, z_scale = _power_of_two(d_norm), _power_of_two(z_norm)
    factor = z_scale * d_scale
    b = torch.where(present, b, 0.0)
    unit = _power_of_two(torch.where(asks, (b * factor).abs(), 0.0).amax(1, keepdim=True))
    widest = torch.where(asks, b.abs(), 0.0).amax(1, keepdim=True)
    scaled = ScaledRows(
        differences=torch.where(present[..., None], d * d_scale[..., None], 0.0),
        queries=z * z_scale[..., None],
        right_hand_side=b * factor * unit,
        inequalities=all_rows.inequalities & ~zero,
        equalities=all_rows.equalities & ~zero,
        reach=widest * factor * unit,
    )
    return scaled, Scaling(index, factor, unit, lone)


def _power_of_two(x: Tensor) -> Tensor:
    """The power of two p with p x in [1, 2); 1 where x = 0."""
    exponent = torch.frexp(x).exponent
    return torch.where(x > 0, torch.ldexp(torch.ones_like(x), 1 - exponent), 1.0)


def polish(gram: Tensor, rows: ScaledRows, active: Tensor, accuracy: float) -> tuple[Tensor, Tensor, Tensor]:
    """W, lam and where they are optimal to `accuracy`, by a primal-dual active set from the rows `active`."""
    batch = len(gram)
    weights = gram.new_zeros(batch, rows.differences.shape[2], rows.queries.shape[2])
    multipliers = torch.zeros_like(rows.right_hand_side)
    good = torch.zeros(batch, dtype=torch.bool, device=gram.device)
    left = torch.arange(batch, device=gram.device)
    for _ in range(_ROUNDS):
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
