"""Linear programs for the two polyhedral norms, by HiGHS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from attsvm.norms import MaxEntry, Norm, SumEntry
from attsvm.norms.projective import highs
from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.base import ProgressReport, RawSolution, Solver
from attsvm.svm.solvers.dense.rows import DenseRows, OneSolution, loop


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
