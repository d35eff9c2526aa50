"""Nuclear-norm solutions, many at once, on any device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attsvm.norms import Norm, Nuclear
from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.base import ProgressReport, RawSolution, Solver


@dataclass(frozen=True)
class NuclearInteriorPoint(Solver):
    """Batched primal-dual interior point, then a Newton polish on the identified rank and active rows.

    Rows are projected on the spans of the queries and of the differences first, which is exact for this norm. Problems
    with more than `most_rows` rows are solved by working sets: a subset of rows, then the rows its solution violates.

    Arguments:
        accuracy: relative gap and violation to which the certificate must hold.
        most_rows: rows handled at once; their Schur matrix has this order squared.
    """

    accuracy: float = 1e-8
    most_rows: int = 400

    def refusal(self, problem: AttentionSVM, norm: Norm) -> str | None:
        return None if isinstance(norm, Nuclear) else "it solves the nuclear norm"

    def solve(
        self, problem: AttentionSVM, norm: Norm, initial: Tensor | None, progress: ProgressReport | None
    ) -> RawSolution:
        from attsvm.svm.solvers.nuclear.solve import solve_nuclear  # Numba starts only where it is used

        rows = problem.rows.flatten(1).sum(1)
        if int(rows.max()) > self.most_rows:
            return self._by_working_sets(problem, progress)
        result = solve_nuclear(
            problem.differences(),
            problem.inequalities,
            problem.data.queries,
            problem.right_hand_side,
            problem.equalities,
            tolerance=self.accuracy,
        )
        return RawSolution(result.weights, result.duals, result.iterations, result.unique)

    def _by_working_sets(self, problem: AttentionSVM, progress: ProgressReport | None) -> RawSolution:
        from attsvm.svm.solvers.nuclear.working_set import solve_nuclear_large

        def report(turn: int, chosen: int, violated: int, error: float) -> None:
            if progress is not None:
                progress(f"round {turn + 1}: {violated} rows violated, {chosen} working rows, error {error:.1e}")

        results = []
        for element in range(problem.batch_shape[0]):
            one = problem[element : element + 1]
            results.append(
                solve_nuclear_large(
                    one.differences(),
                    one.inequalities,
                    one.data.queries,
                    one.right_hand_side,
                    one.equalities,
                    tolerance=self.accuracy,
                    progress=report,
                )
            )
        joined = {
            name: torch.cat([getattr(one, name) for one in results])
            for name in ("weights", "duals", "iterations", "unique")
        }
        return RawSolution(joined["weights"], joined["duals"], joined["iterations"], joined["unique"])
