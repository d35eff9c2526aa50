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
from attsvm.svm.solvers.dense.rows import dense_rows


@dataclass(frozen=True)
class ColumnGeneration(Solver):
    """HiGHS on the atoms that matter, for `Projective` and at most 16 rows or columns of W."""

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
            margins = one.margins(weights[element])
            if (one.inequalities & (one.right_hand_side > margins + 0.5 * one.right_hand_side.abs())).any():
                continue  # no weights that separate to start from
            rows, guess = dense_rows(one), weights[element].cpu().numpy()
            parts, count = (rows.inequalities, rows.equalities), len(rows.inequalities)
            matrix = np.concatenate([part.matrix for part in parts])
            sides = np.concatenate([part.right_hand_side for part in parts])
            found = over_atoms(matrix, sides, count, guess, guess.reshape(1, -1) / rows.unit, 1e-10)
            if found is not None:
                lam = rows.duals(*np.split(found[2], [count]))
                weights[element], duals[element] = torch.from_numpy(found[0] * rows.unit), torch.from_numpy(lam)
                steps[element] = found[3]
        return RawSolution(weights, duals, steps)
