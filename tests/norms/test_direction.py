"""Cosine and distance of directions: against mpmath, far beyond the range of squares, and near 1."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attsvm.norms import direction_cosine, direction_distance

from .checks import random_matrices


def exact(a: torch.Tensor, b: torch.Tensor) -> tuple[float, float]:
    """Cosine and 1 - cosine in 120 digits."""
    with mpmath.workdps(120):
        x, y = [mpmath.mpf(v) for v in a.flatten().tolist()], [mpmath.mpf(v) for v in b.flatten().tolist()]
        lengths = mpmath.sqrt(mpmath.fdot(x, x) * mpmath.fdot(y, y))
        cosine = mpmath.fdot(x, y) / lengths
        return float(cosine), float(1 - cosine)


@pytest.mark.parametrize("first_scale", [1e-300, 1e-200, 1.0, 1e200, 1e300])
@pytest.mark.parametrize("second_scale", [1e-200, 1e200])
def test_against_mpmath_at_every_scale(first_scale: float, second_scale: float) -> None:
    a = first_scale * random_matrices(0, (3,), (4, 5), "dense")
    b = second_scale * random_matrices(1, (3,), (4, 5), "dense")
    cosine, distance = direction_cosine(a, b), direction_distance(a, b)
    for index in range(3):
        expected = exact(a[index], b[index])
        assert float(cosine[index]) == pytest.approx(expected[0], abs=2e-16, rel=1e-14)
        assert float(distance[index]) == pytest.approx(expected[1], rel=1e-14)


@pytest.mark.parametrize(("size", "accuracy"), [(1e-3, 1e-11), (1e-6, 1e-8), (1e-9, 1e-5), (1e-12, 1e-3), (1e-14, 0.2)])
def test_the_distance_keeps_falling_below_round_off(size: float, accuracy: float) -> None:
    """1 - cosine from 1e-6 down to 1e-28, where 1.0 - direction_cosine would be 0."""
    a = random_matrices(0, (), (6, 7), "dense")
    b = 3.7 * (a + size * random_matrices(1, (), (6, 7), "dense"))
    expected = exact(a, b)[1]
    assert expected < 2 * size**2
    assert float(direction_distance(a, b)) == pytest.approx(expected, rel=accuracy)


def test_equal_and_opposite_directions() -> None:
    a = random_matrices(0, (20,), (4, 3), "dense")
    assert direction_distance(a, a).eq(0).all()
    assert (direction_distance(a, 3 * a) < 1e-31).all()
    assert torch.equal(direction_distance(a, 2.0**600 * a), torch.zeros(20, dtype=torch.float64))
    torch.testing.assert_close(direction_cosine(a, 3 * a), torch.ones(20).double(), rtol=0, atol=1e-15)
    torch.testing.assert_close(direction_cosine(a, -a), -torch.ones(20).double(), rtol=0, atol=1e-15)
    torch.testing.assert_close(direction_distance(a, -a), 2 * torch.ones(20).double(), rtol=0, atol=1e-15)


@settings(deadline=None, max_examples=50)
@given(
    seed=st.integers(0, 2**32 - 1),
    exponent=st.integers(-900, 900),
    shape=st.tuples(st.integers(1, 5), st.integers(1, 5)),
)
def test_symmetric_scale_free_and_consistent(seed: int, exponent: int, shape: tuple[int, int]) -> None:
    a, b = random_matrices(seed, (3,), shape, "dense"), random_matrices(seed + 1, (3,), shape, "dense")
    cosine, distance = direction_cosine(a, b), direction_distance(a, b)
    assert (cosine.abs() <= 1).all()
    assert ((distance >= 0) & (distance <= 2)).all()
    torch.testing.assert_close(1 - cosine, distance, rtol=0, atol=1e-14)
    assert torch.equal(cosine, direction_cosine(b, a))
    assert torch.equal(cosine, direction_cosine(2.0**exponent * a, b))
    assert torch.equal(distance, direction_distance(b, 2.0**exponent * a))


def test_leading_axes_broadcast() -> None:
    a, b = random_matrices(0, (2, 1), (3, 4), "dense"), random_matrices(1, (5,), (3, 4), "dense")
    for function in (direction_cosine, direction_distance):
        both = function(a, b)
        assert both.shape == (2, 5)
        for i, j in np.ndindex(2, 5):
            torch.testing.assert_close(both[i, j], function(a[i, 0], b[j]), rtol=1e-14, atol=1e-15)
        assert function(a[0, 0], b[0]).shape == ()


def test_a_zero_matrix_has_cosine_0_and_distance_1() -> None:
    a = random_matrices(0, (3,), (2, 2), "dense")
    a[1] = 0
    b = random_matrices(1, (3,), (2, 2), "dense")
    assert direction_cosine(a, b)[1] == direction_cosine(b, a)[1] == direction_cosine(a, a)[1] == 0
    assert direction_distance(a, b)[1] == direction_distance(b, a)[1] == direction_distance(a, a)[1] == 1
    torch.testing.assert_close(1 - direction_cosine(a, b), direction_distance(a, b), rtol=0, atol=1e-15)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_bad_element_gives_nan_and_spoils_no_other(bad: float) -> None:
    """An infeasible SVM has NaN weights: its cosine is NaN, also against zero, the others are untouched."""
    a = random_matrices(0, (3,), (2, 2), "dense")
    b = a + 0.1
    spoiled = a.clone()
    spoiled[1, 0, 1] = bad
    for function in (direction_cosine, direction_distance):
        assert function(spoiled, b).isnan().tolist() == [False, True, False]
        assert torch.equal(function(spoiled, b)[[0, 2]], function(a, b)[[0, 2]])
        assert function(spoiled, torch.zeros(2, 2).double())[1].isnan()


def test_types() -> None:
    a, b = random_matrices(0, (), (3, 4), "dense"), random_matrices(1, (), (3, 4), "dense")
    assert direction_cosine(a.numpy(), b).dtype == torch.float64
    assert direction_cosine(a.float(), b).dtype == torch.float64
    assert direction_cosine(a.float(), b.float().numpy()).dtype == torch.float32
    near = a.float() * 3
    assert float(direction_distance(a.float(), near)) < 1e-13


def test_bad_input_is_refused() -> None:
    good = torch.ones(2, 3)
    for function in (direction_cosine, direction_distance):
        with pytest.raises(ValueError, match=r"a must have shape \[\*batch, d, dq\]; got \[3\]"):
            function(torch.ones(3), good)
        with pytest.raises(ValueError, match="b must be float32 or float64; got int64"):
            function(good, torch.ones(2, 3, dtype=torch.int64))
        with pytest.raises(ValueError, match=r"agree in their last two axes \(d, dq\); got \[2, 3\] and \[3, 2\]"):
            function(good, good.mT)
        with pytest.raises(ValueError, match=r"axes of a and b must broadcast; got \[4, 2, 3\] and \[5, 2, 3\]"):
            function(good.expand(4, 2, 3), good.expand(5, 2, 3))
        with pytest.raises(ValueError, match="b must be on cpu, like a; got meta"):
            function(good, good.to("meta"))
