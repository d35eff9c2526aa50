"""Candidates for a solution, judged in normalised rows, the Newton polish that makes them, and rays.

The interior point stops at a moderate gap. There the rank of W and the active rows can usually be read off
(`identify`), and with both known the optimality conditions are smooth equations that a few Newton steps solve to
round-off (`polish`). A wrong guess does no harm: every pair carries its error, and only a smaller one replaces it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from attsvm.svm.solvers.nuclear.interior import Iterate
from attsvm.svm.solvers.nuclear.rows import ReducedRows

# Singular values of M this close to 1 belong to the face of the dual ball on which every solution lies.
FACE = 1e-7
_STEPS = 4  # of Newton's method
_PROXIMAL = 1e-11  # weight of the proximal terms


@dataclass(eq=False)
class Candidate:
    """A primal-dual pair in normalised rows, scaled to be feasible, with its error.

    Attributes:
        weights: ``[batch, rx, rz]``.
        duals: ``[batch, m]``.
        error: relative gap plus largest relative violation, ``[batch]``.
    """

    weights: Tensor
    duals: Tensor
    error: Tensor

    @classmethod
    def nothing(cls, rows: ReducedRows) -> Candidate:
        """W = 0, lam = 0, with infinite error: anything improves it."""
        weights = rows.differences.new_zeros(len(rows), rows.differences.shape[-1], rows.queries.shape[-1])
        error = torch.full_like(rows.right_hand_side[:, 0], torch.inf)
        return cls(weights, torch.zeros_like(rows.right_hand_side), error)

    @classmethod
    def of(cls, rows: ReducedRows, weights: Tensor, duals: Tensor) -> Candidate:
        """Clip the multipliers, divide them by ||M||, divide W by its smallest margin where allowed, measure the error.

        W may be rescaled when every row asks for a positive margin; otherwise the violation stays and counts as error.
        """
        b, real = rows.right_hand_side, rows.present
        duals = torch.where(rows.equalities, duals, duals.clamp(min=0.0)) * real
        sizes = _singular_values(_finite(torch.cat([rows.combine(duals), weights]).clamp(-1e100, 1e100)))
        spectral, nuclear = sizes[: len(rows), 0], sizes[len(rows) :].sum(-1)
        duals = duals / spectral.clamp(min=1.0)[:, None]
        margins = rows.margins(weights)
        scalable = (~real | (~rows.equalities & (b > 0))).all(-1)
        theta = torch.where(real, margins / b, torch.inf).amin(-1)
        theta = torch.where(scalable & (theta > 0) & torch.isfinite(theta), theta, 1.0)
        error = _error(rows, margins / theta[:, None], nuclear / theta, duals)
        return cls(weights / theta[:, None, None], duals, error)

    def improve(self, where: Tensor, other: Candidate) -> None:
        """Take `other` (for the problems `where`) wherever its error is smaller."""
        better = other.error < self.error[where]
        index = where[better]
        for field in fields(self):
            getattr(self, field.name)[index] = getattr(other, field.name)[better]


def rounding(rows: ReducedRows, weights: Tensor) -> Tensor:
    """Largest relative error that float64 may make in a tight margin, 8 eps ||W||_F / |b_k| in unit rows.

    No verdict can be sharper.
    """
    b, doubt = rows.right_hand_side, 8 * torch.finfo(weights.dtype).eps * weights.flatten(1).norm(dim=1)[:, None]
    tight = rows.present & (b != 0) & (rows.margins(weights) < b + doubt)
    return torch.where(tight, doubt / b.abs(), 0.0).amax(-1)


def from_iterate(rows: ReducedRows, it: Iterate) -> Candidate:
    """The interior point's own pair: W = 2 Y_12."""
    rx = rows.differences.shape[-1]
    return Candidate.of(rows, 2 * it.y[:, :rx, rx:], it.duals)


def proved_unique(rows: ReducedRows, pair: Candidate) -> Tensor:
    """Where W is proved to be the only solution, ``[batch]``.

    Every solution is E B E^T, E the null space of S = I - F(lam), and meets rows with lam_k > 0 with equality. So W is
    unique when L_k = svec(E^T F_k E) (rows with lam_k > 0, E from every singular value of M close to 1) has full column
    rank.
    """
    u, s, vh = torch.linalg.svd(rows.combine(pair.duals))
    held = rows.equalities | (pair.duals > 1e-9 * pair.duals.amax(-1, keepdim=True))
    count = (s > 1 - FACE).sum(-1)
    out = torch.zeros_like(rows.equalities[:, 0])
    for r in sorted(set(count.tolist())):
        if r == 0:
            continue
        where = torch.nonzero(count == r)[:, 0]
        i, j = torch.triu_indices(r, r, device=u.device)
        alpha, beta = rows.differences[where] @ u[where][..., :r], rows.queries[where] @ vh[where].mT[..., :r]
        pairs = (alpha[..., i] * beta[..., j] + alpha[..., j] * beta[..., i]) * held[where][..., None]
        sizes = torch.linalg.eigvalsh(pairs.mT @ pairs)
        out[where] = sizes[:, 0] > 1e-11 * sizes[:, -1]
    return out


def _shares(rows: ReducedRows, it: Iterate) -> tuple[Tensor, Tensor]:
    """Weight of Y in each singular pair of M, and 1 - s: complementary, so one of the two tends to 0."""
    rx = rows.differences.shape[-1]
    u, s, vh = torch.linalg.svd(rows.combine(it.duals))
    u, v, y = u[..., : s.shape[-1]], vh.mT[..., : s.shape[-1]], it.y
    share = ((y[:, :rx, :rx] @ u) * u).sum(1) + ((y[:, rx:, rx:] @ v) * v).sum(1)
    share = share + 2 * ((y[:, :rx, rx:] @ v) * u).sum(1)
    return 0.5 * share, 1 - s


def identify(rows: ReducedRows, it: Iterate) -> tuple[Tensor, Tensor]:
    """Active rows (lam_k beats sigma_k) and rank (singular values of W beat 1 - those of M), on their own scales."""
    share, distance = _shares(rows, it)
    rank = (share / it.y.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True) > distance).sum(-1)
    active = it.duals / it.duals.abs().amax(-1, keepdim=True) > it.slacks
    return (active & rows.present) | rows.equalities, rank


def identify_by_gap(rows: ReducedRows, it: Iterate) -> tuple[Tensor, Tensor]:
    """As `identify`, split where the sorted ratios jump most: for multipliers of very different size."""
    share, distance = _shares(rows, it)
    ratio = share.clamp(min=1e-300).log() - distance.clamp(min=1e-17).log()
    ratio = torch.cat([ratio, torch.full_like(ratio[:, :1], -37.0)], dim=-1).sort(-1, descending=True).values
    rank = (ratio[:, :-1] - ratio[:, 1:]).argmax(-1) + 1
    ratio = it.duals.abs().clamp(min=1e-300).log() - it.slacks.clamp(min=1e-300).log()
    ratio = torch.where(rows.present & ~rows.equalities, ratio, -700.0)
    order = ratio.clamp(min=-40.0).sort(-1, descending=True).values
    order = torch.cat([order, torch.full_like(order[:, :1], -40.0)], dim=-1)
    jump = (order[:, :-1] - order[:, 1:]).argmax(-1, keepdim=True)
    return (ratio >= order.gather(1, jump)) | rows.equalities, rank


def _complement(u: Tensor, s: Tensor, vh: Tensor, r: int) -> Tensor:
    """Inverse of S = I - F(lam) on the complement of its r smallest eigenvectors, from the full SVD of M."""
    rx, rz, k = u.shape[-1], vh.shape[-1], s.shape[-1]
    v = vh.mT
    minus = 1 / (1 - s[:, None, r:]).abs().clamp(min=1e-12)  # eigenvectors [u; v] / sqrt 2, eigenvalues 1 - s
    plus = 1 / (1 + s[:, None, :])  # eigenvectors [u; -v] / sqrt 2, eigenvalues 1 + s
    low = torch.cat([u[..., r:k], v[..., r:k]], dim=1)
    high = torch.cat([u[..., :k], -v[..., :k]], dim=1)
    g = 0.5 * ((low * minus) @ low.mT + (high * plus) @ high.mT)
    if rx > k:
        g[:, :rx, :rx] += u[..., k:] @ u[..., k:].mT
    if rz > k:
        g[:, rx:, rx:] += v[..., k:] @ v[..., k:].mT
    return g


def _newton(rows: ReducedRows, duals: Tensor, core: Tensor, r: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A few Newton steps on rows that are all active (padding excepted).

    `core` is Y of the interior point. Values are divided by the optimal value, so that tr B = 1 at the solution.

    Returns:
        lam ``[batch, m]``, W ``[batch, rx, rz]``, the smallest eigenvalue of B ``[batch]``, the singular values of M.
    """
    batch, m = duals.shape
    real = rows.present
    duals = duals * real
    # Unknowns lam_k / unit_k: nearly infeasible problems have large, cancelling multipliers.
    unit = duals.abs()
    unit = torch.maximum(unit, 0.01 * unit.amax(-1, keepdim=True)).clamp(min=1e-300)
    value = core.diagonal(dim1=-2, dim2=-1).sum(-1).clamp(min=1e-300)
    b = torch.where(real, rows.right_hand_side, 0.0) / value[:, None]
    core = core / value[:, None, None]
    i, j = torch.triu_indices(r, r, device=duals.device)
    weight = torch.where(i == j, 1.0, 2.0).to(duals)
    size = m + i.numel()
    done = False
    for step in range(_STEPS + 1):
        u, s, vh = torch.linalg.svd(_finite(rows.combine(duals)))
        e = torch.cat([u[..., :r], vh.mT[..., :r]], dim=1) * 0.5**0.5
        small = e.mT @ core @ e  # B
        if step == _STEPS or done:
            break
        alpha, beta = rows.differences @ u[..., :r], rows.queries @ vh.mT[..., :r]
        pairs = 0.5 * unit[..., None] * (alpha[..., i] * beta[..., j] + alpha[..., j] * beta[..., i]) * weight
        system = duals.new_zeros(batch, size, size)
        rotation = 2 * rows.schur(e @ small @ e.mT, _complement(u, s, vh, r))
        system[:, :m, :m] = rotation * unit[:, :, None] * unit[:, None, :]
        system[:, :m, m:], system[:, m:, :m] = pairs, pairs.mT
        diagonal = system.diagonal(dim1=-2, dim2=-1)
        diagonal[:, :m] += torch.where(real, _PROXIMAL, 1.0)
        diagonal[:, m:] -= _PROXIMAL * weight
        known = torch.where(i == j, 1 - s[:, i], 0.0) - _PROXIMAL * weight * small[:, i, j]
        rhs = torch.cat([b * unit, known], dim=1)
        x, _ = torch.linalg.solve_ex(system, rhs[..., None])
        x = _finite(x[..., 0])
        change = x[:, :m] * unit
        duals = duals + change
        half = x[:, m:]
        moved = change.abs().amax(-1) / duals.abs().amax(-1) + (half - small[:, i, j]).abs().amax(-1)
        done = bool(((moved < 1e-8) | (moved > 10)).all())  # quadratic: the next error is 1e-16
        small = duals.new_zeros(batch, r, r)
        small[:, i, j], small[:, j, i] = half, half
        core = e @ small @ e.mT
    weights = (u[..., :r] @ small @ vh[:, :r]) * value[:, None, None]
    return duals, weights, torch.linalg.eigvalsh(_finite(small))[:, 0], s


def polish(rows: ReducedRows, it: Iterate, active: Tensor, rank: Tensor) -> tuple[Candidate, Tensor, Tensor]:
    """Polish every problem on its own active rows and rank; returns candidates, and repaired active rows and ranks."""
    best = Candidate.nothing(rows)
    new_active, new_rank = active.clone(), rank.clone()
    for r in sorted(set(rank.tolist())):
        if r == 0:
            continue
        where = torch.nonzero(rank == r)[:, 0]
        sub, act = rows[where], active[where]
        m = max(int(act.sum(-1).max()), 1)
        index = torch.argsort(~act, dim=-1, stable=True)[:, :m]
        on = act.gather(1, index)
        vectors = (sub.differences, sub.queries)
        left, right = (x.gather(1, index[..., None].expand(-1, -1, x.shape[-1])) * on[..., None] for x in vectors)
        equal = sub.equalities.gather(1, index) & on
        picked = ReducedRows(left, right, sub.right_hand_side.gather(1, index), on & ~equal, equal)
        some, weights, low, s = _newton(picked, it.duals[where].gather(1, index), it.y[where], r)
        duals = torch.zeros_like(sub.right_hand_side).scatter_(1, index, some * on)
        trial = Candidate.of(sub, weights, duals)
        best.improve(where, trial)
        # Repair for the next attempt: rows that turned negative leave, violated rows enter; the rank follows B and M.
        slack = sub.margins(weights) - sub.right_hand_side
        size = duals.abs().amax(-1, keepdim=True)
        negative = (duals < -1e-12 * size) & ~sub.equalities
        new_active[where] = (act & ~negative) | ((slack < -1e-12) & sub.present)
        over = (s[:, r:] > 1 + 1e-12).sum(-1)
        new_rank[where] = torch.where(low < 0, r - 1, r + over)
    return best, new_active, new_rank


def _finite(x: Tensor) -> Tensor:
    """x with 0 in place of NaN and infinities: decompositions raise on those."""
    return torch.nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0)


def _error(rows: ReducedRows, margins: Tensor, nuclear: Tensor, duals: Tensor) -> Tensor:
    """Relative gap plus the largest violation, relative to b_k (in normalised rows where b_k = 0)."""
    b = rows.right_hand_side
    slack = margins - b
    violation = torch.where(rows.equalities, slack.abs(), -slack) / torch.where(b == 0, 1.0, b.abs())
    violation = torch.where(rows.present, violation, 0.0).amax(-1).clamp(min=0.0)
    value = (b * duals).sum(-1)
    gap = (nuclear - value).abs() / torch.maximum(nuclear, value.abs()).clamp(min=1e-300)
    return torch.nan_to_num(gap + violation, nan=torch.inf)


def _singular_values(x: Tensor) -> Tensor:
    """On CUDA through the full decomposition, the only one that is batched for small rectangular matrices."""
    return torch.linalg.svdvals(x) if x.device.type == "cpu" else torch.linalg.svd(x)[1]


_RESIDUAL = 2e-14  # ||sum lam_k A_k||_F <= _RESIDUAL * sum |lam_k| ||A_k||_F counts as zero


def find_ray(rows: ReducedRows) -> Tensor | None:
    """A ray ``[m]`` of one normalised problem (batch 1), scaled to sum_k |lam_k| <= 1; None where none is found.

        min_{lam >= 0}  || sum_k lam_k A_k ||_F^2 + (b^T lam - 1)^2

    is 0 exactly when a ray exists. Otherwise, with residual (R, rho) at the optimum, W = R / (-rho) meets every row:
    the same solve proves feasibility. Equality rows enter with both signs. The active-set method of Lawson and Hanson
    ends on an exact least-squares solution, so the residual of a true ray is round-off.
    """
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
