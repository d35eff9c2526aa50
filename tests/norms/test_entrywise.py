"""Entrywise l_p norms: the exponent, values, and a projection without closed form against 50 digits."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from attsvm.norms import Entrywise, Frobenius, MaxEntry, SumEntry

from .checks import inner, random_matrices

EXPONENTS = [1.001, 1.05, 1.3, 1.75, 2, 2.5, 3, 10, 50, 400]


@pytest.mark.parametrize("p", EXPONENTS)
def test_value_is_numpy_s(p: float) -> None:
    matrix = random_matrices(0, (4,), (3, 5), "sparse")
    expected = [np.linalg.norm(one.numpy().ravel(), ord=p) for one in matrix]
    np.testing.assert_allclose(Entrywise(p).value(matrix), expected, rtol=1e-14)


@pytest.mark.parametrize("p", EXPONENTS)
def test_steepest_is_its_formula(p: float) -> None:
    gradient = random_matrices(0, (4,), (3, 5), "sparse")
    q = p / (p - 1)
    length = Entrywise(q).value(gradient)[..., None, None]
    expected = gradient.sign() * (gradient.abs() / length) ** (q - 1)
    torch.testing.assert_close(Entrywise(p).steepest(gradient), expected, rtol=1e-11, atol=1e-12)


def test_p_2_is_frobenius_and_the_ends_are_close() -> None:
    matrix = random_matrices(0, (4,), (3, 5), "dense")
    for method in ("value", "dual_value", "steepest"):
        two, same = (getattr(norm, method)(matrix) for norm in (Entrywise(2), Frobenius()))
        torch.testing.assert_close(two, same, rtol=1e-14, atol=1e-15)
    nearest = Entrywise(2).project(matrix, 0.7)
    torch.testing.assert_close(nearest, Frobenius().project(matrix, 0.7), rtol=1e-14, atol=1e-15)
    torch.testing.assert_close(Entrywise(1e6).value(matrix), MaxEntry().value(matrix), rtol=1e-5, atol=0)
    torch.testing.assert_close(Entrywise(1 + 1e-6).value(matrix), SumEntry().value(matrix), rtol=1e-5, atol=0)
    for near, end in ((Entrywise(1e4), MaxEntry()), (Entrywise(1.0001), SumEntry())):
        torch.testing.assert_close(near.project(matrix, 0.5), end.project(matrix, 0.5), rtol=0, atol=1e-3)


@pytest.mark.parametrize("p", [1.05, 1.3, 1.75, 3.0, 10.0, 50.0])
@pytest.mark.parametrize("fraction", [1e-6, 0.3, 1 - 1e-9])
def test_projection_to_full_precision(p: float, fraction: float) -> None:
    """Against mpmath, for entries of very different size, from deep outside to just outside the ball."""
    matrix = torch.tensor([[1.3, -0.7], [2e-3, 0.0], [1.2999, -1e-6]], dtype=torch.float64)
    radius = fraction * float(Entrywise(p).value(matrix))
    nearest = Entrywise(p).project(matrix, radius)
    expected = exact_projection(matrix.abs().flatten().tolist(), radius, p)
    error = (nearest.abs().flatten() - torch.tensor(expected, dtype=torch.float64)).abs().max()
    assert error <= 1e-14 * radius
    assert torch.equal(nearest.sign() * nearest.abs(), nearest)
    assert (nearest * matrix >= 0).all()


@pytest.mark.parametrize("p", [1.02, 1.5, 4.0, 300.0])
def test_projection_of_a_large_batch_of_mixed_difficulty(p: float) -> None:
    """Some inside, some just outside, some far outside: the worst case of the variational inequality is small."""
    norm = Entrywise(p)
    matrix = random_matrices(0, (300,), (6, 8), "sparse")
    value = norm.value(matrix)
    generator = torch.Generator().manual_seed(0)
    radius = value * 10 ** (4 * torch.rand(300, generator=generator, dtype=torch.float64) - 3.5)
    nearest = norm.project(matrix, radius)
    inside = value <= radius
    assert 0 < int(inside.sum()) < 300
    assert torch.equal(nearest[inside], matrix[inside])
    torch.testing.assert_close(norm.value(nearest)[~inside], radius[~inside], rtol=1e-14, atol=0)
    rest = matrix - nearest
    gap = radius * norm.dual_value(rest) - inner(rest, nearest)
    assert (gap[~inside].abs() <= 2e-13 * value[~inside] * radius[~inside] / min(p - 1, 1)).all()


def test_prox_against_a_generic_optimizer() -> None:
    matrix, step = random_matrices(5, (), (2, 3), "dense"), 0.8
    for p in (1.75, 3.0):

        def objective(flat: np.ndarray, p: float = p) -> float:
            return step * float(np.linalg.norm(flat, ord=p)) + 0.5 * float(((flat - matrix.numpy().ravel()) ** 2).sum())

        found = minimize(objective, matrix.numpy().ravel() / 2, method="BFGS", options={"gtol": 1e-9, "maxiter": 500})
        prox = Entrywise(p).prox(matrix, step).numpy().ravel()
        assert objective(prox) <= found.fun + 1e-13
        np.testing.assert_allclose(prox, found.x, atol=1e-6)


@pytest.mark.parametrize("p", [1.0000001, 1.1, 1.75, 1.9, 2, 3, 7.3, 1e8])
def test_the_bidual_is_exact(p: float) -> None:
    norm = Entrywise(p)
    assert norm.dual.dual == norm
    assert norm.dual.dual.dual == norm.dual
    assert 1 / norm.p + 1 / norm.dual.p == pytest.approx(1, abs=1e-15)
    assert norm.conjugate == norm.dual.p


def test_the_exponent_is_checked() -> None:
    with pytest.raises(ValueError, match=r"for p = 1 use SumEntry\(\)"):
        Entrywise(1)
    with pytest.raises(ValueError, match=r"for p = infinity use MaxEntry\(\)"):
        Entrywise(float("inf"))
    with pytest.raises(ValueError, match=r"infinite to working precision .* use MaxEntry\(\)"):
        Entrywise(1e17)
    for bad in (0.5, 0, -3, float("nan"), True):
        with pytest.raises(ValueError, match="p must be strictly between 1 and infinity; got"):
            Entrywise(bad)
    for bad in ("3", None, 2 + 1j):  # a run-time type checker may see these first
        with pytest.raises((ValueError, TypeError)):
            Entrywise(bad)  # type: ignore[arg-type]


def test_equality_repr_and_name() -> None:
    assert Entrywise(3) == Entrywise(3.0) == Entrywise(np.float64(3))
    assert Entrywise(3) != Entrywise(4)
    assert Entrywise(2) != Frobenius()
    assert repr(Entrywise(1.75)) == "Entrywise(p=1.75)"
    assert Entrywise(1.75).name == "l_1.75 entrywise"


def exact_projection(values: list[float], radius: float, p: float) -> list[float]:
    """x + mu x^(p-1) = y with ||x||_p = radius, by bisection in log mu around Newton in log x, in 50 digits."""
    with mpmath.workdps(50):
        y, r, power = [mpmath.mpf(v) for v in values], mpmath.mpf(radius), mpmath.mpf(p)

        def entry(v: mpmath.mpf, log_mu: mpmath.mpf) -> mpmath.mpf:
            if v == 0:
                return v
            s = min(mpmath.log(v), (mpmath.log(v) - log_mu) / (power - 1))
            for _ in range(100):
                a, b = mpmath.exp(s), mpmath.exp(log_mu + (power - 1) * s)
                change = mpmath.log((a + b) / v) * (a + b) / (a + (power - 1) * b)
                s -= change
                if abs(change) < mpmath.mpf(10) ** -45:
                    break
            return mpmath.exp(s)

        low, high = mpmath.mpf(-1500), mpmath.mpf(1500)
        while high - low > mpmath.mpf(10) ** -22:
            middle = (low + high) / 2
            outside = sum(entry(v, middle) ** power for v in y) > r**power
            low, high = (middle, high) if outside else (low, middle)
        return [float(entry(v, low)) for v in y]
