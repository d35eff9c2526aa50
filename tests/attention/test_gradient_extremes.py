"""Finite input never gives NaN or infinity, zero gradients are exactly zero, and what can no longer be seen is said."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attsvm import Exponential, KeyQuery, LinearHead, Logistic, QuadraticHead, ReluHead, TokenDataset
from attsvm.attention import Linear, Loss, evaluate, gradient
from attsvm.data import orthonormal_tokens, random_sphere
from cases import Case, every_case

LOSSES = (Logistic(), Exponential(), Linear())


def normal(seed: int, *shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def assert_finite(found: dict[str, object]) -> None:
    """Raise unless mantissa, scale, direction and plain tensor of every gradient are finite."""
    for name, part in found.items():
        for what in ("mantissa", "log_scale"):
            assert torch.isfinite(getattr(part, what)).all(), f"{what} of {name}"
        assert torch.isfinite(part.normalized()).all(), f"direction of {name}"
        assert torch.isfinite(part.tensor()).all(), f"plain {name}"


def test_the_check_can_fail() -> None:
    from attsvm.attention import ScaledTensor

    bad = ScaledTensor(torch.tensor([[torch.nan]]), torch.tensor([0.0]))
    with pytest.raises(AssertionError, match="mantissa of weights"):
        assert_finite({"weights": bad})


@settings(max_examples=150)
@given(
    seed=st.integers(0, 1000),
    weight=st.floats(-100, 100),
    token=st.floats(-100, 100),
    query=st.floats(-100, 100),
    head=st.floats(-100, 100),
    loss=st.sampled_from(LOSSES),
)
def test_any_scales_whose_products_are_finite(
    seed: int, weight: float, token: float, query: float, head: float, loss: Loss
) -> None:
    logit, score = weight + token + query, token + head
    # Logits, scores, and the gradient's own products X^T (s u) z^T must have floating-point values.
    if max(logit, score, score + token + query) > 300:
        return
    data = random_sphere(n=3, T=4, d=3, seed=seed)
    data = TokenDataset(data.tokens * 10.0**token, data.queries * 10.0**query, data.labels, head=data.head * 10.0**head)
    found = gradient(data, normal(seed, 3, 3) * 10.0**weight, loss=loss, train_head=True)
    assert_finite(found)


@given(seed=st.integers(0, 1000), size=st.floats(0, 5), loss=st.sampled_from(LOSSES), far=st.floats(-3, 8))
def test_huge_scores_at_any_saturation(seed: int, size: float, loss: Loss, far: float) -> None:
    """Scores up to 1e5 of either sign, where exp(-Y f) has no floating-point value."""
    data = random_sphere(n=4, T=3, d=3, seed=seed)
    head = data.head * 10.0**size
    found = gradient(data, normal(seed, 3, 3) * 10.0**far, head, loss, train_head=True)
    assert_finite(found)
    assert (found["weights"].mantissa != 0).any()
    assert (found["head"].mantissa != 0).any()


@pytest.mark.parametrize("head", [ReluHead(np.eye(3)), QuadraticHead(np.ones(3), 2.0)], ids=["relu", "quadratic"])
@given(seed=st.integers(0, 1000), far=st.floats(-10, 60))
def test_other_heads(head: object, seed: int, far: float) -> None:
    data = random_sphere(n=3, T=4, d=3, seed=seed)
    assert_finite(gradient(data, normal(seed, 3, 3) * 10.0**far, head, train_head=True))


@given(seed=st.integers(0, 1000), far=st.floats(-50, 50))
def test_factors(seed: int, far: float) -> None:
    data = random_sphere(n=3, T=4, d=3, seed=seed)
    factors = {"key": normal(seed, 3, 2) * 10.0**far, "query": normal(seed + 1, 3, 2) * 10.0**far}
    assert_finite(gradient(data, factors, parameterization=KeyQuery(2)))


@every_case
@pytest.mark.parametrize("size", [0.0, 1.0, 1e5, 1e30])
def test_every_case(case: Case, size: float) -> None:
    data = case.data
    weights = size * normal(0, *data.batch_shape, data.d, data.dq)
    assert_finite(gradient(data, weights, train_head=True))
    seen = evaluate(data, weights)
    for field in ("attention", "margin", "risk"):
        assert torch.isfinite(getattr(seen, field)).all()
    assert torch.allclose(seen.attention.sum(-1), torch.ones((), dtype=torch.float64), rtol=1e-14)
    if data.mask is not None:
        assert bool((seen.attention.masked_select(~data.mask.expand_as(seen.attention)) == 0).all())


def test_small_numbers_keep_their_direction() -> None:
    """Tokens, queries and a head of 1e-60 make a gradient of about 1e-240."""
    data = random_sphere(n=3, T=4, d=3, seed=1)
    tiny = TokenDataset(1e-60 * data.tokens, 1e-60 * data.queries, data.labels, head=1e-60 * data.head)
    weights = torch.zeros(3, 3, dtype=torch.float64)
    # Scores and logits of about zero: slope -1/2 and uniform attention, so that only the scale differs.
    expected = gradient(data, weights, loss=Linear())["weights"].normalized()
    assert torch.allclose(gradient(tiny, weights)["weights"].normalized(), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("size", [0.0, 1.0, 1e4])
def test_one_token_and_zero_query_have_gradient_zero(size: float) -> None:
    data = random_sphere(n=3, T=1, d=3, seed=2)
    still = random_sphere(n=3, T=4, d=3, seed=2)
    still = TokenDataset(still.tokens, torch.zeros(3, 2, dtype=torch.float64), still.labels, head=still.head)
    for problem in (data, still):
        found = gradient(problem, size * normal(3, 3, problem.dq))["weights"]
        assert found.mantissa.abs().max() == 0
        assert found.log_norm().item() == -torch.inf
    assert bool((evaluate(data, normal(3, 3, 3)).attention == 1).all())
    assert bool((evaluate(still, normal(3, 3, 2)).attention == 0.25).all())


def test_attention_stays_exact_in_logarithms() -> None:
    data = TokenDataset(np.array([[[0.0], [-1.0], [-2.0]]]), np.ones((1, 1)), [1], head=np.ones(1))
    seen = evaluate(data, torch.tensor([[5000.0]], dtype=torch.float64))
    assert seen.attention.tolist() == [[1.0, 0.0, 0.0]]
    assert seen.log_attention.tolist() == [[0.0, -5000.0, -10000.0]]
    near = evaluate(data, torch.tensor([[40.0]], dtype=torch.float64)).log_attention[0, 0].item()
    assert near == pytest.approx(-np.exp(-40.0), rel=1e-12)


# --------------------------------------------------------------- invisible tokens


def two_keep_probability(scale: float) -> tuple[TokenDataset, QuadraticHead, Tensor]:
    """Orthonormal tokens, quadratic head: at the optimum two tokens keep probability 1/2, the third has exp(-scale).

    h = v^T x - penalty ||x||^2 with v = (1, 1, 0) is stationary in the split of two equal tokens [quadratic head].
    """
    data = TokenDataset(np.eye(3)[None], np.ones((1, 1)), [1])
    head = QuadraticHead(np.array([1.0, 1.0, 0.0]), 1.0)
    return data, head, torch.tensor([[0.0], [0.0], [-scale]], dtype=torch.float64)


def test_invisible_tokens_are_named() -> None:
    for scale, expected in ((5.0, False), (60.0, True), (5000.0, True)):
        data, head, weights = two_keep_probability(scale)
        assert evaluate(data, weights, head).invisible.tolist() == [[False, False, expected]]


def test_invisible_means_that_the_gradient_no_longer_feels_the_token() -> None:
    """Exact arithmetic pulls on the third token; once it is invisible, its pull is below round-off of the others."""
    data, head, weights = two_keep_probability(60.0)
    weights = weights + torch.tensor([[1e-9], [0.0], [0.0]], dtype=torch.float64)
    pull = gradient(data, weights, head)["weights"]
    assert evaluate(data, weights, head).invisible[0, 2]
    # d/da_3 is about s_3 (u_3 - mean) = exp(-60) / 2, the others about 1e-9 / 4.
    assert (pull.tensor()[2] / pull.tensor()[0]).abs() < 1e-15


@pytest.mark.parametrize("norm", [1.0, 10.0, 1e3, 1e5])
def test_nothing_is_invisible_while_one_token_wins(norm: float) -> None:
    data = random_sphere(n=6, T=8, d=10, batch=20, seed=4)
    weights = normal(5, 20, 10, 10)
    weights = norm * weights / weights.norm(dim=(-1, -2), keepdim=True)
    # Losers keep more than the papers' threshold at small norms only; with a winner nothing drowns.
    seen = evaluate(data, weights)
    won = seen.attention.amax(-1) > 0.999
    assert not bool(seen.invisible[won].any())


def test_scores_tied_to_round_off() -> None:
    """Two tokens with scores equal to 1e-16 keep probability for ever; a third below round-off cannot be felt."""
    tokens = np.array([[[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]])
    data = TokenDataset(tokens, np.ones((1, 1)), [1], head=np.array([1.0, 1.0 + 2e-16]))
    near = evaluate(data, torch.tensor([[0.1], [0.0]], dtype=torch.float64))
    far = evaluate(data, torch.tensor([[40.0], [40.0]], dtype=torch.float64))
    assert not near.invisible.any()
    assert far.invisible.tolist() == [[False, False, True]]


def test_orthonormal_winner_under_a_linear_head() -> None:
    data = orthonormal_tokens(n=2, T=3, d=6, seed=0)
    best = torch.stack([data.tokens[i].mT @ torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64) for i in range(2)])
    weights = 50 * torch.einsum("nd,nq->dq", best, torch.linalg.pinv(data.queries).mT)
    assert not evaluate(data, weights, LinearHead(data.head)).invisible.any()
