"""Frobenius attention SVMs, exactly, on the CPU: by the compiled `kernel` or, where it is unsure, by `solve_again`.

With the rows in a matrix A and t > 0 of any size, the least-distance form (Lawson and Hanson, chapter 23)

    min ||A^T u||^2 + (1 - t b^T u)^2,   u >= 0 (free on equality rows)

is a least-squares problem with signs, and nothing in it is squared: SciPy's `nnls` adds and drops rows like `kernel`,
by orthogonal factors of the rows. Its support holds the active rows, with kappa = 1 - t b^T u = 1 / (1 + t^2 ||W||^2);
where kappa = 0 it is a ray. Digits of W are lost where kappa is near 0 or 1, so t follows 1 / ||W||, and W itself comes
from the active rows: A_act W = b_act, as short as possible. Slow, and called only where `kernel` is unsure.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attsvm.norms import Frobenius, Norm
from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.base import BOUND, RAY, ProgressReport, RawSolution, Solver, in_shares, row_kinds
from attsvm.svm.solvers.batched.rows import scale

_TURNS = 6  # guesses of ||W||; two are usual


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


def solve_again(problem: AttentionSVM, guesses: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Weights, duals and turns of problems, from duals that are a guess; a ray where that passes its check."""
    scaled, back = scale(problem, problem.most_rows)
    factor = back.factor / back.unit
    starts = guesses.flatten(1).gather(1, back.index) / factor
    weights = starts.new_zeros(len(starts), problem.data.d, problem.data.dq)
    multipliers, turns = torch.zeros_like(starts), torch.zeros(len(starts), dtype=torch.int64)
    for k in range(len(starts)):
        real = scaled.present[k].nonzero().flatten()
        matrix = (scaled.differences[k, real, :, None] * scaled.queries[k, real, None]).flatten(1).numpy()
        sides, equal = scaled.right_hand_side[k, real].numpy(), scaled.equalities[k, real].numpy()
        point, lam, turns[k] = _solve_one(matrix, sides, equal, starts[k, real].numpy())
        if point is None:
            multipliers[k, real] = torch.from_numpy(lam) * back.unit[k] ** 2
        else:
            weights[k] = torch.from_numpy(point.reshape(weights.shape[1:])) / back.unit[k]
            multipliers[k, real] = torch.from_numpy(lam)
    duals = torch.zeros_like(guesses).flatten(1).scatter_(1, back.index, multipliers * factor)
    return weights, duals.view_as(guesses), turns


def _solve_one(
    matrix: np.ndarray, sides: np.ndarray, equal: np.ndarray, guess: np.ndarray
) -> tuple[np.ndarray | None, np.ndarray, int]:
    """vec(W) and multipliers of rows ``[m, d dq]`` of lengths in [1, 4), or None and a ray with b^T ray = 1; turns."""
    from scipy.optimize import nnls  # slow to import, and few problems come here

    index = np.concatenate([np.arange(len(sides)), np.flatnonzero(equal)])  # equality rows with both signs
    sign = np.where(np.arange(len(index)) < len(sides), 1.0, -1.0)
    rows, b = sign[:, None] * matrix[index], sign * sides[index]
    target = np.append(np.zeros(matrix.shape[1]), 1.0)
    point, lam, turn = guess @ matrix, guess, 0
    for turn in range(1, _TURNS + 1):
        before = float(np.linalg.norm(point))
        try:
            u, _ = nnls(np.vstack([rows.T, b / max(before, 1.0)]), target, maxiter=20 * len(index))
        except RuntimeError:  # its limit on iterations
            break
        lam = np.bincount(index, sign * u, len(sides))
        left, earned = float(np.linalg.norm(lam @ matrix)), lam * sides
        if left <= RAY * np.abs(lam).sum() and earned.sum() > max(1e-13 * np.abs(earned).sum(), BOUND * left):
            return None, lam / earned.sum(), turn
        active = lam != 0
        inverse = np.linalg.pinv(matrix[active])
        point = inverse @ sides[active]
        point += inverse @ (sides[active] - matrix[active] @ point)  # refined
        lam[active] = inverse.T @ point
        if before / 3 < np.linalg.norm(point) < 3 * before:
            break
    return point, np.where(equal, lam, np.maximum(lam, 0.0)), turn
