"""Frobenius attention SVMs, many small ones at once, in PyTorch (CPU or CUDA).

1. Guess the active rows (or a ray): on CUDA by `active_set`, with a warp for each problem; elsewhere, and for what is
   left, by `interior_point`.
2. `polish` turns the guess into an answer and checks it on the rows.
3. What fails every check (degenerate or nearly infeasible problems) goes to `ActiveSet`, on the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attsvm.norms import Frobenius, Norm
from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.active_set.solver import ActiveSet
from attsvm.svm.solvers.base import INFEASIBLE, OPTIMAL, UNSURE, ProgressReport, RawSolution, Solver
from attsvm.svm.solvers.batched.guesses import active_set, interior_point, supported
from attsvm.svm.solvers.batched.rows import ScaledRows, polish, polish_ray, scale

_CHUNK_BYTES = 1e9  # of each batch of m x m matrices; about six such batches are alive at once


@dataclass(frozen=True)
class BatchedFrobenius(Solver):
    """All problems at once as PyTorch tensors: for GPUs, and for a few small problems that are not worth compiling."""

    norms = (Frobenius,)
    accuracy: float = 1e-10

    def solve(self, problem: AttentionSVM, norm: Norm, initial: Tensor | None, progress: ProgressReport) -> RawSolution:
        count, m = problem.batch_shape[0], max(1, problem.most_rows)
        chunk = max(1, int(_CHUNK_BYTES / (8 * m * m)))
        weights = problem.data.tokens.new_zeros(count, problem.data.d, problem.data.dq)
        duals = torch.zeros_like(problem.right_hand_side)
        verdicts = torch.full((count,), UNSURE, dtype=torch.int8, device=duals.device)
        steps = torch.zeros(count, dtype=torch.int64, device=duals.device)
        for first in range(0, count, chunk):
            part = slice(first, first + chunk)
            weights[part], duals[part], verdicts[part], steps[part] = _solve_chunk(problem[part], m, self.accuracy)
        left = (verdicts == UNSURE).nonzero()[:, 0]
        if left.numel():
            answer = ActiveSet(self.accuracy).solve(problem[left], norm, None, None)
            weights[left], duals[left] = answer.weights, answer.duals
        return RawSolution(weights, duals, steps)


def _solve_chunk(problem: AttentionSVM, m: int, accuracy: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weights, duals, verdicts and steps of problems few enough to be held at once, of at most m rows each."""
    rows, back = scale(problem, m)
    broken, trivial = (back.lone != 0).any(1), ~rows.asking.any(1)
    verdicts = torch.where(broken, INFEASIBLE, torch.where(trivial, OPTIMAL, UNSURE)).to(torch.int8)
    weights = rows.queries.new_zeros(len(rows), problem.data.d, problem.data.dq)
    lam, steps = torch.zeros_like(rows.right_hand_side), torch.zeros_like(verdicts, dtype=torch.int64)
    gram = rows.gram()
    for guess_active in (active_set, interior_point) if supported(gram) else (interior_point,):
        left = (verdicts == UNSURE).nonzero()[:, 0]
        if left.numel() == 0:
            break
        guess = guess_active(*_part(gram, rows, left))
        steps[left] = guess.steps
        likely, unlikely = guess.hopeless, ~guess.hopeless
        # Rays first where one is likely and weights elsewhere, then the other way round.
        tries = (likely, INFEASIBLE), (unlikely, OPTIMAL), (unlikely, INFEASIBLE), (likely, OPTIMAL)
        for wanted, verdict in tries:
            some = (wanted & (verdicts[left] == UNSURE)).nonzero()[:, 0]
            if some.numel() == 0:
                continue
            where, (own, listed) = left[some], _part(gram, rows, left[some])
            u, s = guess.multipliers[some], guess.slacks[some]
            if verdict == INFEASIBLE:
                found, good = polish_ray(own, listed, u, s)
            else:
                active = listed.present & (listed.equalities | (u > s))
                matrices, found, good = polish(own, listed, active, accuracy)
                weights[where[good]] = matrices[good]
            lam[where[good]], verdicts[where[good]] = found[good], verdict
    infeasible = (verdicts == INFEASIBLE)[:, None]
    # the ray has b'^T lam' = 1 in scaled units, b' = b factor unit
    lam = lam * torch.where(infeasible, back.factor * back.unit, back.factor / back.unit)
    lam = torch.where(broken[:, None], back.lone, lam)
    duals = torch.zeros_like(problem.right_hand_side).flatten(1).scatter_(1, back.index, lam)
    return weights / back.unit[:, :, None], duals.view_as(problem.right_hand_side), verdicts, steps


def _part(gram: Tensor, rows: ScaledRows, index: Tensor) -> tuple[Tensor, ScaledRows]:
    """Gram matrices and rows of some problems; those given where these are all."""
    return (gram, rows) if len(index) == len(rows) else (gram[index], rows[index])
