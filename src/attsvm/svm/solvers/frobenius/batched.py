"""Frobenius attention SVMs, many small ones at once, in PyTorch (CPU or CUDA).

    min 1/2 ||W||_F^2   s.t.   d_it^T W z_i >= b_it  (rows),   d_it^T W z_i = b_it  (equal)

1. A guess of the active rows (or of a ray): on CUDA by `active_set` (one warp a problem), elsewhere, and for what is left,
   by `interior_point`.
2. `polish` turns the guess into an answer and checks it on the rows.
3. What fails every check (degenerate or nearly infeasible problems) goes to `compiled`, on the CPU.
"""

from dataclasses import dataclass

import torch

from attsvm.svm.solvers.frobenius.active_set_cuda import active_set, supported
from attsvm.svm.solvers.frobenius.interior_point import interior_point
from attsvm.svm.solvers.frobenius.polish import polish, polish_ray
from attsvm.svm.solvers.frobenius.rows import gather


@dataclass(frozen=True)
class BatchSolution:
    """As `compiled.BatchSolution`, tensors on the device of the data; `stage` [B]: 0 no work, 1 active set, 2 interior
    point, 3 `compiled`."""

    weights: torch.Tensor
    duals: torch.Tensor
    status: torch.Tensor
    steps: torch.Tensor
    stage: torch.Tensor


def solve(D, rows, Z, b=1.0, equal=None, accuracy=1e-10, chunk=None):
    """Solve B problems given as float64 tensors on one device; arguments as in `compiled.solve`.

    chunk: problems at a time (None: as many as keep each m x m batch near 1 GB; about six such batches are alive at once).
    """
    B, n, T, d = D.shape
    equal = torch.zeros_like(rows) if equal is None else equal
    present = rows | equal
    b = torch.as_tensor(b, dtype=D.dtype, device=D.device).broadcast_to(B, n, T)
    m = max(1, int(present.flatten(1).sum(1).max())) if B else 1
    chunk = chunk or max(1, int(1e9 / (8 * m * m)))
    weights = D.new_zeros(B, d, Z.shape[2])
    duals = D.new_zeros(B, n, T)
    status = torch.full((B,), 2, dtype=torch.int8, device=D.device)
    steps, stage = (torch.zeros(B, dtype=torch.int64, device=D.device) for _ in range(2))
    for first in range(0, B, chunk):
        part = slice(first, first + chunk)
        answer = solve_chunk(D[part], present[part], equal[part], Z[part], b[part], m, accuracy)
        weights[part], duals[part], status[part], steps[part], stage[part] = answer
    left = (status == 2).nonzero()[:, 0]
    if left.numel():
        from attsvm.svm.solvers.frobenius import compiled  # Numba starts only where it is used

        answer = compiled.solve(*(x[left].cpu().numpy() for x in (D, rows, Z, b, equal)), accuracy=accuracy)
        for mine, theirs in ((weights, answer.weights), (duals, answer.duals), (status, answer.status)):
            mine[left] = torch.as_tensor(theirs, device=D.device)
        stage[left] = 3
    return BatchSolution(weights, duals, status, steps, stage)


def solve_chunk(D, present, equal, Z, b, m, accuracy):
    system, index, factor, unit, lone = gather(D, present, equal, Z, b, m)
    B, n, T, _ = D.shape
    G = system.gram()
    W = D.new_zeros(B, D.shape[3], Z.shape[2])
    lam = torch.zeros_like(system.b)
    broken = (lone != 0).any(1)
    trivial = ~(system.present & ((system.b > 0) | (system.equal & (system.b != 0)))).any(1)
    status = torch.where(broken, 1, torch.where(trivial, 0, 2)).to(torch.int8)
    steps, stage = (torch.zeros(B, dtype=torch.int64, device=D.device) for _ in range(2))
    for number, guess in ((1, active_set), (2, interior_point)):
        if number == 1 and not supported(G):
            continue
        left = (status == 2).nonzero()[:, 0]
        if left.numel() == 0:
            break
        whole = left.numel() == B
        part, Gp = (system, G) if whole else (system.take(left), G[left])
        u, s, hopeless, taken = guess(Gp, part)
        for attempt in (hopeless, ~hopeless):  # rays first where one is likely, then answers, then the other way round
            settle_rays(status, lam, left, Gp, part, u, s, attempt)
            settle(status, W, lam, left, Gp, part, u, s, ~attempt, accuracy)
        steps[left], stage[left] = taken, number
    # the ray has b'^T lam' = 1 in scaled units, b' = b factor unit
    lam = lam * torch.where((status == 1)[:, None], factor * unit, factor / unit)
    lam = torch.where(broken[:, None], lone, lam)
    W = torch.where((status == 1)[:, None, None], 0.0, W / unit[:, :, None])
    duals = D.new_zeros(B, n * T).scatter_(1, index, lam).view(B, n, T)
    return W, duals, status, steps, stage


def settle(status, W, lam, left, G, system, u, s, wanted, accuracy):
    """Polish the wanted ones of `left` that are still open, and write down those that pass."""
    some = (wanted & (status[left] == 2)).nonzero()[:, 0]
    if some.numel():
        part = system if some.numel() == len(u) else system.take(some)
        active = part.present & (part.equal | (u[some] > s[some]))
        found, multipliers, solved = polish(G if part is system else G[some], part, active, accuracy=accuracy)
        where = left[some[solved]]
        W[where], lam[where], status[where] = found[solved], multipliers[solved], 0


def settle_rays(status, lam, left, G, system, u, s, wanted):
    """The same for rays."""
    some = (wanted & (status[left] == 2)).nonzero()[:, 0]
    if some.numel():
        ray, proved = polish_ray(G[some], system.take(some), u[some], s[some])
        where = left[some[proved]]
        lam[where], status[where] = ray[proved], 1
