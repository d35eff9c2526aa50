"""Frobenius, spectral and nuclear norms against NumPy, closed forms and generic optimizers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.linalg import polar
from scipy.optimize import brentq, minimize

from attsvm.norms import Frobenius, Nuclear, Spectral

from .checks import inner, random_matrices


@pytest.mark.parametrize("kind", ["dense", "low rank", "sparse", "ties"])
@pytest.mark.parametrize("shape", [(4, 3), (3, 5), (1, 6), (6, 1), (30, 20)], ids=str)
def test_values_are_numpy_s(kind: str, shape: tuple[int, int]) -> None:
    matrix = random_matrices(0, (4,), shape, kind)
    for norm, order in ((Frobenius(), "fro"), (Nuclear(), "nuc"), (Spectral(), 2)):
        np.testing.assert_allclose(norm.value(matrix), np.linalg.norm(matrix, ord=order, axis=(-2, -1)), rtol=1e-13)


def test_frobenius_closed_forms() -> None:
    matrix = random_matrices(0, (4,), (3, 5), "dense")
    length = Frobenius().value(matrix)[:, None, None]
    torch.testing.assert_close(Frobenius().steepest(matrix), matrix / length, rtol=1e-15, atol=1e-16)
    shrunk = matrix * (1 - 1.5 / length).clamp(min=0)
    torch.testing.assert_close(Frobenius().prox(matrix, 1.5), shrunk, rtol=1e-13, atol=1e-15)


def test_on_a_rank_one_matrix_all_three_agree() -> None:
    """n = 1, T = 2: why the Frobenius and nuclear Att-SVM coincide there."""
    matrix = random_matrices(0, (6,), (4, 3), "low rank")
    for other in (Nuclear(), Spectral()):
        torch.testing.assert_close(other.value(matrix), Frobenius().value(matrix), rtol=1e-14, atol=0)
        torch.testing.assert_close(other.project(matrix, 0.1), Frobenius().project(matrix, 0.1), rtol=0, atol=1e-15)
        torch.testing.assert_close(other.steepest(matrix), Frobenius().steepest(matrix), rtol=0, atol=1e-14)


def test_spectral_steepest_is_the_polar_factor() -> None:
    gradient = random_matrices(0, (4,), (5, 3), "dense")
    expected = np.stack([polar(one.numpy())[0] for one in gradient])
    np.testing.assert_allclose(Spectral().steepest(gradient), expected, atol=1e-13)


def test_spectral_steepest_ignores_round_off_directions() -> None:
    """Rank two plus noise of one rounding: the polar factor has rank two, not four."""
    thin = random_matrices(0, (5,), (4, 2), "dense")
    gradient = thin @ random_matrices(1, (5,), (2, 4), "dense")
    sizes = torch.linalg.svdvals(Spectral().steepest(gradient))
    torch.testing.assert_close(sizes, torch.tensor([1.0, 1, 0, 0]).double().expand(5, 4), rtol=0, atol=1e-14)
    kept = torch.linalg.svdvals(Spectral().steepest(torch.diag(torch.tensor([1.0, 1e-10]).double())))
    torch.testing.assert_close(kept, torch.ones(2).double(), rtol=0, atol=1e-14)


def test_nuclear_steepest_is_one_leading_pair() -> None:
    gradient = random_matrices(0, (4,), (5, 3), "dense")
    steepest = Nuclear().steepest(gradient)
    assert (torch.linalg.svdvals(steepest)[:, 1:] < 1e-14).all()
    for one, direction in zip(gradient, steepest, strict=True):
        u, _, vt = np.linalg.svd(one.numpy())
        np.testing.assert_allclose(direction, np.outer(u[:, 0], vt[0]), atol=1e-13)
    tied = Nuclear().steepest(torch.eye(3, dtype=torch.float64))
    assert float(inner(tied, torch.eye(3))) == pytest.approx(1, abs=1e-14)
    assert float(Nuclear().value(tied)) == pytest.approx(1, abs=1e-14)


def test_nuclear_prox_is_singular_value_thresholding() -> None:
    matrix = random_matrices(0, (4,), (5, 3), "dense")
    u, s, vt = np.linalg.svd(matrix.numpy(), full_matrices=False)
    expected = u * np.maximum(s - 1.2, 0)[:, None, :] @ vt
    np.testing.assert_allclose(Nuclear().prox(matrix, 1.2), expected, atol=1e-13)


@pytest.mark.parametrize("radius", [1e-9, 0.3, 2.0])
def test_nuclear_projection_thresholds_to_the_radius(radius: float) -> None:
    """Against a root finder for the threshold."""
    matrix = random_matrices(0, (4,), (5, 3), "dense")
    for one, nearest in zip(matrix.numpy(), Nuclear().project(matrix, radius), strict=True):
        u, s, vt = np.linalg.svd(one, full_matrices=False)
        threshold = brentq(lambda t, s=s: np.maximum(s - t, 0).sum() - radius, 0, s[0], xtol=1e-15, rtol=1e-15)
        np.testing.assert_allclose(nearest, u * np.maximum(s - threshold, 0) @ vt, atol=1e-14)
        assert float(Nuclear().value(nearest)) == pytest.approx(radius, rel=1e-13)


def test_spectral_projection_clips_singular_values() -> None:
    matrix = random_matrices(0, (4,), (3, 5), "dense")
    u, s, vt = np.linalg.svd(matrix.numpy(), full_matrices=False)
    np.testing.assert_allclose(Spectral().project(matrix, 0.8), u * np.minimum(s, 0.8)[:, None, :] @ vt, atol=1e-14)


def test_nuclear_is_the_cheapest_factorisation() -> None:
    """||W||_* = min (||K||^2 + ||Q||^2) / 2 over K Q^T = W, found by a generic optimizer on K with Q = (K^-1 W)^T."""
    matrix = random_matrices(7, (), (2, 2), "dense").numpy()

    def cost(flat: np.ndarray) -> float:
        key = flat.reshape(2, 2)
        query = np.linalg.solve(key, matrix).T
        return 0.5 * float((key**2).sum() + (query**2).sum())

    found = minimize(cost, np.eye(2).ravel(), method="BFGS", options={"gtol": 1e-8})
    assert found.fun == pytest.approx(float(Nuclear().value(matrix)), rel=1e-9)


def test_spectral_prox_against_a_generic_optimizer() -> None:
    """Smooth away from ties, so BFGS on the objective itself; the prox must be at least as good."""
    matrix, step = random_matrices(2, (), (2, 3), "dense").numpy(), 0.2

    def objective(flat: np.ndarray) -> float:
        largest = np.linalg.norm(flat.reshape(2, 3), ord=2)
        return float(step * largest + 0.5 * ((flat - matrix.ravel()) ** 2).sum())

    prox = Spectral().prox(matrix, step)
    sizes = torch.linalg.svdvals(prox)
    assert sizes[0] > sizes[1] + 0.1
    found = minimize(objective, matrix.ravel(), method="BFGS", options={"gtol": 1e-8})
    assert objective(prox.numpy().ravel()) <= found.fun + 1e-13
    np.testing.assert_allclose(prox.numpy().ravel(), found.x, atol=1e-6)
