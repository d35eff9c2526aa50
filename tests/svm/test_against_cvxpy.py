"""An independent solver: CVXPY with Clarabel, rows written out from the definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attsvm.data import TokenDataset, random_gaussian, random_sphere
from attsvm.norms import Frobenius, Norm
from attsvm.svm import AttentionSVM, BatchedFrobenius, BlockDescent, solve
from cases import CASES, Case

from .checks import (
    NORMS,
    REFERENCE,
    UNIQUE,
    check_same_weights,
    explicit_rows,
    norm_value,
    quiet_solve,
    random_selection,
    reference,
)

SETS: dict[str, TokenDataset] = {
    "sphere 6,8,10": random_sphere(n=6, T=8, d=10, seed=0),
    "sphere 15,5,20": random_sphere(n=15, T=5, d=20, dq=12, seed=1),
    "gaussian 3,6,5": random_gaussian(n=3, T=6, d=5, dq=4, token_scale=3.0, query_scale=0.2, seed=2),
    "prompt 3,4,12": TokenDataset.prompt(random_sphere(n=3, T=4, d=12, seed=3).tokens, [1, -1, 1]),
    "sequence 1,5,6": TokenDataset.sequence(random_sphere(n=1, T=5, d=6, seed=4).tokens, [[1, 1, 1, 1, 1]]),
}


def compare(norm: Norm, data: TokenDataset, selected) -> None:
    expected = reference(explicit_rows(data, selected), norm)
    assert expected is not None
    solution = solve(AttentionSVM(data, selected), norm).require_solved()
    assert solution.certificate.primal_value.item() == pytest.approx(norm_value(norm, expected), rel=1e-7)
    if norm in UNIQUE or bool(solution.unique):
        check_same_weights(solution.weights, expected, 1e-6)


@pytest.mark.parametrize("norm", NORMS, ids=repr)
@pytest.mark.parametrize("name", SETS)
def test_random_data(norm: Norm, name: str) -> None:
    data = SETS[name]
    compare(norm, data, random_selection(data, 7))


@pytest.mark.parametrize("norm", NORMS, ids=repr)
@pytest.mark.parametrize(
    "case",
    [one for one in CASES if one.feasible and one.data.T > 1 and not one.data.batch_shape],
    ids=lambda case: case.name,
)
def test_cases(norm: Norm, case: Case) -> None:
    compare(norm, case.data, case.selected)


@pytest.mark.parametrize("norm", NORMS, ids=repr)
def test_the_solver_that_wraps_it(norm: Norm) -> None:
    data = random_sphere(n=4, T=5, d=6, batch=3, seed=5)
    problem = AttentionSVM(data, random_selection(data, 5))
    ours, theirs = solve(problem, norm), quiet_solve(problem, norm, REFERENCE)
    assert theirs.solver == "Cvxpy"
    assert bool(theirs.solved.all())
    torch.testing.assert_close(ours.certificate.primal_value, theirs.certificate.primal_value, rtol=1e-6, atol=0)
    for element in range(3):
        expected = reference(explicit_rows(data[element], problem.reference[element]), norm)
        assert expected is not None
        assert theirs.certificate.primal_value[element].item() == pytest.approx(norm_value(norm, expected), rel=1e-6)


@pytest.mark.parametrize(
    "solver", [BatchedFrobenius(), BlockDescent(accuracy=1e-10)], ids=lambda solver: type(solver).__name__
)
def test_the_other_frobenius_solvers(solver) -> None:
    data = random_sphere(n=6, T=8, d=10, batch=8, seed=6)
    problem = AttentionSVM(data, random_selection(data, 6))
    found = solve(problem, solver=solver).require_solved()
    for element in range(8):
        expected = reference(explicit_rows(data[element], problem.reference[element]), Frobenius())
        check_same_weights(found.weights[element], expected, 1e-6)
    torch.testing.assert_close(found.weights, solve(problem).weights, rtol=0, atol=1e-6 * float(np.sqrt(10)))
