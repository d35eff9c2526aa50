"""The checks of this folder can fail: each condition broken in turn, each caught by name."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attsvm import norms
from attsvm.data import random_sphere
from attsvm.norms import Frobenius, Gamma2, Norm, Projective
from attsvm.svm import AttentionSVM, solve
from attsvm.svm.solve import choose_solver
from cases import case

from .checks import (
    NORMS,
    check_optimal,
    check_ray,
    check_same_weights,
    check_solution,
    dual_norm_value,
    explicit_rows,
    norm_value,
    random_selection,
    reference,
    written_out,
)


@pytest.fixture(scope="module")
def solved():
    data = random_sphere(n=3, T=4, d=5, seed=3)
    selected = random_selection(data, 0)
    return data, selected, solve(AttentionSVM(data, selected))


def test_a_right_pair_passes(solved) -> None:
    data, selected, solution = solved
    check_optimal(explicit_rows(data, selected), Frobenius(), solution.weights, solution.duals, 1e-10)


@pytest.mark.parametrize(
    ("change", "condition"),
    [
        (lambda w, lam, i: (0.999 * w, lam), "every margin reaches"),
        (lambda w, lam, i: (w, lam - 2 * lam * (lam == lam.max())), "duals are not negative"),
        (lambda w, lam, i: (w, 1.01 * lam), "dual ball"),
        (lambda w, lam, i: (w, 0.99 * lam), "primal and dual values agree"),
        (lambda w, lam, i: (1.01 * w, lam), "primal and dual values agree"),
        (lambda w, lam, i: (w, lam.scatter(-1, i[:, None], 1.0)), "duals vanish where there is no row"),
    ],
    ids=["short", "negative", "large dual", "small dual", "long", "dual at the selected token"],
)
def test_check_optimal_can_fail(solved, change, condition: str) -> None:
    data, selected, solution = solved
    weights, duals = change(solution.weights, solution.duals, selected)
    with pytest.raises(AssertionError, match=condition):
        check_optimal(explicit_rows(data, selected), Frobenius(), weights, duals, 1e-10)


def test_check_optimal_sees_a_missed_equality() -> None:
    data = random_sphere(n=2, T=4, d=5, seed=4)
    kept = np.array([[True, True, False, False]] * 2)
    solution = solve(AttentionSVM(data, selected_set=kept))
    rows = explicit_rows(data, selected_set=kept)
    check_optimal(rows, Frobenius(), solution.weights, solution.duals, 1e-9)
    shifted = solution.weights + 1e-3 * torch.from_numpy(rows.equalities[0])
    with pytest.raises(AssertionError, match=r"every equality holds|every margin"):
        check_optimal(rows, Frobenius(), shifted, solution.duals, 1e-9)


@pytest.mark.parametrize(
    ("change", "condition"),
    [
        (lambda ray: -ray, "not negative"),
        (lambda ray: 0 * ray, "earns something"),
        (lambda ray: ray * torch.nan, "finite"),
        (lambda ray: ray + torch.eye(*ray.shape).double(), "cancels"),
    ],
    ids=["sign", "zero", "nan", "perturbed"],
)
def test_check_ray_can_fail(change, condition: str) -> None:
    small = case("d too small")
    ray = solve(AttentionSVM(small.data, small.selected)).duals
    rows = explicit_rows(small.data, small.selected)
    check_ray(rows, ray)
    with pytest.raises(AssertionError, match=condition):
        check_ray(rows, change(ray))


def test_check_solution_refuses_a_solution_of_another_problem(solved) -> None:
    data, selected, solution = solved
    check_solution(solution, data, selected)
    with pytest.raises(AssertionError, match="every margin"):
        check_solution(solution, data, (selected + 1) % data.T)


def test_check_same_weights_can_fail() -> None:
    one = torch.ones(2, 2).double()
    check_same_weights(one, (1 + 1e-9) * one, 1e-8)
    with pytest.raises(AssertionError, match="same weights"):
        check_same_weights(one, (1 + 1e-7) * one, 1e-8)
    with pytest.raises(AssertionError, match="finite"):
        check_same_weights(one * torch.nan, one, 1e-8)
    with pytest.raises(AssertionError, match="one shape"):
        check_same_weights(one, torch.ones(2, 3).double(), 1e-8)


@pytest.mark.parametrize("norm", NORMS, ids=repr)
def test_norms_by_numpy_are_dual_to_each_other(norm: Norm) -> None:
    rng = np.random.default_rng(1)
    matrix = rng.standard_normal((3, 4))
    tried = rng.standard_normal((2000, 3, 4))
    best = max((matrix * one).sum() / norm_value(norm, one) for one in tried)
    assert best <= dual_norm_value(norm, matrix) * (1 + 1e-12)
    direction = norm.steepest(matrix).numpy()
    assert (matrix * direction).sum() == pytest.approx(
        dual_norm_value(norm, matrix) * norm_value(norm, direction), rel=1e-9
    )


@pytest.mark.parametrize("name", ["feasible", "ragged", "prompt", "causal", "values apart from keys"])
def test_rows_of_the_problem_are_the_rows_of_the_definition(name: str) -> None:
    one = case(name)
    rows, problem = explicit_rows(one.data, one.selected), AttentionSVM(one.data, one.selected)
    assert sorted(rows.places) == [tuple(place) for place in torch.nonzero(problem.rows).tolist()]
    weights = np.random.default_rng(2).standard_normal((one.data.d, one.data.dq))
    margins = problem.margins(torch.from_numpy(weights)).numpy()
    expected = np.einsum("kij,ij->k", rows.inequalities, weights)
    np.testing.assert_allclose([margins[place] for place in rows.places], expected, rtol=0, atol=1e-12)
    duals = np.random.default_rng(3).standard_normal(margins.shape) * problem.rows.numpy()
    np.testing.assert_allclose(problem.combine(duals).numpy(), rows.combine(duals), rtol=0, atol=1e-12)
    lengths = problem.row_norms.numpy()
    np.testing.assert_allclose(
        [lengths[place] for place in rows.places], np.linalg.norm(rows.inequalities, axis=(1, 2)), rtol=1e-12
    )
    assert not lengths[~problem.rows.numpy()].any()


def test_every_norm_of_the_library_is_tested_and_has_a_solver() -> None:
    exported = [getattr(norms, name) for name in norms.__all__]
    kinds = {kind for kind in exported if isinstance(kind, type) and issubclass(kind, Norm)} - {Norm}
    factors = (Projective(), Gamma2())  # checked against the explicit polytope and semidefinite programs in tests/norms
    assert {type(norm) for norm in (*NORMS, *factors)} == kinds
    problem = AttentionSVM(random_sphere(1, 2, 2, batch=1, seed=0), [[0]])
    for norm in (*NORMS, *factors):
        assert choose_solver(None, problem, norm).refusal(problem, norm) is None


def test_written_out_copies_tokens() -> None:
    data = case("causal").data
    full = written_out(data)
    assert data.queries_per_sequence > 1
    assert full.queries_per_sequence == 1
    assert full.tokens.shape[-3] == full.n == data.n


def test_reference_says_when_there_is_nothing() -> None:
    bad = case("infeasible")
    assert reference(explicit_rows(bad.data, bad.selected), Frobenius()) is None
