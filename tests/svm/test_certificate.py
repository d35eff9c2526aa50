"""The certificate: right pairs pass, each corruption fails, weak duality holds, nothing but the data is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from attsvm.data import random_sphere
from attsvm.norms import Frobenius, Norm
from attsvm.svm import AttentionSVM, certify, solve
from cases import case

from .checks import NORMS, dataset, dual_norm_value, explicit_rows, norm_value, random_selection, sphere_points

every_norm = pytest.mark.parametrize("norm", NORMS, ids=repr)
N, T, D = 3, 4, 5


@dataclass(frozen=True)
class Pair:
    problem: AttentionSVM
    weights: Tensor
    duals: Tensor
    tolerance: float


def solved_pair(norm: Norm, *, generalized: bool = False) -> Pair:
    data = random_sphere(n=N, T=T, d=D, seed=5)
    problem = (
        AttentionSVM(data, selected_set=np.array([[True, False, True, False]] * N))
        if generalized
        else AttentionSVM(data, random_selection(data, 5))
    )
    solution = solve(problem, norm).require_solved()
    return Pair(problem, solution.weights, solution.duals, solution.tolerance)


def proved(pair: Pair, norm: Norm) -> bool:
    return bool(certify(pair.problem, norm, pair.weights, pair.duals).proves_optimal(pair.tolerance))


def flip_sign(pair: Pair) -> Pair:
    largest = pair.duals.abs() == pair.duals.abs().max()
    return replace(pair, duals=torch.where(largest, -pair.duals, pair.duals))


def drop_one(pair: Pair) -> Pair:
    return replace(pair, duals=pair.duals.masked_fill(pair.duals.abs() == pair.duals.abs().max(), 0.0))


def perturb(pair: Pair) -> Pair:
    noise = torch.from_numpy(np.random.default_rng(0).standard_normal(pair.weights.shape))
    return replace(pair, weights=pair.weights + 1e-3 * pair.weights.norm() * noise / noise.norm())


def swap_selected(pair: Pair) -> Pair:
    problem = pair.problem
    return replace(pair, problem=AttentionSVM(problem.data, (problem.reference + 1) % T))


def swap_duals(pair: Pair) -> Pair:
    return replace(pair, duals=pair.duals.flip(-2))


def other_side(pair: Pair) -> Pair:
    return replace(pair, problem=AttentionSVM(pair.problem.data, pair.problem.reference, right_hand_side=1.5))


CORRUPTIONS: dict[str, Callable[[Pair], Pair]] = {
    "weights scaled down": lambda pair: replace(pair, weights=pair.weights * (1 - 1e-5)),
    "weights scaled up": lambda pair: replace(pair, weights=pair.weights * (1 + 1e-5)),
    "weights turned round": lambda pair: replace(pair, weights=-pair.weights),
    "weights perturbed": perturb,
    "weights zero": lambda pair: replace(pair, weights=0 * pair.weights),
    "weights not finite": lambda pair: replace(pair, weights=pair.weights * torch.nan),
    "a dual's sign": flip_sign,
    "a dual dropped": drop_one,
    "duals scaled up": lambda pair: replace(pair, duals=pair.duals * (1 + 1e-5)),
    "duals scaled down": lambda pair: replace(pair, duals=pair.duals * (1 - 1e-5)),
    "duals zero": lambda pair: replace(pair, duals=0 * pair.duals),
    "duals not finite": lambda pair: replace(pair, duals=pair.duals * torch.nan),
    "duals of other inputs": swap_duals,
}


@every_norm
@pytest.mark.parametrize("generalized", [False, True], ids=["one token", "sets"])
def test_a_right_pair_passes(norm: Norm, generalized: bool) -> None:
    assert proved(solved_pair(norm, generalized=generalized), norm)


@every_norm
@pytest.mark.parametrize("generalized", [False, True], ids=["one token", "sets"])
@pytest.mark.parametrize("corrupt", CORRUPTIONS.values(), ids=CORRUPTIONS)
def test_every_corruption_fails(corrupt: Callable[[Pair], Pair], generalized: bool, norm: Norm) -> None:
    assert not proved(corrupt(solved_pair(norm, generalized=generalized)), norm)


@every_norm
@pytest.mark.parametrize("corrupt", [swap_selected, other_side], ids=["selection", "right-hand side"])
def test_a_pair_of_another_problem_fails(corrupt: Callable[[Pair], Pair], norm: Norm) -> None:
    assert not proved(corrupt(solved_pair(norm)), norm)


def test_a_solution_of_another_norm_fails() -> None:
    pair = solved_pair(Frobenius())
    assert not any(proved(pair, norm) for norm in NORMS if norm != Frobenius())


def test_small_equality_values_do_not_excuse_zero_weights() -> None:
    """Violations are relative to 1 + |c|; for tiny c the gap, far below zero, tells."""
    data = random_sphere(n=1, T=3, d=3, seed=1)
    kept = np.array([[True, True, False]])
    problem = AttentionSVM(data, selected_set=kept, equality_values=np.array([[1e-12, 0.0, 0.0]]), right_hand_side=-1.0)
    solution = solve(problem).require_solved()
    assert solution.weights.norm() > 1e-13
    assert not proved(Pair(problem, torch.zeros(3, 3).double(), solution.duals, 1e-10), Frobenius())


# ------------------------------------------------------------------- its numbers


@every_norm
def test_numbers_are_those_of_the_definition(norm: Norm) -> None:
    """Any pair, right or not: primal and dual values, margin, violation, residual, by NumPy from explicit rows."""
    rng = np.random.default_rng(60)
    data = random_sphere(n=N, T=T, d=D, seed=6)
    selected = random_selection(data, 6)
    rows = explicit_rows(data, selected)
    weights, duals = rng.standard_normal((D, D)), rng.random((N, T))
    found = certify(AttentionSVM(data, selected), norm, torch.from_numpy(weights), torch.from_numpy(duals))
    lam = np.array([duals[place] for place in rows.places])
    combined = sum(value * row for value, row in zip(lam, rows.inequalities, strict=True))
    margins = np.einsum("kij,ij->k", rows.inequalities, weights)
    assert found.primal_value.item() == pytest.approx(norm_value(norm, weights), rel=1e-12)
    assert found.dual_value.item() == pytest.approx(lam.sum() / dual_norm_value(norm, combined), rel=1e-12)
    assert found.min_margin.item() == pytest.approx(margins.min(), rel=1e-12)
    assert found.largest_violation.item() == pytest.approx((1 - margins.min()) / 2, rel=1e-12)
    lengths = np.linalg.norm(rows.inequalities, axis=(1, 2))
    assert found.ray_residual.item() == pytest.approx(np.linalg.norm(combined) / (lam @ lengths), rel=1e-12)
    assert margins.min() < 0
    assert found.relative_gap.item() == np.inf
    stretched = certify(
        AttentionSVM(data, selected),
        norm,
        solve(AttentionSVM(data, selected), norm).weights * 0.5,
        torch.from_numpy(duals),
    )
    assert stretched.min_margin.item() == pytest.approx(0.5, rel=1e-6)
    expected = 2 * stretched.primal_value.item() / stretched.dual_value.item() - 1
    assert stretched.relative_gap.item() == pytest.approx(expected, rel=1e-6)


@every_norm
@given(seed=st.integers(0, 10_000), sparsity=st.floats(0.1, 1.0))
def test_weak_duality(norm: Norm, seed: int, sparsity: float) -> None:
    """No lam >= 0 proves a bound above N of a feasible W; signs that are not allowed are not counted."""
    rng = np.random.default_rng(seed)
    data = random_sphere(n=2, T=3, d=4, seed=seed)
    selected = random_selection(data, seed)
    problem = AttentionSVM(data, selected)
    # A feasible W without any solver: least squares for margins 1, which d >= T - 1 and dq >= n always allows.
    rows = explicit_rows(data, selected).inequalities.reshape(-1, 16)
    feasible = torch.from_numpy(np.linalg.lstsq(rows, np.ones(len(rows)), rcond=None)[0].reshape(4, 4))
    assert problem.margins(feasible)[problem.rows].min() >= 1 - 1e-9
    duals = rng.exponential(size=(2, 3)) * (rng.random((2, 3)) < sparsity) - 0.3 * (rng.random((2, 3)) < 0.3)
    found = certify(problem, norm, feasible, torch.from_numpy(duals))
    assert found.dual_value.item() <= norm_value(norm, feasible.numpy()) * (1 + 1e-9)
    assert found.relative_gap.item() >= -1e-9
    assert (
        found.dual_violation.item()
        >= max(0.0, -(duals * problem.rows.numpy()).min() / max(np.abs(duals).max(), 1e-300)) - 1e-12
    )


def test_it_reads_the_original_data() -> None:
    """Two problems with one projection onto a plane but different tokens: only the right one is certified."""
    rng = np.random.default_rng(8)
    plane = np.concatenate([sphere_points(rng, 2, 3, 2), np.zeros((2, 3, 3))], axis=-1)
    queries = np.concatenate([sphere_points(rng, 2, 2), np.zeros((2, 3))], axis=-1)
    problem = AttentionSVM(dataset(plane, queries), [0, 0])
    solution = solve(problem)
    if bool(solution.infeasible):
        pytest.fail("the drawn plane problem must be feasible")
    tilted = plane + np.array([0, 0, 1.0, 0, 0]) * rng.standard_normal((2, 3, 1))
    lifted = solution.weights + torch.outer(torch.eye(5).double()[2], torch.from_numpy(queries[0]))
    assert bool(certify(problem, Frobenius(), solution.weights, solution.duals).proves_optimal(1e-10))
    other = certify(AttentionSVM(dataset(tilted, queries), [0, 0]), Frobenius(), solution.weights, solution.duals)
    assert not bool(other.proves_optimal(1e-10))
    off_plane = certify(problem, Frobenius(), lifted, solution.duals)
    assert off_plane.min_margin.item() == pytest.approx(1, abs=1e-9)
    assert not bool(off_plane.proves_optimal(1e-10))


# ------------------------------------------------------------------- rays


def test_a_ray_passes_and_each_corruption_fails() -> None:
    small = case("d too small")
    problem = AttentionSVM(small.data, small.selected)
    ray = solve(problem).duals
    zero = torch.zeros(small.data.d, small.data.dq).double()

    def accepted(duals: Tensor, where: AttentionSVM = problem) -> bool:
        return bool(certify(where, Frobenius(), zero, duals).holds_ray(1e-10))

    assert accepted(ray)
    assert accepted(1e-5 * ray)
    assert accepted(1e5 * ray)
    largest = ray == ray.max()
    corrupted = {
        "sign": -ray,
        "zero": 0 * ray,
        "one sign": torch.where(largest, -ray, ray),
        "dropped": ray.masked_fill(largest, 0.0),
        "perturbed": ray + 1e-6 * problem.rows,
        "of other inputs": ray.flip(-2),
        "nan": ray * torch.nan,
        "of other tokens": ray.flip(-1),
    }
    assert [name for name, duals in corrupted.items() if accepted(duals)] == []
    another = AttentionSVM(small.data, (small.selected + 1) % small.data.T)
    assert not accepted(ray, another)


def test_a_ray_that_earns_nothing_proves_nothing() -> None:
    """Opposite rows with right-hand side 0 cancel, but W = 0 satisfies them."""
    bad = case("infeasible")
    problem = AttentionSVM(bad.data, bad.selected)
    ray = solve(problem).duals
    idle = AttentionSVM(bad.data, bad.selected, right_hand_side=0.0)
    found = certify(idle, Frobenius(), torch.zeros(2, 2).double(), ray)
    assert found.dual_value.item() == 0
    assert not bool(found.holds_ray(1e-10))
    assert bool(solve(idle).solved)
    negative = certify(
        AttentionSVM(bad.data, bad.selected, right_hand_side=-1.0), Frobenius(), torch.zeros(2, 2).double(), ray
    )
    assert not bool(negative.holds_ray(1e-10))


def test_idle_rows_do_not_hide_a_small_bound() -> None:
    """Opposite rows of right-hand side 0 and a whisper of a satisfiable one: M is small beside lam, and no proof."""
    tokens = np.array([[[1.0, 0.0], [0.0, 0.0]], [[-1.0, 0.0], [0.0, 0.0]], [[0.0, 1.0], [0.0, 0.0]]])
    problem = AttentionSVM(dataset(tokens, np.ones((3, 1))), [0, 0, 0], right_hand_side=np.array([0.0, 0.0, 1.0]))
    whisper = torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.0, 1e-12]]).double()
    found = certify(problem, Frobenius(), torch.zeros(2, 1).double(), whisper)
    assert found.dual_value.item() == pytest.approx(1.0)
    assert not bool(found.holds_ray(1e-9))
    solution = solve(problem).require_solved()
    torch.testing.assert_close(solution.weights, torch.tensor([[0.0], [1.0]]).double(), rtol=0, atol=1e-12)


def test_the_bound_of_a_ray_that_nearly_cancels() -> None:
    """Tokens 1 and -1+e apart: lam = (1, 1) gives M = e and the bound 2/e, which the solution (1/e') respects."""
    small = 2.0**-20
    tokens = np.array([[[1.0, small], [0.0, 0.0]], [[-1.0, small], [0.0, 0.0]]])
    problem = AttentionSVM(dataset(tokens, np.ones((2, 1))), [0, 0])
    found = certify(problem, Frobenius(), torch.zeros(2, 1).double(), torch.tensor([[0.0, 1.0], [0.0, 1.0]]).double())
    assert found.dual_value.item() == pytest.approx(1 / small, rel=1e-14)
    assert not bool(found.holds_ray(1e-9))
    solution = solve(problem).require_solved()
    torch.testing.assert_close(solution.weights, torch.tensor([[0.0], [1 / small]]).double(), rtol=1e-10, atol=1e-6)
