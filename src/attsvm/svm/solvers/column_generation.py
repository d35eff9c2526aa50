"""Max-margin problems in the projective norm: a linear program over sign matrices, generated as they are needed.

    min sum_j c_j   s.t.   sum_j c_j (d_k^T u_j)(v_j^T z_k) >= b_k,  c >= 0,  entries of u_j, v_j = +-1

The multipliers of the program on a few atoms give M = sum_k lam_k d_k z_k^T; the atoms with u^T M v > 1 enter, found
among all signs, until there are none. A Frobenius solution, as one more column at the price of its sum of |entries|,
keeps the program feasible from the start.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attsvm.norms import Frobenius, Norm
from attsvm.norms.projective import EXACT, Projective, over_atoms
from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.base import ProgressReport, RawSolution, Solver
from attsvm.svm.solvers.batched.solver import BatchedFrobenius
from attsvm.svm.solvers.dense.rows import DenseRows, dense_rows


@dataclass(frozen=True)
class ColumnGeneration(Solver):
    """HiGHS on the atoms that matter, for `Projective` and at most 16 rows or columns of W.

    Arguments:
        accuracy: relative gap to which the certificate must hold.
    """

    norms = (Projective,)
    accuracy: float = 1e-8

    def refusal(self, problem: AttentionSVM, norm: Norm) -> str | None:
        short = min(problem.data.d, problem.data.dq)
        many = f"it tries all signs of {EXACT} rows or columns of W, which has {short}" if short > EXACT else None
        return super().refusal(problem, norm) or many

    def solve(self, problem: AttentionSVM, norm: Norm, initial: Tensor | None, progress: ProgressReport) -> RawSolution:
        start = BatchedFrobenius().solve(problem, Frobenius(), None, None)
        weights, duals, steps = start.weights.clone(), start.duals.clone(), torch.zeros_like(start.iterations)
        for element in range(len(weights)):
            one = problem[element]
            guess = weights[element].cpu().numpy()
            margins = one.margins(weights[element])
            if not (one.inequalities & (one.right_hand_side > margins + 0.5 * one.right_hand_side.abs())).any():
                found, lam, steps[element] = _solve_one(dense_rows(one), guess)
                weights[element], duals[element] = torch.from_numpy(found), torch.from_numpy(lam)
        return RawSolution(weights, duals, steps)


def _solve_one(rows: DenseRows, guess: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """W, duals and rounds of one problem, from a feasible guess."""
    parts = rows.inequalities, rows.equalities
    matrix, sides = (np.concatenate([getattr(part, name) for part in parts]) for name in ("matrix", "right_hand_side"))
    found = over_atoms(matrix, sides, len(parts[0]), guess, guess.reshape(1, -1) / rows.unit, 1e-10)
    if found is None:
        return guess, np.zeros(rows.shape[:2]), 1
    weights, _, multipliers, rounds = found
    return weights * rows.unit, rows.duals(*np.split(multipliers, [len(parts[0])])), rounds
