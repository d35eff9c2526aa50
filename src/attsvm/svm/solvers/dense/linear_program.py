"""Linear programs for the two polyhedral norms, by HiGHS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from attsvm.norms import MaxEntry, Norm, SumEntry
from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.base import ProgressReport, RawSolution, Solver
from attsvm.svm.solvers.dense.rows import DenseRows, OneSolution, loop


@dataclass(frozen=True)
class LinearProgram(Solver):
    """HiGHS (through SciPy) for `MaxEntry` and `SumEntry`.

    Arguments:
        workers: processes for a batch; None means all cores.
        accuracy: relative gap to which the certificate must hold.
    """

    workers: int | None = None
    accuracy: float = 1e-07

    def refusal(self, problem: AttentionSVM, norm: Norm) -> str | None:
        return None if isinstance(norm, (MaxEntry, SumEntry)) else "it solves MaxEntry and SumEntry"

    def solve(
        self, problem: AttentionSVM, norm: Norm, initial: Tensor | None, progress: ProgressReport | None
    ) -> RawSolution:
        return loop(problem, _largest_entry if isinstance(norm, MaxEntry) else _sum_of_entries, self.workers)


def _largest_entry(rows: DenseRows) -> OneSolution:
    """min t  s.t.  -t <= w <= t, A w >= b, C w = c."""
    import scipy.sparse as sp

    size, lower, equal = rows.size, rows.inequalities, rows.equalities
    eye, ones = sp.identity(size, format="csr"), -np.ones((size, 1))
    box = sp.vstack([sp.hstack([eye, ones]), sp.hstack([-eye, ones])])
    separate = sp.hstack([sp.csr_matrix(-lower.matrix), sp.csr_matrix((len(lower), 1))])
    return _solved(
        rows,
        lambda x: x[:size],
        cost=np.append(np.zeros(size), 1.0),
        upper=(sp.vstack([separate, box]).tocsr(), np.concatenate([-lower.right_hand_side, np.zeros(2 * size)])),
        equal_matrix=np.hstack([equal.matrix, np.zeros((len(equal), 1))]),
        bounds=[(None, None)] * size + [(0, None)],
    )


def _sum_of_entries(rows: DenseRows) -> OneSolution:
    """min 1^T (p + q)  s.t.  w = p - q, p, q >= 0, A w >= b, C w = c."""
    size, lower, equal = rows.size, rows.inequalities, rows.equalities
    some = len(lower) > 0
    return _solved(
        rows,
        lambda x: x[:size] - x[size:],
        cost=np.ones(2 * size),
        upper=(np.hstack([-lower.matrix, lower.matrix]), -lower.right_hand_side) if some else (None, None),
        equal_matrix=np.hstack([equal.matrix, -equal.matrix]),
        bounds=(0, None),
    )


TIGHT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


def _solved(
    rows: DenseRows,
    weights: Callable[[np.ndarray], np.ndarray],
    *,
    cost: np.ndarray,
    upper: tuple[Any, Any],
    equal_matrix: np.ndarray,
    bounds: Any,
) -> OneSolution:
    """min cost^T x  s.t.  upper[0] x <= upper[1], equal_matrix x = b on the equalities; `weights` takes x to w."""
    from scipy.optimize import linprog  # slow to import, and only two norms come here

    lower, equal = rows.inequalities, rows.equalities
    result = linprog(
        cost,
        A_ub=upper[0],
        b_ub=upper[1],
        A_eq=equal_matrix if len(equal) else None,
        b_eq=equal.right_hand_side if len(equal) else None,
        bounds=bounds,
        method="highs",
        options=TIGHT,
    )
    if result.x is None:
        return rows.nothing(int(result.nit))
    lam = -result.ineqlin.marginals[: len(lower)] if len(lower) else np.zeros(0)
    duals = rows.duals(np.maximum(lam, 0.0), result.eqlin.marginals if len(equal) else np.zeros(0))
    return weights(result.x).reshape(rows.shape[2:]), duals, int(result.nit)
