"""Batched primal-dual interior point for the nuclear attention SVM (HKM direction, second-order corrector).

    dual    max b^T lam     S = I - F(lam) psd,  lam >= 0        F(lam) = [[0, M], [M^T, 0]],  M = sum lam_k d_k z_k^T
    primal  min tr Y        <F_k, Y> - sigma_k = b_k,  Y psd, sigma >= 0            W = 2 Y_12,  <F_k, Y> = d_k^T W z_k
    path    Y S = mu I,  lam_k sigma_k = mu

S depends on lam alone, so the dual is feasible throughout, and a full step makes the primal feasible. Equality rows
have no sigma. Newton's equations reduce to the Schur matrix  H_kl = tr(F_k Y F_l S^-1) + diag(sigma/lam)  of order m
(`ReducedRows.schur`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from attsvm.svm.solvers.nuclear.rows import ReducedRows


@dataclass(eq=False)
class Iterate:
    """State of the interior point for a batch: enough to stop, to continue and to polish.

    Attributes:
        duals: lam, ``[batch, m]``.
        slacks: sigma, ``[batch, m]``.
        y: Y, ``[batch, rx + rz, rx + rz]``.
        gap: relative gap tr Y - b^T lam plus the largest miss of a row, ``[batch]``.
        step: length of the last step, ``[batch]``.
        iterations: ``[batch]``.
        stalled: where float64 makes no further progress, ``[batch]``.
        diverged: where the dual value passed its limit: candidates for a ray, ``[batch]``.
    """

    duals: Tensor
    slacks: Tensor
    y: Tensor
    gap: Tensor
    step: Tensor
    iterations: Tensor
    stalled: Tensor
    diverged: Tensor

    def __getitem__(self, index: Tensor) -> Iterate:
        return Iterate(*(getattr(self, field.name)[index] for field in fields(self)))

    def clone(self) -> Iterate:
        """A copy that shares no memory."""
        return Iterate(*(getattr(self, field.name).clone() for field in fields(self)))

    def store(self, index: Tensor, other: Iterate) -> None:
        """Overwrite the problems `index` by those of `other`."""
        for field in fields(self):
            getattr(self, field.name)[index] = getattr(other, field.name)


def pencil(rows: ReducedRows, duals: Tensor) -> Tensor:
    """F(lam) = [[0, M], [M^T, 0]]."""
    rx, rz = rows.differences.shape[-1], rows.queries.shape[-1]
    out = duals.new_zeros(len(rows), rx + rz, rx + rz)
    m = rows.combine(duals)
    out[:, :rx, rx:], out[:, rx:, :rx] = m, m.mT
    return out


def start(rows: ReducedRows) -> Iterate:
    """lam a multiple of one with ||M||_F <= 0.9, Y and sigma on the central path of mu = 1."""
    batch = len(rows)
    p = rows.differences.shape[-1] + rows.queries.shape[-1]
    ones = (~rows.equalities).to(rows.right_hand_side)
    size = rows.combine(ones * rows.present).flatten(1).norm(dim=1).clamp(min=1.0)
    duals = ones * (0.9 / size)[:, None]
    eye = torch.eye(p, dtype=size.dtype, device=size.device)
    y = torch.cholesky_inverse(torch.linalg.cholesky(eye - pencil(rows, duals)))
    slacks = torch.where(rows.equalities, 0.0, 1.0 / duals.clamp(min=1e-300))
    no = torch.zeros(batch, dtype=torch.bool, device=size.device)
    count = torch.zeros(batch, dtype=torch.long, device=size.device)
    return Iterate(duals, slacks, y, size.new_full((batch,), torch.inf), size.new_ones(batch), count, no, no.clone())


def _longest(inverse: Tensor, change: Tensor) -> Tensor:
    """Largest t with L L^T + t dX psd, from L^-1: 1 / lambda_max(-L^-1 dX L^-T)."""
    full = inverse @ change @ inverse.mT
    low = torch.linalg.eigvalsh(torch.nan_to_num(full, nan=0.0, posinf=0.0, neginf=0.0))[..., 0]
    return torch.where(low < 0, -1 / low, torch.inf)


def _longest_vector(x: Tensor, change: Tensor, free: Tensor) -> Tensor:
    """Largest t with x + t change >= 0 where not free."""
    ratio = torch.where((change < 0) & ~free, -x / change, torch.inf)
    return ratio.amin(-1)


def _step(rows: ReducedRows, it: Iterate, limit: float) -> Iterate:
    """One predictor-corrector step of every problem; those that fail stay where they are, stalled."""
    lam, sig, y, free, b = it.duals, it.slacks, it.y, rows.equalities, rows.right_hand_side
    batch = len(lam)
    p, rx = y.shape[-1], rows.differences.shape[-1]
    eye = torch.eye(p, dtype=y.dtype, device=y.device)
    s = eye - pencil(rows, lam)
    lower, bad = torch.linalg.cholesky_ex(torch.cat([s, y]))
    fail = (bad[:batch] != 0) | (bad[batch:] != 0)
    inverse = torch.linalg.solve_triangular(lower, eye.expand(2 * batch, p, p), upper=False)
    g = inverse[:batch].mT @ inverse[:batch]
    inv_lam = torch.where(free, 0.0, 1 / lam)
    count = p + (~free).sum(-1)
    mu = ((y * s).sum((-1, -2)) + (lam * sig).sum(-1)) / count

    h = rows.schur(y, g)
    diagonal = h.diagonal(dim1=-2, dim2=-1)
    ratio_sig = sig * inv_lam
    diagonal += ratio_sig
    scale = diagonal.clamp(min=1e-300).rsqrt()
    h.mul_(scale[:, :, None]).mul_(scale[:, None, :])
    h.diagonal(dim1=-2, dim2=-1).add_(1e-14)
    factor, bad = torch.linalg.cholesky_ex(h)
    fail |= bad != 0

    def direction(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """dlam, F(dlam), dY, dsigma towards Y = 0 and sigma = 0, from the solution x of the scaled Schur system."""
        dlam = x[..., 0] * scale
        f = pencil(rows, dlam)
        yfg = y @ f @ g
        return dlam, f, torch.add(yfg, yfg.mT).mul_(0.5).sub_(y), -sig - ratio_sig * dlam

    dlam, f, dy, dsig = direction(torch.cholesky_solve((b * scale)[..., None], factor))
    # A constant reduction needs as few iterations here as Mehrotra's, which costs two more eigenvalue problems; short
    # steps ask for more centring.
    target = torch.where(it.step < 0.1, 0.5, 0.1) * mu
    second = dy @ f @ g
    centre = torch.add(second, second.mT).mul_(0.5).add_(target[:, None, None] * g)
    centre_sig = (target[:, None] - dsig * dlam) * inv_lam
    right = ((b - 2 * rows.margins(centre[:, :rx, rx:]) + centre_sig) * scale)[..., None]
    x = torch.cholesky_solve(right, factor)
    dlam, f, dy, dsig = direction(x + torch.cholesky_solve(right - h @ x, factor))
    dy, dsig = dy.add_(centre), dsig.add_(centre_sig)
    both = _longest(inverse, torch.cat([-f, dy]))
    vector = _longest_vector(torch.cat([lam, sig]), torch.cat([dlam, dsig]), torch.cat([free, free]))
    both = torch.minimum(both, vector).view(2, batch)
    step = both.amin(0).clamp(max=1.0)
    ad, ap = ((0.9 + 0.09 * step) * both).clamp(max=1.0)

    new_lam, new_sig = lam + ad[:, None] * dlam, sig + ap[:, None] * dsig
    new_y = y + ap[:, None, None] * dy
    primal, dual = new_y.diagonal(dim1=-2, dim2=-1).sum(-1), (b * new_lam).sum(-1)
    short = rows.margins(new_y[:, :rx, rx:]) * 2 - new_sig - b
    gap = (primal - dual).abs() / torch.maximum(primal.abs(), dual.abs()).clamp(min=1e-12) + short.abs().amax(-1)
    fail |= ~(torch.isfinite(gap) & torch.isfinite(new_lam).all(-1)) | (step < 1e-8)
    new = Iterate(new_lam, new_sig, new_y, gap, step, it.iterations + 1, fail.clone(), dual > limit)
    if bool(fail.any()):
        new.store(fail, it[fail])
        new.stalled = fail
    return new


def run(
    rows: ReducedRows, it: Iterate, tolerance: float, max_iterations: int = 60, limit: float = torch.inf
) -> Iterate:
    """Iterate every problem until its gap is below `tolerance`, it stalls, or its dual value passes `limit`."""
    out = it.clone()
    live = torch.nonzero(~it.stalled & ~it.diverged & (it.gap > tolerance))[:, 0]
    sub_rows, sub, where = rows[live], it[live], live
    for _ in range(max_iterations):
        if where.numel() == 0:
            break
        sub = _step(sub_rows, sub, limit)
        go = ~(sub.stalled | sub.diverged | (sub.gap <= tolerance))
        left = int(go.sum())
        if left < 0.75 * where.numel():
            out.store(where, sub)
            sub_rows, sub, where = sub_rows[go], sub[go], where[go]
    if where.numel():
        out.store(where, sub)
    return out
