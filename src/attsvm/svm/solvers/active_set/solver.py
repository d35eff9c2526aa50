"""Frobenius attention SVMs, exactly, on the CPU: the options, and the arrays of a batch for the compiled loop."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attsvm.norms import Frobenius, Norm
from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.base import ProgressReport, RawSolution, Solver, in_shares, row_kinds


@dataclass(frozen=True)
class ActiveSet(Solver):
    """Dual active set (Goldfarb-Idnani) on Gram rows, compiled; each thread solves its problems one after the other.

    The answer is refined with the rows themselves; a problem that resists is solved on them, by SciPy's `nnls`.
    Every problem is solved to round-off. Where ||W|| ||A_k|| / |b_k| passes about 1e15 * accuracy (a nearly infeasible
    problem, rows of very different size) float64 cannot hold margins that precisely; a larger accuracy then accepts
    the answer.

    Arguments:
        threads: None means `torch.get_num_threads()`; fewer where a thread would get less than 16 problems.
    """

    norms = (Frobenius,)
    accuracy: float = 1e-10
    threads: int | None = None

    def solve(self, problem: AttentionSVM, norm: Norm, initial: Tensor | None, progress: ProgressReport) -> RawSolution:
        def solve_share(part: slice) -> tuple[Tensor, Tensor, Tensor]:
            return _solve(problem[part], None if initial is None else initial[part], self.accuracy)

        answers = in_shares(solve_share, problem.batch_shape[0], self.threads)
        weights, duals, steps = (torch.cat(parts).to(problem.data.device) for parts in zip(*answers, strict=True))
        return RawSolution(weights, duals, steps)


def _solve(problem: AttentionSVM, initial: Tensor | None, accuracy: float) -> tuple[Tensor, Tensor, Tensor]:
    """Weights, duals (a ray where infeasible) and steps (entries and drops of rows), all on this thread."""
    from attsvm.svm.solvers.active_set.kernel import solve_batch  # Numba starts only where it is used
    from attsvm.svm.solvers.active_set.rowspace import solve_again

    given = problem.differences(), problem.data.queries, problem.right_hand_side
    differences, queries, sides = (_plain(x) for x in given)
    batch, n, length, d = differences.shape
    warm = np.zeros((1, n, length)) if initial is None else _plain(initial)  # one page of zeros serves every problem
    weights, duals = np.zeros((batch, d, queries.shape[2])), np.zeros((batch, n, length))
    steps = np.zeros(batch, np.int64)
    kinds = np.ascontiguousarray(row_kinds(problem).cpu().numpy())
    unsure = solve_batch(differences, kinds, queries, sides, warm, accuracy, weights, duals, steps)
    answer = torch.from_numpy(weights), torch.from_numpy(duals), torch.from_numpy(steps)
    if unsure.any():
        left = torch.from_numpy(np.flatnonzero(unsure))
        part = problem[left.to(problem.data.device)].cpu()
        for known, found in zip(answer, solve_again(part, answer[1][left]), strict=True):
            known[left] = found
    return answer


def _plain(x: Tensor) -> np.ndarray:
    """float64, C order, writeable: one compiled signature."""
    return np.require(x.cpu().numpy(), np.float64, ["C", "W"])
