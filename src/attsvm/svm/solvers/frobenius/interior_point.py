"""Batched interior point for the least-distance form of the SVM (CPU or CUDA).

    min 1/2 ||A^T u||^2 + 1/2 (1 - b^T u)^2,   u >= 0 (free on equality rows)      (Lawson and Hanson, chapter 23)

It has a solution whether the SVM has one or not. With kappa = 1 - b^T u: W = A^T u / kappa and lam = u / kappa when
kappa > 0; u is a ray (A^T u = 0, b^T u = 1) when kappa = 0. So one iteration serves both verdicts and nothing diverges.
"""

import torch


def interior_point(G, rows, iterations=30, target=1e-9):
    """Minimiser u and its slacks s by Mehrotra's predictor-corrector, to a complementarity of `target`.

    Returns (u, s, whether kappa is small: try u as a ray first, iterations taken).
    """
    b, present, free = rows.b, rows.present, rows.equal
    bound = present & ~free
    Q = G + b[:, :, None] * b[:, None, :]
    count = bound.sum(1).clamp(min=1)
    u = torch.where(bound, 1.0 / count[:, None], 0.0).to(G.dtype)
    s = bound.to(G.dtype)
    taken = 0
    for taken in range(1, iterations + 1):
        residual = torch.where(present, (Q @ u[..., None])[..., 0] - b - s, 0.0)
        mu = (u * s).sum(1) / count
        if bool(((mu < target) & (residual.abs().amax(1) < target)).all()):
            break
        safe_u, safe_s = torch.where(bound, u, 1.0), torch.where(bound, s, 1.0)
        diagonal = torch.where(bound, safe_s / safe_u, torch.where(present, 1e-13, 1.0))
        L = torch.linalg.cholesky_ex(Q + torch.diag_embed(diagonal)).L

        def direction(complement):
            right = torch.where(bound, complement / safe_u, 0.0) - residual
            du = torch.cholesky_solve(right[..., None], L)[..., 0]
            ds = torch.where(bound, (complement - safe_s * du) / safe_u, 0.0)
            du = torch.where(present, du, 0.0)
            return du, ds

        def longest(du, ds):
            ratio = torch.where(bound, torch.maximum(-du / safe_u, -ds / safe_s), 0.0).amax(1)
            return 1.0 / ratio.clamp(min=1.0)

        du, ds = direction(-u * s)
        step = longest(du, ds)[:, None]
        ahead = ((u + step * du) * (s + step * ds)).sum(1) / count
        centre = (ahead / mu.clamp(min=1e-300)).clamp(0, 1) ** 3 * mu
        du, ds = direction(centre[:, None] - u * s - du * ds)
        ratio = torch.where(bound, torch.maximum(-du / safe_u, -ds / safe_s), 0.0).amax(1)
        step = (1.0 / (ratio / 0.995).clamp(min=1.0))[:, None]
        good = torch.isfinite(du).all(1) & torch.isfinite(ds).all(1)
        u = torch.where(good[:, None], u + step * du, u)
        s = torch.where(good[:, None], s + step * ds, s)
        u, s = (torch.where(bound, x.clamp(min=1e-300), x) for x in (u, s))
    return u, s, 1.0 - (b * u).sum(1) < 1e-6, taken
