"""Scaled tensors: arithmetic that outlives the range of floating point."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attsvm.attention import ScaledTensor


def scaled(entries: list[float], log_scale: float) -> ScaledTensor:
    return ScaledTensor(torch.tensor([entries], dtype=torch.float64), torch.tensor([log_scale], dtype=torch.float64))


@given(exponent=st.floats(-1e6, 1e6), size=st.floats(-300, 300))
def test_direction_and_size_at_any_scale(exponent: float, size: float) -> None:
    number = scaled([3 * 10.0**size, -4 * 10.0**size], exponent)
    assert torch.allclose(number.normalized(), torch.tensor([[0.6, -0.8]], dtype=torch.float64), rtol=1e-15, atol=0)
    expected = exponent + math.log(5) + size * math.log(10)
    assert number.log_norm().item() == pytest.approx(expected, rel=1e-13, abs=1e-12)


def test_zero() -> None:
    zero = scaled([0.0, 0.0], 0.0)
    assert zero.log_norm().item() == -torch.inf
    assert zero.normalized().tolist() == [[0.0, 0.0]]
    assert zero.tensor().tolist() == [[0.0, 0.0]]


@given(log_mantissa=st.floats(-700, 700), exponent=st.floats(-1400, 1400))
def test_plain_tensor(log_mantissa: float, exponent: float) -> None:
    """Right wherever the product has a floating-point value, whatever the two parts are."""
    found = scaled([math.exp(log_mantissa)], exponent).tensor().item()
    total = log_mantissa + exponent
    if total > 709.7:
        assert found == pytest.approx(torch.finfo(torch.float64).max, rel=1e-9) or total < 709.8
    elif total < -745:
        assert found <= 5e-324
    elif total > -707:
        assert math.log(found) == pytest.approx(total, abs=1e-12 * (1 + abs(exponent)))


@given(
    first=st.floats(-2000, 2000),
    second=st.floats(-2000, 2000),
    own=st.sampled_from([0.0, 0.5, 0.9]),
    mantissa=st.sampled_from([0.0, 1.0, -2.0, 1e-8]),
)
def test_blend(first: float, second: float, own: float, mantissa: float) -> None:
    a, b = scaled([1.0, -2.0], first), scaled([mantissa, 0.0], second)
    mixed = a.blend(b, own, 1 - own)
    # Compare at a common scale, where both terms have a floating-point value or are negligible.
    top = max(first, second)
    expected = torch.tensor(
        [
            own * math.exp(first - top) * 1.0 + (1 - own) * math.exp(second - top) * mantissa,
            -2.0 * own * math.exp(first - top),
        ],
        dtype=torch.float64,
    )
    # Zero has scale 0, which may lie far above the common one.
    factor = torch.where(mixed.mantissa == 0, 0.0, torch.exp(mixed.log_scale - top))
    found = mixed.mantissa[0] * factor[0]
    assert torch.isfinite(mixed.mantissa).all()
    assert torch.allclose(found, expected, rtol=1e-12, atol=1e-300)


def test_blend_of_zeros_is_zero() -> None:
    zero = scaled([0.0], 0.0)
    mixed = zero.blend(zero, 0.9, 0.1)
    assert mixed.mantissa.item() == 0
    assert mixed.log_scale.item() == 0


def test_momentum_far_below_the_smallest_float() -> None:
    """A running mean of gradients of size exp(-5000 - t) against the same sum in closed form."""
    mean = scaled([0.0], 0.0)
    for t in range(50):
        mean = mean.blend(scaled([1.0], -5000.0 - t), 0.9, 0.1)
    expected = math.log(sum(0.1 * 0.9 ** (49 - t) * math.exp(-t) for t in range(50))) - 5000
    assert mean.log_norm().item() == pytest.approx(expected, rel=1e-14)


def test_leading_axes_keep_their_own_scale() -> None:
    number = ScaledTensor(torch.ones(2, 3, 4, 5), torch.arange(6.0).reshape(2, 3))
    assert number.log_norm().shape == (2, 3)
    assert torch.allclose(number.tensor()[1, 2], torch.full((4, 5), math.exp(5.0)))
