"""Batched interior point for the least-distance form of the SVM (CPU or CUDA).

    min 1/2 ||A^T u||^2 + 1/2 (1 - b^T u)^2,   u >= 0 (free on equality rows)      (Lawson and Hanson, chapter 23)

It has a solution whether the SVM has one or not. With kappa = 1 - b^T u: W = A^T u / kappa and lam = u / kappa when
kappa > 0; u is a ray (A^T u = 0, b^T u = 1) when kappa = 0. So one iteration serves both verdicts and nothing diverges.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attsvm.svm.solvers.batched.rows import Guess, ScaledRows

_HOPELESS = 1e-6  # kappa below this: try u as a ray first


def interior_point(gram: Tensor, rows: ScaledRows, iterations: int = 30, target: float = 1e-9) -> Guess:
    """Minimiser u and its slacks s by Mehrotra's predictor-corrector, to a complementarity of `target`.

    Arguments:
        gram: Gram matrices of the rows, ``[batch, m, m]``.
        rows: scaled rows.
        iterations: at most so many, for the whole batch.
        target: complementarity and residual at which every problem may stop.
    """
    b, present, bound = rows.right_hand_side, rows.present, rows.inequalities
    Q = gram + b[:, :, None] * b[:, None, :]
    count = bound.sum(1).clamp(min=1)
    u = torch.where(bound, 1.0 / count[:, None], 0.0).to(gram.dtype)
    s = bound.to(gram.dtype)
    taken = 0
    while taken < iterations:
        taken += 1
        residual = torch.where(present, (Q @ u[..., None])[..., 0] - b - s, 0.0)
        mu = (u * s).sum(1) / count
        if bool(((mu < target) & (residual.abs().amax(1) < target)).all()):
            break
        newton = _Newton(Q, bound, present, u, s, residual)
        du, ds = newton.direction(-u * s)
        step = (1.0 / newton.blocking(du, ds).clamp(min=1.0))[:, None]
        ahead = ((u + step * du) * (s + step * ds)).sum(1) / count
        centre = (ahead / mu.clamp(min=1e-300)).clamp(0, 1) ** 3 * mu
        du, ds = newton.direction(centre[:, None] - u * s - du * ds)
        step = (1.0 / (newton.blocking(du, ds) / 0.995).clamp(min=1.0))[:, None]
        good = torch.isfinite(du).all(1) & torch.isfinite(ds).all(1)
        u = torch.where(good[:, None], u + step * du, u)
        s = torch.where(good[:, None], s + step * ds, s)
        u, s = (torch.where(bound, x.clamp(min=1e-300), x) for x in (u, s))
    steps = torch.full((len(u),), taken, dtype=torch.int64, device=u.device)
    return Guess(u, s, 1.0 - (b * u).sum(1) < _HOPELESS, steps)


class _Newton:
    """Newton's equations at (u, s), factored once for predictor and corrector."""

    def __init__(self, Q: Tensor, bound: Tensor, present: Tensor, u: Tensor, s: Tensor, residual: Tensor) -> None:
        self.bound, self.present, self.residual = bound, present, residual
        self.u, self.s = torch.where(bound, u, 1.0), torch.where(bound, s, 1.0)
        diagonal = torch.where(bound, self.s / self.u, torch.where(present, 1e-13, 1.0))
        self.L = torch.linalg.cholesky_ex(Q + torch.diag_embed(diagonal)).L

    def direction(self, complement: Tensor) -> tuple[Tensor, Tensor]:
        """(du, ds) with u ds + s du = complement on bound rows."""
        right = torch.where(self.bound, complement / self.u, 0.0) - self.residual
        du = torch.cholesky_solve(right[..., None], self.L)[..., 0]
        ds = torch.where(self.bound, (complement - self.s * du) / self.u, 0.0)
        return torch.where(self.present, du, 0.0), ds

    def blocking(self, du: Tensor, ds: Tensor) -> Tensor:
        """1 / the longest step that keeps u and s positive, ``[batch]``."""
        return torch.where(self.bound, torch.maximum(-du / self.u, -ds / self.s), 0.0).amax(1)
