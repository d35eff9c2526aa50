"""Losses against mpmath, also where the plain formulas underflow or cancel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attsvm import Exponential, Logistic
from attsvm.attention import CustomLoss, Linear, Loss
from attsvm.attention.losses import as_loss

LOSSES: dict[Loss, Callable[[Any], Any]] = {
    Logistic(): lambda m: mp.log(1 + mp.exp(-m)),
    Exponential(): lambda m: mp.exp(-m),
    Linear(): lambda m: -m,
}
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=repr)
MARGINS = (-5e3, -800.0, -40.0, -2.0, -1e-3, 0.0, 1e-3, 0.7, 15.0, 40.0, 720.0, 800.0, 5e3)


def scalar(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def precise_digits(*exponents: float) -> int:
    """Enough to add 1 to a product of exp(-exponent) and keep thirty digits of it."""
    return int(sum(abs(exponent) for exponent in exponents) / 2) + 40


def assert_log_close(found: torch.Tensor, expected: Any) -> None:
    """Equal as logarithms: absolutely to 1e-13, and relatively once they are large."""
    assert abs(float(found) - float(expected)) <= 1e-13 * (1 + abs(float(expected)) / 100), (
        float(found),
        float(expected),
    )


def test_log_comparison_can_fail() -> None:
    assert_log_close(scalar(-3.0), -3.0)
    with pytest.raises(AssertionError):
        assert_log_close(scalar(-3.0), -3.0 + 1e-12)
    with pytest.raises(AssertionError):
        assert_log_close(scalar(float("-inf")), -1e5)


@every_loss
@pytest.mark.parametrize("margin", MARGINS)
def test_value_and_slope(loss: Loss, margin: float) -> None:
    with mp.workdps(precise_digits(margin)):
        exact_margin = mp.mpf(margin)
        value = LOSSES[loss](exact_margin)
        slope = {
            "Logistic": lambda: 1 / (1 + mp.exp(exact_margin)),
            "Exponential": lambda: mp.exp(-exact_margin),
            "Linear": lambda: mp.mpf(1),
        }[type(loss).__name__]()
        log_slope = mp.log(slope)
    found = float(loss.value(scalar(margin)))
    assert found == pytest.approx(float(value), rel=4e-16 * max(1.0, abs(margin)), abs=1e-320) or (
        mp.log(abs(value)) > 700 and found == float("inf")  # exp(1e5) has no floating-point value
    )
    assert_log_close(loss.log_slope(scalar(margin)), log_slope)


@every_loss
@given(best=st.floats(-300, 300), log_shortfall=st.floats(-300, 6))
def test_log_excess(loss: Loss, best: float, log_shortfall: float) -> None:
    with mp.workdps(precise_digits(best, log_shortfall, float(mp.exp(log_shortfall)))):
        shortfall = mp.exp(mp.mpf(log_shortfall))
        at = mp.mpf(best)
        expected = mp.log(LOSSES[loss](at - shortfall) - LOSSES[loss](at))
    found = loss.log_excess(scalar(best), scalar(log_shortfall))
    # exp(log_shortfall) is itself only good to eps * |log_shortfall|, and enters where it is large.
    assert abs(float(found) - float(expected)) <= 1e-12 + 1e-15 * abs(float(expected)) + 4e-15 * float(shortfall)


@every_loss
def test_log_excess_of_nothing_is_minus_infinity(loss: Loss) -> None:
    assert loss.log_excess(scalar(1.0), scalar(-torch.inf)).item() == -torch.inf


@every_loss
@given(low=st.floats(-30, 30), width=st.floats(0, 20), at=st.floats(0, 1))
def test_slope_bounds_hold_and_are_attained(loss: Loss, low: float, width: float, at: float) -> None:
    high = low + width
    first, second = loss.slope_bounds(scalar(low), scalar(high))
    with mp.workdps(40):
        slopes = [abs(mp.diff(LOSSES[loss], mp.mpf(m))) for m in (low, low + at * width, high)]
        curves = [abs(mp.diff(LOSSES[loss], mp.mpf(m), 2)) for m in (low, low + at * width, high)]
        if low <= 0 <= high:
            curves.append(abs(mp.diff(LOSSES[loss], mp.mpf(0), 2)))
    assert float(first) >= float(max(slopes)) * (1 - 1e-12)
    assert float(second) >= float(max(curves)) * (1 - 1e-9) - 1e-15
    assert float(first) == pytest.approx(float(max(slopes)), rel=1e-9)
    assert float(second) == pytest.approx(float(max(curves)), rel=1e-6, abs=1e-14)


def test_losses_decrease() -> None:
    margins = torch.linspace(-5, 5, 101, dtype=torch.float64)
    for loss in (*LOSSES, CustomLoss(lambda m: torch.sigmoid(-m))):
        assert bool((loss.value(margins).diff() < 0).all())


def test_custom_loss_agrees_with_the_built_in_one() -> None:
    mine = CustomLoss(lambda m: torch.nn.functional.softplus(-m))
    margins = torch.linspace(-10, 10, 41, dtype=torch.float64)
    assert torch.allclose(mine.log_slope(margins), Logistic().log_slope(margins), rtol=1e-12, atol=1e-13)
    shortfalls = torch.linspace(-60, 2, 41, dtype=torch.float64)
    found, expected = (loss.log_excess(torch.zeros_like(shortfalls), shortfalls) for loss in (mine, Logistic()))
    assert torch.allclose(found, expected, rtol=0, atol=1e-5)


def test_custom_loss_must_decrease() -> None:
    with pytest.raises(ValueError, match=r"loss must decrease with the margin; its slope is not negative at margin 2$"):
        as_loss(lambda m: (m - 1) ** 2).log_slope(torch.tensor([0.5, 2.0], dtype=torch.float64))


def test_custom_loss_returns_one_number_a_margin() -> None:
    with pytest.raises(ValueError, match=r"loss must return one number for each margin, shape \[2\]; it gave \[\]"):
        as_loss(lambda m: m.sum()).value(torch.zeros(2, dtype=torch.float64))


def test_custom_loss_states_no_bounds() -> None:
    with pytest.raises(ValueError, match="states no bounds"):
        as_loss(torch.neg).slope_bounds(scalar(0.0), scalar(1.0))


@pytest.mark.parametrize("wrong", ["logistic", Logistic, 3])
def test_what_is_no_loss(wrong: object) -> None:
    with pytest.raises(
        ValueError, match=r"loss must be Logistic\(\), Exponential\(\), Linear\(\), Log\(\) or a function of the margin"
    ):
        as_loss(wrong)  # type: ignore[arg-type]


def test_losses_are_compared_by_what_they_are() -> None:
    """A run may be resumed in another process, where a function has another address."""
    assert Logistic() == Logistic()
    first, second = CustomLoss(_falling), CustomLoss(_falling)
    assert repr(first) == repr(second)
    assert "0x" not in repr(first)
    assert "_falling" in repr(first)


def _falling(margin: torch.Tensor) -> torch.Tensor:
    return -margin
