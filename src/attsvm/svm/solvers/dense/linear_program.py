"""Linear programs for the two polyhedral norms, by HiGHS."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog
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
    size = rows.size
    eye, ones = sp.identity(size, format="csr"), -np.ones((size, 1))
    box = sp.vstack([sp.hstack([eye, ones]), sp.hstack([-eye, ones])])
    separate = sp.hstack([sp.csr_matrix(-rows.inequality), sp.csr_matrix((len(rows.asks), 1))])
    cost = np.append(np.zeros(size), 1.0)
    equality = np.hstack([rows.equality, np.zeros((len(rows.values), 1))]) if len(rows.values) else None
    result = linprog(
        cost,
        A_ub=sp.vstack([separate, box]).tocsr(),
        b_ub=np.concatenate([-rows.asks, np.zeros(2 * size)]),
        A_eq=equality,
        b_eq=rows.values if equality is not None else None,
        bounds=[(None, None)] * size + [(0, None)],
        method="highs",
        options=_TIGHT,
    )
    return _unpacked(result, rows, lambda x: x[:size])


def _sum_of_entries(rows: DenseRows) -> OneSolution:
    """min 1^T (p + q)  s.t.  w = p - q, p, q >= 0, A w >= b, C w = c."""
    size = rows.size
    equality = np.hstack([rows.equality, -rows.equality]) if len(rows.values) else None
    result = linprog(
        np.ones(2 * size),
        A_ub=np.hstack([-rows.inequality, rows.inequality]) if len(rows.asks) else None,
        b_ub=-rows.asks if len(rows.asks) else None,
        A_eq=equality,
        b_eq=rows.values if equality is not None else None,
        bounds=(0, None),
        method="highs",
        options=_TIGHT,
    )
    return _unpacked(result, rows, lambda x: x[:size] - x[size:])


_TIGHT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


def _unpacked(result, rows: DenseRows, weights) -> OneSolution:  # type: ignore[no-untyped-def]
    n, length, d, dq = rows.shape
    if result.x is None:
        return np.full((d, dq), np.nan), np.zeros((n, length)), int(result.nit)
    count = len(rows.asks)
    inequality = -result.ineqlin.marginals[:count] if count else np.zeros(0)
    equality = result.eqlin.marginals if len(rows.values) else np.zeros(0)
    duals = rows.duals(np.maximum(inequality, 0.0), equality)
    return weights(result.x).reshape(d, dq), duals, int(result.nit)
