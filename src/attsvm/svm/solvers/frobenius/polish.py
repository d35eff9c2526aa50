"""From a guess of the active rows to an answer that holds on the rows themselves, batched.

`polish` solves G_act lam = b_act by masked Cholesky, moves the rows whose multiplier or margin has the wrong sign, and
refines with the rows; `polish_ray` corrects u - G_act^-1 A (A^T u) until A^T u = 0 to round-off. Both check what they return.
"""

import torch

EPSILON = 2.0**-52
RAY = 1e-12  # accepted ||sum lam_k A_k|| / sum lam_k ||A_k|| of a ray
BOUND = 1e10  # a ray is believed when it proves ||W|| > BOUND, in units of the largest b_k / ||A_k||


def solve_active(G, active, right, ridge=0.0):
    """lam = G_act^-1 right_act, zero elsewhere; returns a function that solves again with the same factor."""
    both = active[:, :, None] & active[:, None, :]
    diagonal = torch.where(active, ridge, 1.0)
    L = torch.linalg.cholesky_ex(torch.where(both, G, 0.0) + torch.diag_embed(diagonal)).L

    def again(x):
        return torch.cholesky_solve(torch.where(active, x, 0.0)[..., None], L)[..., 0]

    return again(right), again


def check_solution(rows, W, lam, accuracy):
    """Which (W, lam) are optimal: margins, signs, stationarity and gap, on the rows; returns also clipped lam, margins."""
    largest = lam.abs().amax(1, keepdim=True)
    signed = ((lam >= -1e-11 * largest) | rows.equal).all(1)
    clipped = torch.where(rows.equal, lam, lam.clamp(min=0.0))
    margins = rows.forward(W)
    norm = W.flatten(1).norm(dim=1)
    missing = torch.where(rows.equal, (rows.b - margins).abs(), rows.b - margins)
    missing = missing + EPSILON * norm[:, None] * torch.where(rows.b == 0, -64.0, 2.0)
    feasible = ((missing <= 0.5 * accuracy * rows.reach) | ~rows.present).all(1)
    stationary = (W - rows.adjoint(clipped)).flatten(1).norm(dim=1) <= 0.3 * accuracy * norm
    gap = (norm**2 - (rows.b * clipped).sum(1)).abs() <= accuracy * norm**2
    done = signed & feasible & stationary & gap
    return done, torch.where(done[:, None], clipped, lam), margins


def polish(G, rows, active, rounds=12, accuracy=1e-10):
    """Primal-dual active set from `active`; returns (W, lam, good)."""
    B = G.shape[0]
    weights = G.new_zeros(B, rows.D.shape[2], rows.Z.shape[2])
    multipliers = torch.zeros_like(rows.b)
    good = torch.zeros(B, dtype=torch.bool, device=G.device)
    left = torch.arange(B, device=G.device)
    part, Gp = rows, G
    for _ in range(rounds):
        lam, again = solve_active(Gp, active, part.b, ridge=1e-12)  # duplicates may make G_act singular
        W = part.adjoint(lam)
        for _ in range(2):
            correction = again(part.b - part.forward(W))
            lam = lam + correction
            W = W + part.adjoint(correction)
        done, lam, margins = check_solution(part, W, lam, accuracy)
        weights[left[done]], multipliers[left[done]], good[left[done]] = W[done], lam[done], True
        keep = ~done & torch.isfinite(lam).all(1)
        if not bool(keep.any()):
            break
        wrong_sign = active & ~part.equal & (lam < 0)
        violated = part.present & ~active & ((part.b - margins > 1e-12 * part.reach) | part.equal)
        active = ((active & ~wrong_sign) | violated)[keep]
        left, part, Gp = left[keep], part.take(keep), Gp[keep]
    return weights, multipliers, good


def polish_ray(G, rows, u, s):
    """Rays from u: remove what A^T u has left, by corrections on its support; returns (ray with b^T ray = 1, good)."""
    support = rows.present & (rows.equal | (u > s))
    ray, (_, again) = torch.where(support, u, 0.0), solve_active(G, support, rows.b, ridge=1e-11)
    best, good = ray, torch.zeros(len(u), dtype=torch.bool, device=u.device)
    for _ in range(4):
        M = rows.adjoint(ray)
        norm, total, value = M.flatten(1).norm(dim=1), ray.abs().sum(1), (rows.b * ray).sum(1)
        noise = (rows.b * ray).abs().sum(1)
        accepted = (norm <= RAY * total) & (value > 1e-13 * noise) & (value > BOUND * norm) & ~good
        scaled = ray / torch.where(value > 0, value, 1.0)[:, None]
        best, good = torch.where(accepted[:, None], scaled, best), good | accepted
        ray = ray - again(rows.forward(M))
        ray = torch.where(rows.equal, ray, ray.clamp(min=0.0))
    return best, good
