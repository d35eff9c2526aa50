"""Scores, optimal tokens, the best risk and the Lipschitz bound."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from attsvm import (
    Exponential,
    GradientDescent,
    Logistic,
    QuadraticHead,
    ReluHead,
    TokenDataset,
    best_risk,
    fit,
    lipschitz_bound,
    optimal_token_set,
    optimal_tokens,
    token_scores,
)
from attsvm.attention import Linear, Loss, evaluate, gradient
from attsvm.data import random_gaussian, random_sphere
from attsvm.descent import LipschitzStep


def normal(seed: int, *shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def random_data(seed: int, kind: str) -> TokenDataset:
    if kind == "causal":
        return TokenDataset.causal(normal(seed, 2, 3, 3), torch.sign(normal(seed + 1, 2, 3)), head=normal(seed + 2, 3))
    data = random_gaussian(n=3, T=4, d=3, dq=2, seed=seed)
    if kind == "plain":
        return data
    mask = torch.tensor([[True] * 4, [True, False, True, False], [False, False, True, False]])
    return TokenDataset(
        data.tokens, data.queries, data.labels, mask=mask, values=normal(seed + 3, 3, 4, 2), head=normal(seed + 4, 2)
    )


KINDS = st.sampled_from(["plain", "causal", "ragged with values"])


def test_scores_by_the_formula() -> None:
    data = random_data(0, "ragged with values")
    scores = token_scores(data)
    for i in range(3):
        for t in range(4):
            expected = float(data.labels[i] * (data.values[i, t] @ data.head)) if data.mask[i, t] else -np.inf
            assert scores[i, t].item() == pytest.approx(expected, rel=1e-14)
    causal = random_data(0, "causal")
    for k in range(3):
        expected = [
            float(causal.labels[k] * (causal.tokens[0, t] @ causal.head)) if t <= k else -np.inf for t in range(3)
        ]
        assert token_scores(causal)[k].tolist() == pytest.approx(expected, rel=1e-14)


def test_scores_of_other_heads_and_batches() -> None:
    data = random_gaussian(n=2, T=3, d=3, batch=(2, 2), seed=1)
    matrix = normal(2, 3, 4)
    expected = data.labels.unsqueeze(-1) * torch.relu(data.tokens @ matrix).sum(-1)
    assert torch.allclose(token_scores(data, ReluHead(matrix)), expected, rtol=1e-14, atol=0)
    own = (data.tokens * data.head[..., None, None, :]).sum(-1) * data.labels.unsqueeze(-1)
    assert torch.allclose(token_scores(data), own, rtol=1e-13, atol=1e-15)
    assert optimal_tokens(data).equal(own.argmax(-1))


def test_ties() -> None:
    tokens = np.array([[[1.0, 0.0], [0.0, 1.0], [1.0, 3.0]], [[0.0, 0.0], [1.0, 0.0], [0.5, 0.0]]])
    data = TokenDataset(tokens, np.ones((2, 1)), [1, 1], head=np.array([1.0, 0.0]))
    with pytest.raises(
        ValueError, match=r"the optimal token of input 0 is not unique: tokens \[0, 2\] tie; use optimal_token_set"
    ):
        optimal_tokens(data)
    assert optimal_token_set(data).tolist() == [[True, False, True], [False, True, False]]
    assert optimal_token_set(data, tolerance=0.5).tolist() == [[True, False, True], [False, True, True]]
    stacked = TokenDataset(np.stack([tokens, tokens]), np.ones((2, 2, 1)), [[1, 1], [1, 1]])
    with pytest.raises(ValueError, match=r"the optimal token of element 0, input 0 is not unique"):
        optimal_tokens(stacked, np.array([1.0, 0.0]))


LOSSES = {"logistic": Logistic(), "exponential": Exponential(), "linear": Linear(), "function": torch.neg}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_best_risk_is_the_infimum_where_it_is_feasible(loss: Loss) -> None:
    """Weights far out in a separating direction come as close as rounding allows, and no weights go below."""
    from .reference import max_margin

    data = random_sphere(n=3, T=4, d=5, seed=3)
    best = best_risk(data, loss=loss)
    far = max_margin(data, optimal_tokens(data))
    assert evaluate(data, 60 * far, loss=loss).risk.item() == pytest.approx(best.item(), rel=1e-14)
    for seed in range(20):
        assert evaluate(data, 3 * normal(seed, 5, 5), loss=loss).risk > best


def test_best_risk_needs_a_linear_head() -> None:
    data = random_sphere(n=2, T=3, d=3, seed=0)
    with pytest.raises(ValueError, match="best_risk needs a linear prediction head; got QuadraticHead"):
        best_risk(data, QuadraticHead(data.head, 1.0))
    with pytest.raises(ValueError, match="lipschitz_bound needs a linear prediction head; got ReluHead"):
        lipschitz_bound(data, ReluHead(np.eye(3)))
    with pytest.raises(ValueError, match="states no bounds"):
        lipschitz_bound(data, loss=lambda m: -m)


@given(
    seed=st.integers(0, 10_000),
    kind=KINDS,
    distance=st.floats(1e-3, 30),
    loss=st.sampled_from([Logistic(), Exponential(), Linear()]),
)
def test_gradients_never_differ_by_more_than_the_bound(seed: int, kind: str, distance: float, loss: Loss) -> None:
    data = random_data(seed, kind)
    here = normal(seed + 5, data.d, data.dq)
    step = normal(seed + 6, data.d, data.dq)
    there = here + distance * step / step.norm()
    change = gradient(data, there, loss=loss)["weights"].tensor() - gradient(data, here, loss=loss)["weights"].tensor()
    assert change.norm() <= lipschitz_bound(data, loss=loss) * distance * (1 + 1e-9)


def test_the_bound_is_nearly_attained_somewhere() -> None:
    """Two tokens, linear loss: f = r sigmoid(a) has |f''| <= r / (6 sqrt 3); the bound allows r / 4 * D^2."""
    data = TokenDataset(np.array([[[1.0], [0.0]]]), np.ones((1, 1)), [1], head=np.array([1.0]))
    bound = lipschitz_bound(data, loss=Linear()).item()
    assert bound == pytest.approx(0.25)
    grid = torch.linspace(-4, 4, 2001, dtype=torch.float64)
    slopes = gradient(data, grid.reshape(-1, 1, 1), loss=Linear())["weights"].tensor()[:, 0, 0]
    steepest = (slopes.diff() / grid.diff()).abs().max().item()
    assert steepest == pytest.approx(1 / (6 * np.sqrt(3)), rel=1e-4)
    assert steepest > 0.3 * bound


@given(seed=st.integers(0, 10_000), kind=KINDS, fraction=st.sampled_from([0.5, 1.0]))
def test_lipschitz_step_never_increases_the_risk(seed: int, kind: str, fraction: float) -> None:
    data = random_data(seed, kind)
    optimizer = GradientDescent(LipschitzStep(fraction))
    run = fit(data, optimizer=optimizer, steps=40, record=1, seed=seed, keep=["risk"])
    risk = run.history.risk
    assert bool((risk.diff() <= 1e-15 * risk[:-1]).all())


@pytest.mark.parametrize("loss", [Logistic(), Exponential(), Linear()], ids=repr)
def test_flat_risks_have_bound_zero(loss: Loss) -> None:
    one_token = TokenDataset(1e3 * np.ones((2, 1, 2)), np.ones((2, 2)), [-1, 1], head=np.array([1.0, 0.0]))
    tied = TokenDataset(1e3 * np.array([[[1.0, 0.0], [1.0, 5.0]]]), np.ones((1, 2)), [-1], head=np.array([1.0, 0.0]))
    still = TokenDataset(np.array([[[1e3, 0.0], [1.0, 5.0]]]), np.zeros((1, 2)), [-1], head=np.array([1.0, 0.0]))
    for data in (one_token, tied, still):
        assert lipschitz_bound(data, loss=loss).item() == 0


def test_the_bound_scales_as_it_should() -> None:
    data = random_gaussian(n=3, T=4, d=3, seed=8)
    bound = lipschitz_bound(data, loss=Linear())
    double = TokenDataset(data.tokens, 2 * data.queries, data.labels, head=data.head)
    assert torch.allclose(lipschitz_bound(double, loss=Linear()), 4 * bound)
    shifted = TokenDataset(data.tokens + 7.0, data.queries, data.labels, values=data.values, head=data.head)
    assert torch.allclose(lipschitz_bound(shifted, loss=Linear()), bound, rtol=1e-12)
    batch = random_gaussian(n=3, T=4, d=3, batch=3, seed=8)
    assert torch.allclose(lipschitz_bound(batch)[1], lipschitz_bound(batch[1]), rtol=1e-14)
