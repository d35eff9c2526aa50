"""Nuclear-norm attention SVMs, many at once: interior point, Newton polish, rays for the infeasible.

    min ||W||_*   s.t.   d_it^T W z_i >= b_it on `rows`,   = b_it on `equal`

Stages: reduce the rows; interior point to a moderate gap; Newton polish on the identified rank and active rows, kept only where the
certificate improves; problems whose polish fails go back to the interior point for a smaller gap, and are polished again. Problems whose dual
value grows without bound, or that do not converge, are tested for a ray.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, allow-incomplete-defs
from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attsvm.svm.solvers.nuclear import interior, polish
from attsvm.svm.solvers.nuclear.rays import find_ray
from attsvm.svm.solvers.nuclear.rows import Reduction, Rows, reduce, unit_rows

STAGES = (1e-5, 1e-7, 1e-9, 1e-12)  # gaps at which a polish is tried
TARGET = 1e-11  # error at which a problem needs no further stage
PATIENCE, LIMIT = 16, 1e4  # iterations of a stage, and normalised dual value, after which a ray is looked for


# What `NuclearResult.status` holds: the solver's own word, which the certificate checks.
SOLVED, INFEASIBLE, NOT_CONVERGED = range(3)


@dataclass(frozen=True)
class NuclearResult:
    """Solutions of a batch of problems; see `solve_nuclear`."""

    weights: Tensor  # [batch, d, dq]
    duals: Tensor  # [batch, n, T]; a ray where infeasible
    status: Tensor  # [batch] SOLVED, INFEASIBLE or NOT_CONVERGED
    error: Tensor  # [batch] relative gap plus largest relative violation, the solver's own word
    iterations: Tensor  # [batch] interior-point iterations
    polished: Tensor  # [batch] bool, whether the Newton polish gave the answer
    unique: Tensor  # [batch] bool, W proved to be the only solution (to round-off); False means not proved


def solve_nuclear(
    differences: Tensor,
    rows: Tensor,
    queries: Tensor,
    values: Tensor | None = None,
    equal: Tensor | None = None,
    *,
    tolerance: float = 1e-8,
    chunk: int | None = None,
) -> NuclearResult:
    """Solve a batch of nuclear-norm attention SVMs with primal and dual answers.

    Arguments:
        differences: x_i,selected - x_it, [batch, n, T, d]
        rows: True where an inequality row exists, [batch, n, T]
        queries: z_i, [batch, n, dq]
        values: b_it, [batch, n, T]; 1 by default
        equal: True where an equality row exists, [batch, n, T]
        tolerance: largest error that counts as solved
        chunk: problems handled together; chosen for the device by default

    Returns:
        `NuclearResult`. Duals are scaled to ||sum lam_it d_it z_i^T|| <= 1, so that their value bounds ||W||_* from below.

    >>> d, z = torch.tensor([[[[0.0, 0.0], [3.0, 4.0]]]], dtype=torch.float64), torch.tensor([[[2.0]]], dtype=torch.float64)
    >>> solve_nuclear(d, torch.tensor([[[False, True]]]), z).weights[0, :, 0]  # (x_1 - x_2) z^T / (||x_1 - x_2||^2 ||z||^2)
    tensor([0.0600, 0.0800], dtype=torch.float64)
    """
    d, z = differences.double(), queries.double()
    batch, n, length, dim = d.shape
    b = torch.ones_like(d[..., 0]) if values is None else values.double().expand(batch, n, length)
    fixed = torch.zeros_like(rows) if equal is None else equal
    if chunk is None:  # a few megabytes of Schur matrices fit a cache, a gigabyte keeps an accelerator busy
        budget = 6e5 if d.device.type == "cpu" else 2e8
        chunk = min(max(int(budget / max(1, n * length) ** 2), 1), 256 if d.device.type == "cpu" else 2**17)
    parts = [_solve(*(x[k : k + chunk] for x in (d, rows | fixed, z, b, fixed)), tolerance) for k in range(0, batch, chunk)]
    if not parts:
        parts = [_empty(d, z)]
    return NuclearResult(*(torch.cat([getattr(p, k) for p in parts]) for k in NuclearResult.__dataclass_fields__))


def _empty(d: Tensor, z: Tensor) -> NuclearResult:
    """W = 0, lam = 0: the answer when no row asks for anything."""
    batch, n, length, dim = d.shape
    count = torch.zeros(batch, dtype=torch.long, device=d.device)
    yes = torch.ones(batch, dtype=torch.bool, device=d.device)
    return NuclearResult(d.new_zeros(batch, dim, z.shape[-1]), d.new_zeros(batch, n, length), count, d.new_zeros(batch), count.clone(), ~yes, yes)


def _solve(d: Tensor, keep: Tensor, z: Tensor, b: Tensor, equal: Tensor, tolerance: float) -> NuclearResult:
    out = _empty(d, z)
    batch, n, length, _ = d.shape
    d, d_norm, z, z_norm = unit_rows(d, z)
    zero = keep & ((d_norm == 0) | (z_norm == 0)[..., None])
    impossible = zero & torch.where(equal, b != 0, b > 0)
    keep, equal = keep & ~zero, equal & ~zero
    hopeless = impossible.flatten(1).any(1)
    out.duals[:] = impossible * torch.sign(b)
    out.status[hopeless], out.unique[hopeless], out.error[hopeless] = INFEASIBLE, False, torch.inf
    asks = (keep & torch.where(equal, b != 0, b > 0)).flatten(1).any(1) & ~hopeless
    where = torch.nonzero(asks)[:, 0]
    if where.numel() == 0:
        return out
    sub, back = reduce(*(x[where] for x in (d, d_norm, z, z_norm, b, keep, equal)))
    best, iterations, polished, infeasible = _stages(sub, tolerance)
    # Judged and scaled once more on the unreduced rows: with rows of very different size the change of basis alone may cost a margin.
    scale = back.weight_scale[:, None, None]
    full = _unreduced(d, z, sub, back, where)
    final = polish.certify(full, back.weights(best.weights) / scale, best.duals)
    error = torch.where(infeasible, torch.inf, final.error + polish.rounding(full, final.weights))
    out.weights[where] = final.weights * scale
    out.duals[where] = back.duals(torch.where(infeasible[:, None], best.duals, final.duals), n, length)
    out.error[where], out.iterations[where], out.polished[where] = error, iterations, polished
    out.status[where] = torch.where(infeasible, INFEASIBLE, torch.where(error <= tolerance, SOLVED, NOT_CONVERGED))
    out.unique[where] = polish.unique(sub, best) & (error <= tolerance)
    out.weights[out.status == INFEASIBLE] = 0.0
    return out


def _unreduced(d: Tensor, z: Tensor, rows: Rows, back: Reduction, where: Tensor) -> Rows:
    """The same normalised rows in the original coordinates."""
    batch, n, length, dim = d.shape
    real = rows.real[..., None]
    left = d[where].reshape(-1, n * length, dim).gather(1, back.index[..., None].expand(-1, -1, dim)) * real
    right = z[where].gather(1, (back.index // length)[..., None].expand(-1, -1, z.shape[-1])) * real
    return Rows(left, right, rows.values, rows.equal, rows.real)


def _stages(rows: Rows, tolerance: float) -> tuple[polish.Candidate, Tensor, Tensor, Tensor]:
    """Best pair, iterations, whether polished, whether infeasible, for a batch of normalised problems."""
    it = interior.start(rows)
    batch = len(rows)
    rx, rz = rows.left.shape[-1], rows.right.shape[-1]
    best = polish.Candidate(rows.left.new_zeros(batch, rx, rz), torch.zeros_like(rows.values), torch.full_like(it.gap, torch.inf))
    polished, infeasible, tested = (torch.zeros_like(it.stalled) for _ in range(3))
    for stage, gap in enumerate(STAGES):
        todo = torch.nonzero((best.error > TARGET) & ~infeasible)[:, 0]
        if todo.numel() == 0:
            break
        sub, now = rows[todo], interior.run(rows[todo], it[todo], gap, PATIENCE, LIMIT)
        slow = torch.nonzero((now.gap > gap) & ~now.stalled)[:, 0]
        for k in todo[slow][~tested[todo[slow]]].tolist():
            tested[k] = True
            _test_ray(rows, k, best, infeasible)
        slow = slow[~infeasible[todo[slow]]]
        if slow.numel():  # feasible as far as the ray test can tell: go on without a limit
            now.diverged[:] = False
            now.store(slow, interior.run(sub[slow], now[slow], gap, limit=float("inf")))
        go = ~infeasible[todo]
        if stage > 1:  # a stalled iterate would only repeat its polish
            go &= now.iterations > it.iterations[todo]
        it.store(todo, now)
        todo, sub, now = todo[go], sub[go], now[go]
        if todo.numel() == 0:
            continue
        active, rank = polish.identify(sub, now)
        for attempt in range(3 if stage else 1):  # as identified, as repaired, and by the largest jump
            if attempt == 2:
                active, rank = polish.identify_by_gap(sub, now)
            trial, active, rank = polish.attempt(sub, now, active, rank)
            polished[todo] |= trial.error < best.error[todo]
            best.improve(todo, trial)
            bad = best.error[todo] > TARGET
            todo, sub, now, active, rank = todo[bad], sub[bad], now[bad], active[bad], rank[bad]
            if todo.numel() == 0:
                break
        if stage > 0 and todo.numel():
            own = polish.from_iterate(sub, now)
            polished[todo] &= ~(own.error < best.error[todo])
            best.improve(todo, own)
    for k in torch.nonzero((best.error > tolerance) & ~infeasible & ~tested)[:, 0].tolist():
        _test_ray(rows, k, best, infeasible)
    return best, it.iterations, polished & ~infeasible, infeasible


def _test_ray(rows: Rows, k: int, best: polish.Candidate, infeasible: Tensor) -> None:
    duals, found = find_ray(rows[k : k + 1])
    if bool(found):
        best.duals[k], best.error[k], infeasible[k] = duals, torch.inf, True
