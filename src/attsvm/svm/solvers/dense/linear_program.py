"""Linear programs, by HiGHS: the two polyhedral norms, and the projective norm over sign matrices as they are needed.

    min sum_j c_j   s.t.   sum_j c_j (d_k^T u_j)(v_j^T z_k) >= b_k,  c >= 0,  entries of u_j, v_j = +-1

is that of the projective norm. The multipliers of the program on a few atoms give M = sum_k lam_k d_k z_k^T; the atoms
with u^T M v > 1 enter, found among all signs, until there are none. A Frobenius solution, as one more column at the
price of its sum of |entries|, keeps the program feasible from the start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attsvm.norms import Frobenius, MaxEntry, Norm, SumEntry
from attsvm.norms.projective import EXACT, Projective, highs, over_atoms
from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.base import ProgressReport, RawSolution, Solver
from attsvm.svm.solvers.batched.solver import BatchedFrobenius
from attsvm.svm.solvers.dense.rows import DenseRows, OneSolution, dense_rows, loop


@dataclass(frozen=True)
class LinearProgram(Solver):
    """HiGHS (through SciPy) for `MaxEntry` and `SumEntry`.

    Arguments:
        workers: processes for a batch; None means all cores.
    """

    norms = (MaxEntry, SumEntry)
    workers: int | None = None
    accuracy: float = 1e-07

    def solve(self, problem: AttentionSVM, norm: Norm, initial: Tensor | None, progress: ProgressReport) -> RawSolution:
        return loop(problem, _largest_entry if isinstance(norm, MaxEntry) else _sum_of_entries, self.workers)


def _largest_entry(rows: DenseRows) -> OneSolution:
    """min t  s.t.  -t <= w <= t, A w >= b, C w = c."""
    import scipy.sparse as sp

    eye, ones = sp.identity(rows.size, format="csr"), np.ones((rows.size, 1))
    box = sp.vstack([sp.hstack([eye, -ones]), sp.hstack([-eye, -ones])])
    bounds = [(None, None)] * rows.size + [(0, None)]
    return _solved(rows, sp.hstack([eye, 0 * ones]), np.append(np.zeros(rows.size), 1.0), box, bounds)


def _sum_of_entries(rows: DenseRows) -> OneSolution:
    """min 1^T (p + q)  s.t.  w = p - q, p, q >= 0, A w >= b, C w = c."""
    import scipy.sparse as sp

    eye, nothing = sp.identity(rows.size, format="csr"), sp.csr_matrix((0, 2 * rows.size))
    return _solved(rows, sp.hstack([eye, -eye]), np.ones(2 * rows.size), nothing, (0, None))


def _solved(rows: DenseRows, split: Any, cost: np.ndarray, box: Any, bounds: Any) -> OneSolution:
    """min cost^T x  s.t.  A w >= b, C w = c, box x <= 0, where w = split x."""
    import scipy.sparse as sp

    lower, equal = rows.inequalities, rows.equalities
    matrix = sp.vstack([sp.csr_matrix(-lower.matrix @ split), box]).tocsr()
    sides = np.concatenate([-lower.right_hand_side, np.zeros(box.shape[0])])
    result = highs(cost, (matrix, sides), (equal.matrix @ split, equal.right_hand_side), bounds)
    if result.x is None:
        return rows.nothing(int(result.nit))
    duals = rows.duals(np.maximum(-result.ineqlin.marginals[: len(lower)], 0.0), result.eqlin.marginals)
    return (split @ result.x).reshape(rows.shape[2:]), duals, int(result.nit)


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
