"""Frobenius attention SVMs, many small ones at once, in PyTorch (CPU or CUDA).

1. Guess the active rows (or a ray): on CUDA by the dual active set of `cuda`, with a warp for each problem; elsewhere,
   and for what is left, by `interior_point`.
2. `polish` turns the guess into an answer and checks it on the rows.
3. What fails every check (degenerate or nearly infeasible problems) goes to `ActiveSet`, on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from attsvm.norms import Frobenius, Norm
from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.active_set.solver import ActiveSet
from attsvm.svm.solvers.base import INFEASIBLE, OPTIMAL, UNSURE, ProgressReport, RawSolution, Solver
from attsvm.svm.solvers.batched.guesses import active_set, interior_point, supported
from attsvm.svm.solvers.batched.polish import polish, polish_ray
from attsvm.svm.solvers.batched.rows import Guess, ScaledRows, scale

_CHUNK_BYTES = 1e9  # of each batch of m x m matrices; about six such batches are alive at once


@dataclass(frozen=True)
class BatchedFrobenius(Solver):
    """All problems at once as PyTorch tensors: for GPUs, and for a few small problems that are not worth compiling.

    A guess of the active rows, by a CUDA kernel or by a batched interior point, is polished and checked on the rows;
    what fails every check goes to `ActiveSet`.

    Arguments:
        accuracy: relative gap and violation to which the certificate must hold.
    """

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
    scaled, back = scale(problem, m)
    broken, trivial = (back.lone != 0).any(1), ~scaled.asking.any(1)
    answers = _Answers(scaled, torch.where(broken, INFEASIBLE, torch.where(trivial, OPTIMAL, UNSURE)).to(torch.int8))
    gram = scaled.gram()
    if supported(gram):
        answers.improve(gram, active_set, accuracy)
    answers.improve(gram, interior_point, accuracy)
    infeasible = (answers.verdicts == INFEASIBLE)[:, None]
    # the ray has b'^T lam' = 1 in scaled units, b' = b factor unit
    lam = answers.multipliers * torch.where(infeasible, back.factor * back.unit, back.factor / back.unit)
    lam = torch.where(broken[:, None], back.lone, lam)
    weights = torch.where(infeasible[..., None], 0.0, answers.weights / back.unit[:, :, None])
    duals = torch.zeros_like(problem.right_hand_side).flatten(1).scatter_(1, back.index, lam)
    return weights, duals.view_as(problem.right_hand_side), answers.verdicts, answers.steps


class _Answers:
    """What is known of every problem of a chunk, in scaled rows."""

    def __init__(self, rows: ScaledRows, verdicts: Tensor) -> None:
        self.rows, self.verdicts = rows, verdicts
        self.weights = rows.queries.new_zeros(len(rows), rows.differences.shape[2], rows.queries.shape[2])
        self.multipliers = torch.zeros_like(rows.right_hand_side)
        self.steps = torch.zeros(len(rows), dtype=torch.int64, device=verdicts.device)

    def improve(self, gram: Tensor, guess_active: Callable[[Tensor, ScaledRows], Guess], accuracy: float) -> None:
        """Guess and polish the problems that are still open, and write down what passes."""
        left = (self.verdicts == UNSURE).nonzero()[:, 0]
        if left.numel() == 0:
            return
        whole = left.numel() == len(self.verdicts)
        rows, gram = (self.rows, gram) if whole else (self.rows[left], gram[left])
        guess = guess_active(gram, rows)
        for attempt in (guess.hopeless, ~guess.hopeless):  # rays first where one is likely, then the other way round
            for wanted, verdict in ((attempt, INFEASIBLE), (~attempt, OPTIMAL)):
                self._settle(left, gram, rows, guess, wanted, verdict, accuracy)
        self.steps[left] = guess.steps

    def _settle(
        self,
        left: Tensor,
        gram: Tensor,
        rows: ScaledRows,
        guess: Guess,
        wanted: Tensor,
        verdict: int,
        accuracy: float,
    ) -> None:
        """Polish the wanted ones of `left` that are still open, and write down the rays or solutions that pass."""
        some = (wanted & (self.verdicts[left] == UNSURE)).nonzero()[:, 0]
        if some.numel() == 0:
            return
        if some.numel() < len(left):
            gram, rows = gram[some], rows[some]
        u, s = guess.multipliers[some], guess.slacks[some]
        if verdict == INFEASIBLE:
            found, good = polish_ray(gram, rows, u, s)
        else:
            weights, found, good = polish(gram, rows, rows.present & (rows.equalities | (u > s)), accuracy)
            self.weights[left[some[good]]] = weights[good]
        where = left[some[good]]
        self.multipliers[where], self.verdicts[where] = found[good], verdict
