"""Nuclear solutions that are not unique: the set they form, and the distance to it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attsvm.data import random_sphere
from attsvm.norms import Entrywise, Frobenius, MaxEntry, Nuclear
from attsvm.svm import AttentionSVM, distance_to_solution_set, solve
from cases import case

from .checks import dataset, random_selection


def many() -> AttentionSVM:
    """Rows e_1 e_1^T and e_2 e_2^T: every [[1, h], [h, 1]] with |h| <= 1 has nuclear norm 2 and is a solution."""
    eye = np.eye(2)
    return AttentionSVM(dataset(np.stack([eye, np.zeros((2, 2))], axis=1), eye), [0, 0])


def by_hand(weights: np.ndarray) -> float:
    """Distance of W / ||W||_* to { [[1, h], [h, 1]] / 2 : |h| <= 1 }."""
    given = weights / np.linalg.norm(weights, "nuc")
    h = np.clip((given[0, 1] + given[1, 0]) / 2, -0.5, 0.5)
    return float(np.linalg.norm(given - np.array([[0.5, h], [h, 0.5]])))


def by_cvxpy(weights: np.ndarray, problem: AttentionSVM, value: float) -> float:
    """The projection onto { W : ||W||_* <= value, margins >= 1 } / value, by CVXPY from the definition."""
    import cvxpy as cp

    given = weights / np.linalg.norm(weights, "nuc")
    point = cp.Variable(weights.shape)
    differences = problem.differences().numpy()
    rows = [
        differences[i, t] @ point @ problem.data.queries[i].numpy() >= 1 / value
        for i, t in torch.nonzero(problem.rows).tolist()
    ]
    program = cp.Problem(cp.Minimize(cp.norm(point - given, "fro")), [cp.normNuc(point) <= 1 + 1e-9, *rows])
    return float(program.solve(solver="CLARABEL"))


def test_a_problem_of_many_solutions_says_so() -> None:
    solution = solve(many(), Nuclear()).require_solved()
    assert solution.certificate.primal_value.item() == pytest.approx(2, rel=1e-9)
    assert not bool(solution.unique)
    torch.testing.assert_close(solution.weights.diagonal(), torch.ones(2).double(), rtol=0, atol=1e-8)


def test_a_generic_problem_is_unique() -> None:
    data = random_sphere(n=4, T=5, d=6, batch=10, seed=1)
    solution = solve(AttentionSVM(data, random_selection(data, 1)), Nuclear()).require_solved()
    assert bool(solution.unique.all())


@pytest.mark.parametrize("h", [-1.0, -0.3, 0.0, 0.8, 1.0])
def test_every_solution_is_at_distance_zero(h: float) -> None:
    solution = np.array([[1.0, h], [h, 1.0]])
    assert distance_to_solution_set(solution, many()).item() <= 1e-4
    assert distance_to_solution_set(7 * solution, many()).item() <= 1e-4


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")  # CVXPY's word; the comparison judges
@pytest.mark.parametrize("seed", range(6))
def test_distance_by_hand_and_by_cvxpy(seed: int) -> None:
    weights = np.random.default_rng(seed).standard_normal((2, 2))
    found = distance_to_solution_set(weights, many()).item()
    assert found == pytest.approx(by_hand(weights), abs=1e-5)
    assert found == pytest.approx(by_cvxpy(weights, many(), 2.0), abs=1e-4)


def test_the_helpers_tell_far_from_near() -> None:
    assert by_hand(np.array([[1.0, 0.5], [0.5, 1.0]])) == pytest.approx(0, abs=1e-12)
    assert by_hand(np.array([[1.0, 0.5], [-0.5, 1.0]])) > 0.1
    assert by_cvxpy(np.array([[1.0, 0.5], [-0.5, 1.0]]), many(), 2.0) > 0.1


def test_a_unique_solution_is_a_point() -> None:
    data = random_sphere(n=3, T=4, d=5, batch=2, seed=2)
    problem = AttentionSVM(data, random_selection(data, 2))
    weights = torch.from_numpy(np.random.default_rng(2).standard_normal((2, 5, 5)))
    for norm in (Nuclear(), Frobenius(), Entrywise(3)):
        solution = solve(problem, norm).require_solved()
        expected = [
            np.linalg.norm(
                (weights[b] / norm.value(weights[b]) - solution.weights[b] / norm.value(solution.weights[b])).numpy()
            )
            for b in range(2)
        ]
        assert distance_to_solution_set(weights, problem, norm, solution=solution).tolist() == pytest.approx(
            expected, rel=1e-6
        )
        assert distance_to_solution_set(solution.weights, problem, norm, solution=solution).max() <= 1e-6


def test_a_generic_problem_against_cvxpy() -> None:
    """Even where the solution is unique the set is what CVXPY projects on."""
    data = random_sphere(n=3, T=3, d=4, seed=3)
    problem = AttentionSVM(data, random_selection(data, 3))
    value = solve(problem, Nuclear()).certificate.primal_value.item()
    weights = np.random.default_rng(3).standard_normal((4, 4))
    found = distance_to_solution_set(weights, problem).item()
    assert found == pytest.approx(by_cvxpy(weights, problem, value), abs=1e-3)


def test_infeasible_and_refused() -> None:
    bad = case("infeasible")
    assert np.isnan(distance_to_solution_set(np.ones((2, 2)), AttentionSVM(bad.data, bad.selected)).item())
    with pytest.raises(
        ValueError, match="distance_to_solution_set knows Nuclear, Frobenius and Entrywise norms; got MaxEntry"
    ):
        distance_to_solution_set(np.ones((2, 2)), many(), MaxEntry())
    with pytest.raises(ValueError, match="weights must have shape"):
        distance_to_solution_set(np.ones((3, 2)), many())
