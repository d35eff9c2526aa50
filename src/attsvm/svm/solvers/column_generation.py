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
from attsvm.norms.projective import EXACT, Projective, attained
from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.base import ProgressReport, RawSolution, Solver
from attsvm.svm.solvers.batched.solver import BatchedFrobenius
from attsvm.svm.solvers.dense.linear_program import TIGHT
from attsvm.svm.solvers.dense.rows import DenseRows, dense_rows

_ROUNDS, _FIRST, _NEW = 60, 60, 30  # rounds, atoms of the first, and atoms that a round may add


@dataclass(frozen=True)
class ColumnGeneration(Solver):
    """HiGHS on the atoms that matter, for `Projective` and at most 16 rows or columns of W.

    Arguments:
        accuracy: relative gap to which the certificate must hold.
    """

    accuracy: float = 1e-8

    def refusal(self, problem: AttentionSVM, norm: Norm) -> str | None:
        if not isinstance(norm, Projective):
            return "it solves Projective"
        short = min(problem.data.d, problem.data.dq)
        return None if short <= EXACT else f"it tries all signs of {EXACT} rows or columns of W, which has {short}"

    def solve(
        self, problem: AttentionSVM, norm: Norm, initial: Tensor | None, progress: ProgressReport | None
    ) -> RawSolution:
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
    from scipy.optimize import linprog

    lower, equal = rows.inequalities, rows.equalities
    matrix = np.concatenate([lower.matrix, equal.matrix])
    shape, guess = rows.shape[2:], guess / rows.unit
    _, left, right = attained(torch.from_numpy(guess), _FIRST)
    atoms = np.concatenate([guess.reshape(1, -1), _outer(left, right)])
    cost = np.ones(len(atoms))
    cost[0] = np.abs(guess).sum()
    turn = 0
    for _ in range(_ROUNDS):
        turn += 1
        columns = matrix @ atoms.T
        found = linprog(
            cost,
            A_ub=-columns[: len(lower)] if len(lower) else None,
            b_ub=-lower.right_hand_side if len(lower) else None,
            A_eq=columns[len(lower) :] if len(equal) else None,
            b_eq=equal.right_hand_side if len(equal) else None,
            bounds=(0, None),
            method="highs",
            options=TIGHT,
        )
        if found.x is None:
            break
        lam = -found.ineqlin.marginals if len(lower) else np.zeros(0)
        nu = found.eqlin.marginals if len(equal) else np.zeros(0)
        sums, left, right = attained(torch.from_numpy((np.concatenate([lam, nu]) @ matrix).reshape(shape)), _NEW)
        if sums[0] <= 1 + 1e-10:
            break
        new = sums > 1 + 1e-10
        atoms = np.concatenate([atoms, _outer(left[new], right[new])])
        cost = np.concatenate([cost, np.ones(new.sum())])
    if found.x is None:
        return guess * rows.unit, np.zeros(rows.shape[:2]), turn
    return (found.x @ atoms).reshape(shape) * rows.unit, rows.duals(np.maximum(lam, 0.0), nu), turn


def _outer(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """u v^T of every pair, each as one row."""
    return (left[:, :, None] * right[:, None, :]).reshape(len(left), -1)
