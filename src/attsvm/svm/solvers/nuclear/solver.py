"""Nuclear-norm attention SVMs, many at once, on any device.

Stages: reduce the rows; interior point to a moderate gap; Newton polish on the identified rank and active rows, kept
only where the certificate improves; problems whose polish fails go back to the interior point for a smaller gap, and
are polished again. Problems whose dual value grows without bound, or that do not converge, are tested for a ray; on the
CPU those with more rows than unknowns are tested before anything else.

Problems with many rows are solved by working sets: solve with a subset of the rows, add the rows its solution
violates, repeat. The duals of a subset, padded with zeros, are feasible for the whole problem, and so is a ray of a
subset: an infeasible subset settles the whole. When no row is violated, the pair is optimal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from attsvm.norms import Norm, Nuclear
from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.base import ProgressReport, RawSolution, Rows, Solver
from attsvm.svm.solvers.nuclear import interior
from attsvm.svm.solvers.nuclear.polish import (
    Candidate,
    find_ray,
    from_iterate,
    identify,
    identify_by_gap,
    polish,
    proved_unique,
    rounding,
)
from attsvm.svm.solvers.nuclear.rows import ReducedRows, reduce, unit

_STAGES = (1e-5, 1e-7, 1e-9, 1e-12)  # gaps at which a polish is tried
_TARGET = 1e-11  # error at which a problem needs no further stage
_PATIENCE, _LIMIT = 16, 1e4  # iterations of a stage, and normalised dual value, after which a ray is looked for
_PER_INPUT = 2  # working rows of an input at the start, and at most as many more in every round
_ROUNDS = 50  # of working sets


@dataclass(frozen=True)
class NuclearInteriorPoint(Solver):
    """Batched primal-dual interior point, then a Newton polish on the identified rank and active rows.

    Rows are projected on the spans of the queries and of the differences first, which is exact for this norm. Problems
    with more than `most_rows` rows are solved by working sets: a subset of rows, then the rows its solution violates.

    Arguments:
        accuracy: relative gap and violation to which the certificate must hold.
        most_rows: rows handled at once; their Schur matrix has this order squared.
    """

    accuracy: float = 1e-8
    most_rows: int = 400

    def refusal(self, problem: AttentionSVM, norm: Norm) -> str | None:
        return None if isinstance(norm, Nuclear) else "it solves the nuclear norm"

    def solve(
        self, problem: AttentionSVM, norm: Norm, initial: Tensor | None, progress: ProgressReport | None
    ) -> RawSolution:
        def report(turn: int, chosen: int, violated: int, error: float) -> None:
            if progress is not None:
                progress(f"round {turn}: {violated} rows violated, {chosen} working rows, error {error:.1e}")

        if int(problem.rows.flatten(1).sum(1).max()) <= self.most_rows:
            found = _solve_all(Rows.of(problem), self.accuracy)
        else:
            elements = range(problem.batch_shape[0])
            found = _joined([_solve_large(Rows.of(problem[e : e + 1]), self.accuracy, report) for e in elements])
        return RawSolution(found.weights, found.duals, found.iterations, found.unique)


@dataclass(frozen=True, eq=False)
class _Found:
    """What is known of a batch of problems.

    Attributes:
        weights: ``[batch, d, dq]``; 0 where infeasible.
        duals: ``[batch, n, T]``, scaled to ||sum lam_it d_it z_i^T|| <= 1, so that their value bounds ||W||_* from
            below; a ray where infeasible.
        infeasible: where a ray was found, ``[batch]``.
        error: relative gap plus largest relative violation, ``[batch]``.
        iterations: of the interior point, ``[batch]``.
        unique: where W is proved to be the only solution (to round-off); False means not proved, ``[batch]``.
    """

    weights: Tensor
    duals: Tensor
    infeasible: Tensor
    error: Tensor
    iterations: Tensor
    unique: Tensor


def _joined(parts: list[_Found]) -> _Found:
    return _Found(*(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(_Found)))


def _solve_all(rows: Rows, tolerance: float) -> _Found:
    """Solve a batch in chunks; `tolerance` is the largest error that counts as solved."""
    _, n, length, _ = rows.differences.shape
    # A few megabytes of Schur matrices fit a cache, a gigabyte keeps an accelerator busy; cuSOLVER's batched
    # eigenvalues fail beyond some 2^15 matrices, and every problem brings two.
    budget, most = (6e5, 256) if rows.differences.device.type == "cpu" else (2e8, 2**13)
    chunk = min(max(int(budget / max(1, n * length) ** 2), 1), most)
    starts = range(0, max(len(rows), 1), chunk)
    return _joined([_solve(rows[first : first + chunk], tolerance) for first in starts])


def _solve_large(rows: Rows, tolerance: float, report: Callable[[int, int, int, float], None]) -> _Found:
    """Solve one problem (batch 1) by working sets.

    `report` is called after each round with the round, the number of working rows, of rows violated, and the error.
    """
    sides, size = rows.right_hand_side, rows.differences.norm(dim=-1) * rows.queries.norm(dim=-1)[..., None]
    # First guess: the rows a mean direction serves worst.
    directions = rows.differences / size.clamp(min=1e-300)[..., None]
    asks = (rows.inequalities & (sides > 0)).to(directions)
    mean = torch.einsum("bntd,bnt,bne->bde", directions, asks, rows.queries)
    chosen = _worst(_margins(directions, mean, rows.queries), rows.inequalities, _PER_INPUT)
    chosen |= rows.inequalities & (size == 0)  # zero rows with b > 0 settle the problem
    iterations = torch.zeros(1, dtype=torch.long, device=sides.device)
    for turn in range(_ROUNDS):
        found = _solve(replace(rows, inequalities=chosen), tolerance)
        iterations += found.iterations
        if bool(found.infeasible):
            break
        margins = _margins(rows.differences, found.weights, rows.queries)
        scale = torch.where(sides == 0, size * found.weights.norm(), sides.abs())
        short = (margins - sides) / scale
        violated = rows.inequalities & ~chosen & (short < -1e-12)
        count = int(violated.sum())
        report(turn + 1, int(chosen.sum()), count, float(found.error[0]))
        if count == 0:
            break
        chosen = chosen | _worst(short, violated, _PER_INPUT)
    return replace(found, iterations=iterations)


def _margins(differences: Tensor, weights: Tensor, queries: Tensor) -> Tensor:
    """d_it^T W z_i."""
    return (differences @ (weights @ queries.mT).mT[..., None])[..., 0]


def _worst(margins: Tensor, allowed: Tensor, count: int) -> Tensor:
    """Mask of the `count` smallest margins of every input among the allowed rows."""
    count = min(count, margins.shape[-1])
    order = torch.where(allowed, margins, torch.inf).topk(count, dim=-1, largest=False).indices
    return torch.zeros_like(allowed).scatter_(-1, order, True) & allowed


def _solve(rows: Rows, tolerance: float) -> _Found:
    """Problems few enough to be held at once; W = 0, lam = 0 where no row asks for anything."""
    (differences, d_norm), (queries, z_norm) = unit(rows.differences), unit(rows.queries)
    zero = rows.present & ((d_norm == 0) | (z_norm == 0)[..., None])
    impossible = zero & rows.asking
    hopeless = impossible.flatten(1).any(1)
    d, dq, batch = differences.shape[-1], queries.shape[-1], len(rows)
    found = _Found(
        weights=differences.new_zeros(batch, d, dq),
        duals=impossible * torch.sign(rows.right_hand_side),
        infeasible=hopeless,
        error=torch.where(hopeless, torch.inf, 0.0).to(differences),
        iterations=torch.zeros(batch, dtype=torch.long, device=hopeless.device),
        unique=~hopeless,
    )
    masks = rows.inequalities & ~zero, rows.equalities & ~zero
    rows = Rows(differences, queries, rows.right_hand_side, *masks)
    where = torch.nonzero(rows.asking.flatten(1).any(1) & ~hopeless)[:, 0]
    if where.numel() == 0:
        return found
    rows = rows[where]
    reduced, back = reduce(rows, (d_norm * z_norm[..., None])[where])
    best, iterations, infeasible = _stages(reduced, tolerance)
    # Judged and scaled once more on the unreduced rows: with rows of very different size the change of basis alone may
    # cost a margin.
    scale = back.weight_scale[:, None, None]
    full = back.unreduced(rows, reduced)
    final = Candidate.of(full, back.weights(best.weights) / scale, best.duals)
    error = torch.where(infeasible, torch.inf, final.error + rounding(full, final.weights))
    found.weights[where] = torch.where(infeasible[:, None, None], 0.0, final.weights * scale)
    duals = torch.where(infeasible[:, None], best.duals, final.duals)
    found.duals[where] = back.duals(duals, rows.right_hand_side.shape)
    found.infeasible[where], found.error[where], found.iterations[where] = infeasible, error, iterations
    found.unique[where] = proved_unique(reduced, best) & (error <= tolerance)
    return found


def _stages(rows: ReducedRows, tolerance: float) -> tuple[Candidate, Tensor, Tensor]:
    """Best pair (a ray where infeasible), iterations, and where infeasible, for a batch of normalised problems."""
    it = interior.start(rows)
    best = Candidate.nothing(rows)
    infeasible, tested = torch.zeros_like(it.stalled), torch.zeros_like(it.stalled)
    if it.stalled.device.type == "cpu":
        # A ray in general position needs one row more than there are unknowns. Where there are as many, looking for it
        # costs a twentieth of the interior point, which would run its full course before it is given up.
        unknowns = rows.differences.shape[-1] * rows.queries.shape[-1]
        tested = rows.present.sum(1) > unknowns
        for k in torch.nonzero(tested)[:, 0].tolist():
            _test_ray(rows, k, best, infeasible)
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
        active, rank = identify(sub, now)
        for attempt in range(3 if stage else 1):  # as identified, as repaired, and by the largest jump
            if attempt == 2:
                active, rank = identify_by_gap(sub, now)
            trial, active, rank = polish(sub, now, active, rank)
            best.improve(todo, trial)
            bad = best.error[todo] > _TARGET
            todo, sub, now, active, rank = todo[bad], sub[bad], now[bad], active[bad], rank[bad]
            if todo.numel() == 0:
                break
        if stage > 0 and todo.numel():
            best.improve(todo, from_iterate(sub, now))
    for k in torch.nonzero((best.error > tolerance) & ~infeasible & ~tested)[:, 0].tolist():
        _test_ray(rows, k, best, infeasible)
    return best, it.iterations, infeasible


def _test_ray(rows: ReducedRows, k: int, best: Candidate, infeasible: Tensor) -> None:
    """Look for a ray of problem k, and write it down if there is one."""
    ray = find_ray(rows[k : k + 1])
    if ray is not None:
        best.duals[k], best.error[k], infeasible[k] = ray, torch.inf, True
