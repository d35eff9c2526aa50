"""Every solver runs every case: the certificate, our own arithmetic, the status each case must have."""

from __future__ import annotations

import numpy as np
import pytest

from attsvm.norms import Norm
from attsvm.svm import AttentionSVM, Solver, Status
from cases import Case, every_case

from .checks import SOLVERS, check_solution, quiet_solve, solver_id

every_solver = pytest.mark.parametrize("pair", SOLVERS, ids=solver_id)


@every_solver
@every_case
def test_every_solver_runs_every_case(pair: tuple[Norm, Solver | None], case: Case) -> None:
    problem = AttentionSVM(case.data, case.selected)
    solution = quiet_solve(problem, *pair)
    assert solution.batch_shape == case.data.batch_shape
    expected = Status.INFEASIBLE if not case.feasible else Status.NO_ROWS if case.data.T == 1 else Status.SOLVED
    for place in np.ndindex(case.data.batch_shape):
        one, data, selected = (
            (solution[place], case.data[place], case.selected[place]) if place else (solution, case.data, case.selected)
        )
        assert one.status is expected
        check_solution(one, data, selected)
        assert bool(one.certificate.holds_ray(1e-10)) == (expected is Status.INFEASIBLE)
        if expected is not Status.INFEASIBLE:
            assert bool(one.certificate.proves_optimal(one.tolerance))
