"""The references themselves: closed forms they must meet, and proof that the comparisons can fail."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
import torch

from attsvm import TokenDataset
from attsvm.attention import ScaledTensor, gradient
from attsvm.data import random_sphere

from .reference import (
    EXACT_SLOPES,
    assert_same_gradient,
    autograd,
    direction_and_log_norm,
    direction_error,
    exact,
    exact_gradient,
    exact_linear,
    margin_rows,
    max_margin,
    plain_risk,
)


def two_tokens() -> TokenDataset:
    """T = 2, one input: everything about it is known by hand."""
    return TokenDataset(np.eye(2)[None], np.ones((1, 1)), [1], head=np.array([1.0, 0.0]))


def test_plain_risk_by_hand() -> None:
    data = two_tokens()
    weights = torch.tensor([[math.log(3.0)], [0.0]], dtype=torch.float64)
    risk = plain_risk(data, weights, lambda x: x[..., 0])
    assert risk.item() == pytest.approx(math.log1p(math.exp(-0.75)), rel=1e-15)


def test_exact_gradient_by_hand() -> None:
    # f = s_1 = sigmoid(w_1 - w_2): df/dw_1 = s (1 - s), and a linear loss keeps the sign.
    data = two_tokens()
    with mp.workdps(50):
        found = exact_gradient(data, exact([[30.0], [0.0]]), exact_linear([1.0, 0.0]), EXACT_SLOPES["Linear"])
        s = 1 / (1 + mp.exp(-30))
        assert abs(found[0][0] / (-s * (1 - s)) - 1) < 1e-35
        assert abs(found[1][0] / (s * (1 - s)) - 1) < 1e-35


def test_max_margin_by_hand() -> None:
    # n = 1, T = 2: W = (x_1 - x_2) z^T / (||x_1 - x_2||^2 ||z||^2).
    rng = np.random.default_rng(0)
    tokens, query = rng.standard_normal((1, 2, 3)), rng.standard_normal((1, 4))
    data = TokenDataset(tokens, query, [1])
    gap = tokens[0, 0] - tokens[0, 1]
    expected = np.outer(gap, query[0]) / (gap @ gap) / (query[0] @ query[0])
    assert np.allclose(max_margin(data, torch.tensor([0])).numpy(), expected, rtol=1e-13, atol=0)


def test_max_margin_meets_its_optimality_conditions() -> None:
    data = random_sphere(n=4, T=5, d=5, seed=2)
    selected = torch.tensor([0, 1, 2, 3])
    rows, weights = margin_rows(data, selected), max_margin(data, selected).numpy().ravel()
    tight = rows[rows @ weights < 1 + 1e-9]
    multipliers = np.linalg.lstsq(tight.T, weights, rcond=None)[0]
    assert (multipliers > 0).all()
    assert np.allclose(tight.T @ multipliers, weights, atol=1e-12)


def test_direction_and_log_norm_of_tiny_matrices() -> None:
    with mp.workdps(50):
        tiny = mp.exp(-5000)
        unit, log_norm = direction_and_log_norm([[3 * tiny], [4 * tiny]])
    assert torch.allclose(unit, torch.tensor([[0.6], [0.8]], dtype=torch.float64), rtol=0, atol=1e-16)
    assert log_norm == pytest.approx(-5000 + math.log(5), rel=1e-15)


def test_gradient_comparison_can_fail() -> None:
    data = random_sphere(n=2, T=3, d=3, seed=0)
    weights = torch.ones(3, 3, dtype=torch.float64)
    expected = autograd(lambda weights: plain_risk(data, weights, lambda x: x @ data.head), weights=weights)
    found = gradient(data, weights)
    assert_same_gradient(found, expected)
    off = {"weights": expected["weights"] * (1 + 1e-11)}
    with pytest.raises(AssertionError, match="relative error"):
        assert_same_gradient(found, off)
    with pytest.raises(AssertionError):
        assert_same_gradient(found, {"key": expected["weights"]})
    with pytest.raises(AssertionError):
        assert_same_gradient(found, {"weights": expected["weights"][None]})


def test_direction_comparison_can_fail() -> None:
    turned = ScaledTensor(torch.tensor([[3.0], [4.0 + 1e-12]], dtype=torch.float64), torch.tensor(0.0))
    angle, size = direction_error(turned, exact([[3.0], [4.0]]))
    assert 1e-13 < angle < 2e-13
    assert 1e-13 < size < 2e-13
    angle, size = direction_error(ScaledTensor(turned.mantissa, torch.tensor(1.0)), exact([[3.0], [4.0]]))
    assert size == pytest.approx(1.0)
