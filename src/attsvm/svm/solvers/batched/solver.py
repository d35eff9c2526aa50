"""Frobenius attention SVMs, many small ones at once, in PyTorch (CPU or CUDA).

    min 1/2 ||W||_F^2   s.t.   d_it^T W z_i >= b_it  (rows),   d_it^T W z_i = b_it  (equal)

1. A guess of the active rows (or of a ray): on CUDA by `active_set` (one warp a problem), elsewhere, and for what is
   left, by `interior_point`.
2. `polish` turns the guess into an answer and checks it on the rows.
3. What fails every check (degenerate or nearly infeasible problems) goes to `compiled`, on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attsvm.svm.solvers.base import INFEASIBLE, OPTIMAL, UNSURE, RawSolution
from attsvm.svm.solvers.batched.cuda import active_set, supported
from attsvm.svm.solvers.batched.interior_point import interior_point
from attsvm.svm.solvers.batched.polish import polish, polish_ray
from attsvm.svm.solvers.batched.rows import Guess, Rows, gather

_CHUNK_BYTES = 1e9  # of each batch of m x m matrices; about six such batches are alive at once


def solve(
    differences: Float[Tensor, "batch n T d"],
    rows: Bool[Tensor, "batch n T"],
    queries: Float[Tensor, "batch n dq"],
    values: Float[Tensor, "batch n T"],
    equal: Bool[Tensor, "batch n T"],
    accuracy: float = 1e-10,
) -> RawSolution:
    """Solve a batch of problems given as float64 tensors on one device; arguments as in `compiled.solve`."""
    batch, n, length, d = differences.shape
    present = rows | equal
    m = max(1, int(present.flatten(1).sum(1).max())) if batch else 1
    chunk = max(1, int(_CHUNK_BYTES / (8 * m * m)))
    weights = differences.new_zeros(batch, d, queries.shape[2])
    duals = differences.new_zeros(batch, n, length)
    status = torch.full((batch,), UNSURE, dtype=torch.int8, device=differences.device)
    steps = torch.zeros(batch, dtype=torch.int64, device=differences.device)
    for first in range(0, batch, chunk):
        part = slice(first, first + chunk)
        weights[part], duals[part], status[part], steps[part] = _solve_chunk(
            differences[part], present[part], equal[part], queries[part], values[part], m, accuracy
        )
    left = (status == UNSURE).nonzero()[:, 0]
    if left.numel():
        from attsvm.svm.solvers.active_set import solver as compiled  # Numba starts only where it is used

        arrays = [x[left].cpu().numpy() for x in (differences, rows, queries, values, equal)]
        answer = compiled.solve(*arrays, accuracy=accuracy)
        for mine, theirs in ((weights, answer.weights), (duals, answer.duals), (status, answer.status)):
            mine[left] = torch.as_tensor(theirs, device=differences.device)
    return RawSolution(weights, duals, steps)


def _solve_chunk(
    differences: Tensor, present: Tensor, equal: Tensor, queries: Tensor, values: Tensor, m: int, accuracy: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weights, duals, status and steps of problems small enough in number to be held at once."""
    batch, n, length, _ = differences.shape
    rows, back = gather(differences, present, equal, queries, values, m)
    broken = (back.lone != 0).any(1)
    trivial = ~(rows.present & ((rows.b > 0) | (rows.equal & (rows.b != 0)))).any(1)
    answers = _Answers(rows, torch.where(broken, INFEASIBLE, torch.where(trivial, OPTIMAL, UNSURE)).to(torch.int8))
    gram = rows.gram()
    if supported(gram):
        answers.improve(gram, active_set, accuracy)
    answers.improve(gram, interior_point, accuracy)
    infeasible = (answers.status == INFEASIBLE)[:, None]
    # the ray has b'^T lam' = 1 in scaled units, b' = b factor unit
    lam = answers.multipliers * torch.where(infeasible, back.factor * back.unit, back.factor / back.unit)
    lam = torch.where(broken[:, None], back.lone, lam)
    weights = torch.where(infeasible[..., None], 0.0, answers.weights / back.unit[:, :, None])
    duals = differences.new_zeros(batch, n * length).scatter_(1, back.index, lam).view(batch, n, length)
    return weights, duals, answers.status, answers.steps


class _Answers:
    """What is known of every problem of a chunk, in scaled rows."""

    def __init__(self, rows: Rows, status: Tensor) -> None:
        self.rows, self.status = rows, status
        self.weights = rows.b.new_zeros(len(status), rows.D.shape[2], rows.Z.shape[2])
        self.multipliers = torch.zeros_like(rows.b)
        self.steps = torch.zeros(len(status), dtype=torch.int64, device=status.device)

    def improve(self, gram: Tensor, guess_active: Callable[[Tensor, Rows], Guess], accuracy: float) -> None:
        """Guess and polish the problems that are still open, and write down what passes."""
        left = (self.status == UNSURE).nonzero()[:, 0]
        if left.numel() == 0:
            return
        whole = left.numel() == len(self.status)
        rows, gram = (self.rows, gram) if whole else (self.rows[left], gram[left])
        guess = guess_active(gram, rows)
        for attempt in (guess.hopeless, ~guess.hopeless):  # rays first where one is likely, then the other way round
            self._settle_rays(left, gram, rows, guess, attempt)
            self._settle(left, gram, rows, guess, ~attempt, accuracy)
        self.steps[left] = guess.steps

    def _settle(self, left: Tensor, gram: Tensor, rows: Rows, guess: Guess, wanted: Tensor, accuracy: float) -> None:
        """Polish the wanted ones of `left` that are still open, and write down those that pass."""
        some = (wanted & (self.status[left] == UNSURE)).nonzero()[:, 0]
        if some.numel() == 0:
            return
        if some.numel() < len(left):
            gram, rows = gram[some], rows[some]
        active = rows.present & (rows.equal | (guess.multipliers[some] > guess.slacks[some]))
        weights, multipliers, solved = polish(gram, rows, active, accuracy)
        where = left[some[solved]]
        self.weights[where], self.multipliers[where], self.status[where] = weights[solved], multipliers[solved], OPTIMAL

    def _settle_rays(self, left: Tensor, gram: Tensor, rows: Rows, guess: Guess, wanted: Tensor) -> None:
        """The same for rays."""
        some = (wanted & (self.status[left] == UNSURE)).nonzero()[:, 0]
        if some.numel() == 0:
            return
        ray, proved = polish_ray(gram[some], rows[some], guess.multipliers[some], guess.slacks[some])
        where = left[some[proved]]
        self.multipliers[where], self.status[where] = ray[proved], INFEASIBLE
