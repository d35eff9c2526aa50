"""CVXPY, for users who want it and as the independent reference of the tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from attsvm.norms import Entrywise, Frobenius, MaxEntry, Norm, Nuclear, Spectral, SumEntry
from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.base import ProgressReport, RawSolution, Solver
from attsvm.svm.solvers.dense.rows import DenseRows, OneSolution, loop


@dataclass(frozen=True)
class Cvxpy(Solver):
    """Any norm through CVXPY, with the solver it is given (Clarabel unless told).

    Arguments:
        backend: CVXPY's name of the solver, such as "CLARABEL" or "SCS".
        options: handed to that solver.
        workers: processes for a batch; None means all cores.
        accuracy: relative gap to which the certificate must hold.
    """

    backend: str = "CLARABEL"
    options: dict[str, Any] = field(default_factory=dict)
    workers: int | None = 1
    accuracy: float = 1e-06

    def refusal(self, problem: AttentionSVM, norm: Norm) -> str | None:
        try:
            import cvxpy  # noqa: F401
        except ImportError:
            return "CVXPY is not installed; pip install 'attsvm[reference]'"
        return None

    def solve(
        self, problem: AttentionSVM, norm: Norm, initial: Tensor | None, progress: ProgressReport | None
    ) -> RawSolution:
        return loop(problem, lambda rows: self._solve_one(rows, norm), self.workers)

    def _solve_one(self, rows: DenseRows, norm: Norm) -> OneSolution:
        import cvxpy as cp

        weights = cp.Variable(rows.shape[2:])
        flat = cp.reshape(weights, (rows.size,), order="C")
        lower, equal = rows.inequalities, rows.equalities
        constraints = []
        if len(lower):
            constraints.append(lower.matrix @ flat >= lower.right_hand_side)
        if len(equal):
            constraints.append(equal.matrix @ flat == equal.right_hand_side)
        problem = cp.Problem(cp.Minimize(_objective(cp, norm, weights, flat)), constraints)
        try:
            problem.solve(solver=self.backend, **self.options)
        except cp.SolverError:
            return rows.nothing()
        if weights.value is None:
            return rows.nothing()
        multipliers = [np.asarray(constraint.dual_value) for constraint in constraints]
        lam = np.maximum(multipliers[0], 0.0) if len(lower) else np.zeros(0)
        nu = -multipliers[-1] if len(equal) else np.zeros(0)
        steps = problem.solver_stats.num_iters or 0
        return np.asarray(weights.value), rows.duals(lam, nu), int(steps)


def _objective(cp: Any, norm: Norm, weights: Any, flat: Any) -> Any:
    if isinstance(norm, Entrywise):
        return cp.pnorm(flat, norm.p)
    kinds: dict[type[Norm], Callable[[], Any]] = {
        Frobenius: lambda: cp.norm(flat, 2),
        Nuclear: lambda: cp.normNuc(weights),
        Spectral: lambda: cp.sigma_max(weights),
        MaxEntry: lambda: cp.norm(flat, "inf"),
        SumEntry: lambda: cp.norm(flat, 1),
    }
    for kind, make in kinds.items():
        if isinstance(norm, kind):
            return make()
    raise ValueError(f"CVXPY has no expression for {norm!r} here; use a norm of attsvm.norms")
