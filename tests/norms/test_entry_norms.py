"""Largest entry and sum of entries, and the simplex projection under them, against closed forms and SLSQP."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from attsvm.norms import MaxEntry, SumEntry
from attsvm.norms.sizes import project_onto_simplex

from .checks import random_matrices


@pytest.mark.parametrize("kind", ["dense", "low rank", "sparse", "ties"])
def test_values_are_numpy_s(kind: str) -> None:
    matrix = random_matrices(0, (4,), (3, 5), kind)
    np.testing.assert_allclose(SumEntry().value(matrix), np.abs(matrix.numpy()).sum((-2, -1)), rtol=1e-15)
    np.testing.assert_array_equal(MaxEntry().value(matrix), np.abs(matrix.numpy()).max((-2, -1)))


def test_steepest_of_the_largest_entry_is_the_sign() -> None:
    gradient = torch.tensor([[3.0, -1e-300], [0.0, -4.0]], dtype=torch.float64)
    assert MaxEntry().steepest(gradient).tolist() == [[1, -1], [0, -1]]


def test_steepest_of_the_sum_is_the_first_largest_entry() -> None:
    gradient = torch.tensor([[[3.0, -4.0], [4.0, 0.0]], [[0.0, 0.0], [0.0, 1e-300]]], dtype=torch.float64)
    assert SumEntry().steepest(gradient).tolist() == [[[0, -1], [0, 0]], [[0, 0], [0, 1]]]


def test_prox_of_the_sum_is_soft_thresholding() -> None:
    matrix = random_matrices(0, (4,), (3, 5), "dense")
    expected = matrix.sign() * (matrix.abs() - 0.4).clamp(min=0)
    result = SumEntry().prox(matrix, 0.4)
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-15)
    assert torch.equal(result == 0, expected == 0)


@pytest.mark.parametrize("size", [0.05, 0.5, 1.5])
def test_projections_and_proxes_against_slsqp(size: float) -> None:
    """The same problems with linear constraints and split or bounding variables, by a general solver."""
    y = random_matrices(3, (), (2, 2), "dense").numpy().ravel()
    k = y.size

    def solve(objective, start, constraints):
        options = {"ftol": 1e-14, "maxiter": 500}
        return minimize(objective, start, method="SLSQP", constraints=constraints, options=options).x

    # Sum <= size, with w = plus - minus.
    split = solve(
        lambda v: 0.5 * ((v[:k] - v[k:] - y) ** 2).sum(),
        np.zeros(2 * k),
        [{"type": "ineq", "fun": lambda v: v}, {"type": "ineq", "fun": lambda v: size - v.sum()}],
    )
    expected = split[:k] - split[k:]
    np.testing.assert_allclose(SumEntry().project(y.reshape(2, 2), size).numpy().ravel(), expected, atol=1e-6)
    # size * t + ..., with -t <= w <= t.
    bounded = solve(
        lambda v: size * v[-1] + 0.5 * ((v[:-1] - y) ** 2).sum(),
        np.append(y, np.abs(y).max()),
        [{"type": "ineq", "fun": lambda v: v[-1] - v[:-1]}, {"type": "ineq", "fun": lambda v: v[-1] + v[:-1]}],
    )
    np.testing.assert_allclose(MaxEntry().prox(y.reshape(2, 2), size).numpy().ravel(), bounded[:-1], atol=1e-6)


def test_simplex_by_hand() -> None:
    values = torch.tensor([[3.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.5, 0.4, 0.3]], dtype=torch.float64)
    radius = torch.tensor([1.0, 1.5, 0.6], dtype=torch.float64)
    expected = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.3, 0.2, 0.1]], dtype=torch.float64)
    torch.testing.assert_close(project_onto_simplex(values, radius), expected, rtol=0, atol=1e-16)


@pytest.mark.parametrize("radius", [1e-12, 1e-3, 1.0, 30.0])
def test_simplex_keeps_its_digits_for_small_radii(radius: float) -> None:
    values = random_matrices(0, (50,), (1, 40), "dense")[:, 0].abs()
    result = project_onto_simplex(values, torch.full((50,), radius, dtype=torch.float64))
    torch.testing.assert_close(result.sum(-1), torch.full((50,), radius, dtype=torch.float64), rtol=1e-14, atol=0)
    assert (result >= 0).all()
    # One threshold for all positive entries, at least the value of all others.
    threshold = (values - result).where(result > 0, -torch.inf).amax(-1, keepdim=True)
    assert ((values - result - threshold)[result > 0].abs() <= 1e-15).all()
    assert (values <= threshold + 1e-15)[result == 0].all()
