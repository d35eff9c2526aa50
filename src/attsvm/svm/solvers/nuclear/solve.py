"""Nuclear-norm attention SVMs, many at once: interior point, Newton polish, rays for the infeasible.

    min ||W||_*   s.t.   d_it^T W z_i >= b_it on `rows`,   = b_it on `equal`

Stages: reduce the rows; interior point to a moderate gap; Newton polish on the identified rank and active rows, kept
only where the certificate improves; problems whose polish fails go back to the interior point for a smaller gap, and
are polished again. Problems whose dual value grows without bound, or that do not converge, are tested for a ray.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attsvm.svm.solvers.nuclear import interior, polish
from attsvm.svm.solvers.nuclear import polish as candidate
from attsvm.svm.solvers.nuclear.rays import find_ray
from attsvm.svm.solvers.nuclear.rows import Reduction, Rows, reduce, unit

_STAGES = (1e-5, 1e-7, 1e-9, 1e-12)  # gaps at which a polish is tried
_TARGET = 1e-11  # error at which a problem needs no further stage
_PATIENCE, _LIMIT = 16, 1e4  # iterations of a stage, and normalised dual value, after which a ray is looked for

SOLVED, INFEASIBLE, NOT_CONVERGED = range(3)
"""What `NuclearResult.status` holds: the solver's own word, which the certificate checks."""


@dataclass(frozen=True, eq=False)
class NuclearResult:
    """Solutions of a batch of problems.

    Attributes:
        weights: ``[batch, d, dq]``; 0 where infeasible.
        duals: ``[batch, n, T]``, scaled to ||sum lam_it d_it z_i^T|| <= 1, so that their value bounds ||W||_* from
            below; a ray where infeasible.
        status: SOLVED, INFEASIBLE or NOT_CONVERGED, ``[batch]``.
        error: relative gap plus largest relative violation, the solver's own word, ``[batch]``.
        iterations: of the interior point, ``[batch]``.
        unique: where W is proved to be the only solution (to round-off); False means not proved, ``[batch]``.
    """

    weights: Tensor
    duals: Tensor
    status: Tensor
    error: Tensor
    iterations: Tensor
    unique: Tensor


def solve_nuclear(
    differences: Float[Tensor, "batch n T d"],
    rows: Bool[Tensor, "batch n T"],
    queries: Float[Tensor, "batch n dq"],
    values: Float[Tensor, "batch n T"],
    equal: Bool[Tensor, "batch n T"],
    *,
    tolerance: float = 1e-8,
) -> NuclearResult:
    """Solve a batch of nuclear-norm attention SVMs, given as float64 tensors on one device.

    Arguments:
        differences: x_i,selected - x_it.
        rows: where there is an inequality row.
        queries: z_i.
        values: b_it.
        equal: where there is an equality row.
        tolerance: largest error that counts as solved.

    >>> d, z = torch.tensor([[[[0.0, 0.0], [3.0, 4.0]]]]).double(), torch.tensor([[[2.0]]]).double()
    >>> rows = torch.tensor([[[False, True]]])
    >>> solve_nuclear(d, rows, z, torch.ones(1, 1, 2).double(), ~rows & rows).weights[0, :, 0]  # d z^T / ||d z^T||^2
    tensor([0.0600, 0.0800], dtype=torch.float64)
    """
    batch, n, length, _ = differences.shape
    # A few megabytes of Schur matrices fit a cache, a gigabyte keeps an accelerator busy; cuSOLVER's batched
    # eigenvalues fail beyond some 2^15 matrices, and every problem brings two.
    budget, most = (6e5, 256) if differences.device.type == "cpu" else (2e8, 2**13)
    chunk = min(max(int(budget / max(1, n * length) ** 2), 1), most)
    parts = []
    for first in range(0, max(batch, 1), chunk):
        part = slice(first, first + chunk)
        kept = rows[part] | equal[part]
        parts.append(_solve(differences[part], kept, queries[part], values[part], equal[part], tolerance))
    return NuclearResult(*(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(NuclearResult)))


def _solve(d: Tensor, keep: Tensor, z: Tensor, b: Tensor, equal: Tensor, tolerance: float) -> NuclearResult:
    """Problems few enough to be held at once; W = 0, lam = 0 where no row asks for anything."""
    batch, n, length, dim = d.shape
    out = NuclearResult(
        weights=d.new_zeros(batch, dim, z.shape[-1]),
        duals=d.new_zeros(batch, n, length),
        status=torch.full((batch,), SOLVED, device=d.device),
        error=d.new_zeros(batch),
        iterations=torch.zeros(batch, dtype=torch.long, device=d.device),
        unique=torch.ones(batch, dtype=torch.bool, device=d.device),
    )
    (d, d_norm), (z, z_norm) = unit(d), unit(z)
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
    d, z = d[where], z[where]
    sub, back = reduce(d, d_norm[where], z, z_norm[where], b[where], keep[where], equal[where])
    best, iterations, infeasible = _stages(sub, tolerance)
    # Judged and scaled once more on the unreduced rows: with rows of very different size the change of basis alone may
    # cost a margin.
    scale = back.weight_scale[:, None, None]
    full = _unreduced(d, z, sub, back)
    final = candidate.certify(full, back.weights(best.weights) / scale, best.duals)
    error = torch.where(infeasible, torch.inf, final.error + candidate.rounding(full, final.weights))
    out.weights[where] = final.weights * scale
    out.duals[where] = back.duals(torch.where(infeasible[:, None], best.duals, final.duals), n, length)
    out.error[where], out.iterations[where] = error, iterations
    out.status[where] = torch.where(infeasible, INFEASIBLE, torch.where(error <= tolerance, SOLVED, NOT_CONVERGED))
    out.unique[where] = candidate.unique(sub, best) & (error <= tolerance)
    out.weights[out.status == INFEASIBLE] = 0.0
    return out


def _unreduced(d: Tensor, z: Tensor, rows: Rows, back: Reduction) -> Rows:
    """The same normalised rows in the original coordinates."""
    batch, n, length, dim = d.shape
    real = rows.real[..., None]
    left = d.reshape(batch, n * length, dim).gather(1, back.index[..., None].expand(-1, -1, dim)) * real
    right = z.gather(1, (back.index // length)[..., None].expand(-1, -1, z.shape[-1])) * real
    return Rows(left, right, rows.values, rows.equal, rows.real)


def _stages(rows: Rows, tolerance: float) -> tuple[candidate.Candidate, Tensor, Tensor]:
    """Best pair (a ray where infeasible), iterations, and where infeasible, for a batch of normalised problems."""
    it = interior.start(rows)
    best = candidate.Candidate.nothing(rows)
    infeasible, tested = torch.zeros_like(it.stalled), torch.zeros_like(it.stalled)
    for stage, gap in enumerate(_STAGES):
        todo = torch.nonzero((best.error > _TARGET) & ~infeasible)[:, 0]
        if todo.numel() == 0:
            break
        sub, now = rows[todo], interior.run(rows[todo], it[todo], gap, _PATIENCE, _LIMIT)
        slow = torch.nonzero((now.gap > gap) & ~now.stalled)[:, 0]
        for k in todo[slow][~tested[todo[slow]]].tolist():
            tested[k] = True
            _test_ray(rows, k, best, infeasible)
        slow = slow[~infeasible[todo[slow]]]
        if slow.numel():  # feasible as far as the ray test can tell: go on without a limit
            now.diverged[:] = False
            now.store(slow, interior.run(sub[slow], now[slow], gap))
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
            best.improve(todo, trial)
            bad = best.error[todo] > _TARGET
            todo, sub, now, active, rank = todo[bad], sub[bad], now[bad], active[bad], rank[bad]
            if todo.numel() == 0:
                break
        if stage > 0 and todo.numel():
            best.improve(todo, candidate.from_iterate(sub, now))
    for k in torch.nonzero((best.error > tolerance) & ~infeasible & ~tested)[:, 0].tolist():
        _test_ray(rows, k, best, infeasible)
    return best, it.iterations, infeasible


def _test_ray(rows: Rows, k: int, best: candidate.Candidate, infeasible: Tensor) -> None:
    """Look for a ray of problem k, and write it down if there is one."""
    ray = find_ray(rows[k : k + 1])
    if ray is not None:
        best.duals[k], best.error[k], infeasible[k] = ray, torch.inf, True
