"""The gradient far beyond saturation, against mpmath, along max-margin directions.

Along such a direction the rows of the support share one margin, so that many terms of about the same size add up;
along a random W one row dominates and nothing is tested. The entries fall like exp(-||W||), so the reference carries
||W||/2 + 60 digits: with fewer it is itself wrong, as one test shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import torch
from torch import Tensor

from attsvm import Exponential, KeyQuery, LinearHead, Logistic, QuadraticHead, ReluHead, TokenDataset, optimal_tokens
from attsvm.attention import Linear, evaluate, gradient
from attsvm.data import random_sphere

from .reference import (
    EXACT_SLOPES,
    ExactHead,
    direction_error,
    exact,
    exact_gradient,
    exact_linear,
    exact_product,
    exact_quadratic,
    exact_relu,
    exact_tanh,
    margin_rows,
    max_margin,
    plain_risk,
    transposed,
)

NORMS = (10.0, 1e2, 1e3, 1e4)
D = 4


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def unit(seed: int, *shape: int) -> np.ndarray:
    points = normal(seed, *shape)
    return points / np.linalg.norm(points, axis=-1, keepdims=True)


def tanh_module(inner: np.ndarray, outer: np.ndarray) -> torch.nn.Module:
    module = torch.nn.Sequential(
        torch.nn.Linear(D, len(outer), bias=False), torch.nn.Tanh(), torch.nn.Linear(len(outer), 1, bias=False)
    ).double()
    with torch.no_grad():
        module[0].weight.copy_(torch.from_numpy(inner))
        module[2].weight.copy_(torch.from_numpy(outer)[None])
    return module


VECTOR, MATRIX, INNER, OUTER = unit(1, D), normal(2, D, 3), normal(3, 3, D), normal(4, 3)
HEADS: dict[str, tuple[object, Callable[[], ExactHead]]] = {
    "linear": (LinearHead(VECTOR), lambda: exact_linear(VECTOR)),
    "relu": (ReluHead(MATRIX), lambda: exact_relu(MATRIX)),
    "quadratic": (QuadraticHead(VECTOR, 0.25), lambda: exact_quadratic(VECTOR, 0.25)),
    "tanh": (tanh_module(INNER, OUTER), lambda: exact_tanh(INNER, OUTER)),
}
DATA: dict[str, TokenDataset] = {
    "cross-attention": TokenDataset(unit(5, 3, 4, D), unit(6, 3, D), [1, -1, 1]),
    "ragged": TokenDataset(
        unit(7, 3, 4, D), unit(8, 3, D), [1, -1, 1], mask=np.arange(4) < np.array([4, 2, 3])[:, None]
    ),
    "prompt": TokenDataset.prompt(unit(9, 2, 3, D), [1, -1], np.linalg.qr(normal(10, 6, D))[0]),
    "causal": TokenDataset.causal(unit(15, 1, 4, D), [[1, -1, 1, 1]]),
    "values": TokenDataset(unit(12, 3, 4, 5), unit(13, 3, 3), [1, -1, 1], values=unit(14, 3, 4, D)),
}


def far(data: TokenDataset, norm: float) -> Tensor:
    """W of this norm along the max-margin direction of the linear head's optimal tokens."""
    weights = max_margin(data, optimal_tokens(data, VECTOR))
    return norm * weights / weights.norm()


def digits(norm: float) -> int:
    return int(norm / 2) + 60


def tolerance(norm: float) -> float:
    """Of the direction. Tokens and queries have length 1: a logit is at most ||W||, and a few roundings of that off."""
    return 4e-16 * norm + 1e-14


def size_tolerance(norm: float) -> float:
    """Of the log-norm, itself a number of up to ||W|| with a round-off of its own."""
    return 4e-16 * norm + 1e-14


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("kind", DATA)
def test_weights(kind: str, head: str, norm: float) -> None:
    data, (own, precise) = DATA[kind], HEADS[head]
    weights = far(data, norm)
    with mp.workdps(digits(norm)):
        expected = exact_gradient(data, exact(weights), precise(), EXACT_SLOPES["Logistic"])
        angle, size = direction_error(gradient(data, weights, own)["weights"], expected)
    assert angle <= tolerance(norm)
    assert size <= size_tolerance(norm)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("kind", ["cross-attention", "ragged", "prompt"])
def test_key_and_query(kind: str, head: str, norm: float) -> None:
    data, (own, precise) = DATA[kind], HEADS[head]
    left, values, right = torch.linalg.svd(far(data, norm), full_matrices=False)
    key, query = left * values.sqrt(), right.mT * values.sqrt()
    found = gradient(data, {"key": key, "query": query}, own, parameterization=KeyQuery(key.shape[1]))
    with mp.workdps(digits(norm)):
        in_weights = exact_gradient(data, exact_product(key, query), precise(), EXACT_SLOPES["Logistic"])
        expected = {
            "key": exact_product(in_weights, query.mT),
            "query": exact_product(transposed(in_weights), key.mT),
        }
        errors = {name: direction_error(found[name], expected[name]) for name in expected}
    for angle, size in errors.values():
        assert angle <= tolerance(norm)
        assert size <= size_tolerance(norm)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("loss", [Logistic(), Exponential(), Linear()], ids=repr)
def test_losses(loss: Any, norm: float) -> None:
    # Scores of about +-50 * the unit ones, so that inputs differ much in the slope of their loss.
    data = DATA["cross-attention"]
    head = 50 * VECTOR
    weights = far(data, norm)
    with mp.workdps(digits(norm)):
        expected = exact_gradient(data, exact(weights), exact_linear(head), EXACT_SLOPES[type(loss).__name__])
        angle, size = direction_error(gradient(data, weights, head, loss)["weights"], expected)
    # The margin of an input, about 30 here, enters through exp(-margin).
    assert angle <= tolerance(norm) + 30e-15
    assert size <= size_tolerance(norm) + 30e-15


@pytest.mark.parametrize("scale", [1e3, 1e5])
@pytest.mark.parametrize("loss", [Logistic(), Exponential()], ids=repr)
def test_trained_head_beyond_underflow_of_the_loss(loss: Any, scale: float) -> None:
    """Joint training: once Y f > 745 the slope of the loss itself is below the smallest float."""
    data = DATA["cross-attention"]
    labels = torch.ones(data.n, dtype=torch.float64)
    data = TokenDataset(data.tokens, data.queries, labels)
    head = torch.from_numpy(scale * (unit(20, D) + data.tokens.mean((0, 1)).numpy()))
    assert evaluate(data, far(data, 100.0), head, loss).margin.abs().max() > 745 / 3
    weights = far(data, 100.0)
    found = gradient(data, weights, head, loss, train_head=True)["head"]
    with mp.workdps(120):
        slope = EXACT_SLOPES[type(loss).__name__]
        total = [mp.mpf(0)] * D
        for i in range(data.n):
            direction = [
                mp.fsum(a * b for a, b in zip(row, exact(data.queries[i]), strict=True)) for row in exact(weights)
            ]
            logits = [mp.fsum(a * b for a, b in zip(x, direction, strict=True)) for x in exact(data.tokens[i])]
            powers = [mp.exp(a) for a in logits]
            s = [p / mp.fsum(powers) for p in powers]
            x = [mp.fsum(p * t[j] for p, t in zip(s, exact(data.tokens[i]), strict=True)) for j in range(D)]
            pull = slope(mp.fsum(a * b for a, b in zip(exact(head), x, strict=True))) / data.n
            total = [g + pull * a for g, a in zip(total, x, strict=True)]
        angle, size = _vector_error(found, total)
    assert angle <= 1e-14 + 1e-15 * scale
    assert size <= 1e-14 + 1e-15 * scale


def _vector_error(found: Any, expected: list[Any]) -> tuple[float, float]:
    column = type(found)(found.mantissa.unsqueeze(-1), found.log_scale)
    return direction_error(column, [[entry] for entry in expected])


def test_autograd_is_noise_out_there() -> None:
    """What the closed form is for: at norm 1e2 autograd is wrong in the leading digits, at 1e4 it is zero."""
    data = DATA["cross-attention"]
    for norm, least in ((1e2, 1e-8), (1e4, 0.999)):
        weights = far(data, norm).requires_grad_(True)
        plain_risk(data, weights, lambda x: x @ torch.from_numpy(VECTOR)).backward()
        ours = gradient(data, weights.detach(), VECTOR)["weights"]
        assert weights.grad is not None
        theirs = weights.grad / weights.grad.norm().clamp(min=1e-300)
        assert (theirs - ours.normalized()).norm() >= least


def test_too_few_digits_spoil_the_reference() -> None:
    data = DATA["cross-attention"]
    weights = far(data, 1e3)
    with mp.workdps(60):
        wrong = exact_gradient(data, exact(weights), exact_linear(VECTOR), EXACT_SLOPES["Logistic"])
        angle, _ = direction_error(gradient(data, weights, VECTOR)["weights"], wrong)
    assert angle > 0.1


def test_margins_of_the_support_are_equal() -> None:
    data = DATA["cross-attention"]
    margins = np.sort(margin_rows(data, optimal_tokens(data, VECTOR)) @ far(data, 1e4).numpy().ravel())
    assert margins[1] - margins[0] < 1e-11 * margins[0]


@pytest.mark.slow
def test_a_larger_problem() -> None:
    data = random_sphere(n=6, T=8, d=10, seed=0)
    weights = max_margin(data, optimal_tokens(data))
    for norm in NORMS[:3]:
        at = norm * weights / weights.norm()
        with mp.workdps(digits(norm)):
            expected = exact_gradient(data, exact(at), exact_linear(data.head), EXACT_SLOPES["Logistic"])
            angle, size = direction_error(gradient(data, at)["weights"], expected)
        assert angle <= tolerance(norm)
        assert size <= size_tolerance(norm)


def test_the_bound_is_no_accident_of_one_data_set() -> None:
    """Of many random data sets the median stays well inside the bound; rounding alone takes a few tiny ones past it."""
    ratios = []
    for seed in range(20):
        data = random_sphere(n=3, T=4, d=4, seed=seed)
        weights = max_margin(data, optimal_tokens(data))
        at = 1e3 * weights / weights.norm()
        with mp.workdps(digits(1e3)):
            expected = exact_gradient(data, exact(at), exact_linear(data.head), EXACT_SLOPES["Logistic"])
            angle, _ = direction_error(gradient(data, at)["weights"], expected)
        ratios.append(angle / tolerance(1e3))
    assert np.median(ratios) < 0.6
    assert max(ratios) < 3
