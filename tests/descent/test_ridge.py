"""The ridge: against autograd, closed forms where it competes with a saturated gradient, and its nuclear optimum."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from attsvm import (
    GradientDescent,
    KeyQuery,
    MaxEntry,
    NormalizedGradientDescent,
    PolyakDescent,
    ReluHead,
    SteepestDescent,
    TokenDataset,
    Weights,
    fit,
    initial_parameters,
)
from attsvm.attention import gradient
from attsvm.data import random_sphere
from attsvm.descent import CompiledEngine, LipschitzStep, TorchEngine

from .reference import assert_close, descend, normal
from .test_compiled import both, worst_error
from .test_resume import assert_same_run

every_engine = pytest.mark.parametrize("engine", [CompiledEngine(), TorchEngine()], ids=["compiled", "torch"])
every_kind = pytest.mark.parametrize("kind", [Weights(), KeyQuery(3)], ids=["W", "KQ"])


def pair(gap: float) -> TokenDataset:
    """One input of two tokens with scores `gap` and 0, at distance 1, and query 1."""
    tokens = torch.tensor([[[1.0, 0.0], [0.0, 0.0]]], dtype=torch.float64)
    return TokenDataset(tokens, torch.ones(1, 1, dtype=torch.float64), [1], head=torch.tensor([gap, 0.0]).double())


# ------------------------------------------------------------------ its formula


@every_engine
@every_kind
@pytest.mark.parametrize("normalized", [True, False], ids=["normalized", "plain"])
def test_autograd_of_the_penalised_risk(engine: Any, kind: Any, normalized: bool) -> None:
    ridge, size = 0.03, 0.2
    data = random_sphere(n=4, T=5, d=4, seed=0)
    run = fit(
        data,
        parameterization=kind,
        optimizer=NormalizedGradientDescent(size) if normalized else GradientDescent(size),
        ridge=ridge,
        steps=25,
        engine=engine,
    )

    def rule(step: int, value: Tensor, slope: Tensor, memory: dict[str, Tensor]) -> Tensor:
        total = slope + ridge * value
        return value - size * (total / total.norm() if normalized else total)

    expected = descend(data, rule, initial_parameters(data, kind), 25)
    for name, value in expected.items():
        assert_close(run.parameters[name], value, 1e-10)
    assert run.configuration["ridge"] == ridge


@every_kind
@pytest.mark.parametrize(
    "optimizer",
    [NormalizedGradientDescent(0.1), GradientDescent(0.5), SteepestDescent(MaxEntry(), 0.02)],
    ids=repr,
)
@pytest.mark.parametrize("relu", [False, True], ids=["linear", "relu"])
def test_engines_agree(kind: Any, optimizer: Any, relu: bool) -> None:
    data = random_sphere(n=4, T=5, d=5, batch=9, seed=1)
    head = ReluHead(normal(2, 9, 5, 4)) if relu else None
    ours, peer = both(data, head=head, parameterization=kind, optimizer=optimizer, ridge=1e-3, steps=25)
    assert worst_error(ours.weights, peer.weights) < 1e-9
    plain = fit(data, head=head, parameterization=kind, optimizer=optimizer, steps=25)
    assert worst_error(ours.weights, plain.weights) > 1e-6  # the ridge is not nothing


def test_a_trained_head_has_no_ridge() -> None:
    data = random_sphere(n=4, T=5, d=4, seed=3)
    options = {"train_head": True, "optimizer": GradientDescent(0.5), "steps": 1}
    with_ridge, without = (fit(data, ridge=ridge, **options) for ridge in (0.5, 0.0))
    assert with_ridge.parameters["head"].equal(without.parameters["head"])
    assert not with_ridge.weights.equal(without.weights)


# -------------------------------------------- in proportion to a tiny gradient


@every_engine
@pytest.mark.parametrize("logit", [5.0, 30.0, 36.0, 45.0, 300.0])
def test_closed_form_where_the_two_compete(engine: Any, logit: float) -> None:
    """n = 1, T = 2: the gradient is -sigmoid(-f) s (1 - s) gap (x_1 - x_2), from above the ridge's to far below it."""
    gap, ridge = 0.5, 1e-14
    start = torch.tensor([[logit], [2.0]], dtype=torch.float64)
    loser = 1 / (1 + math.exp(logit))
    pull = -gap * loser * (1 - loser) / (1 + math.exp(gap * (1 - loser)))
    expected = torch.tensor([[pull + ridge * logit], [2 * ridge]], dtype=torch.float64)
    size = 1e12
    plain = fit(pair(gap), initial=start, optimizer=GradientDescent(size), ridge=ridge, steps=1, engine=engine)
    assert_close(plain.weights, start - size * expected, 1e-13)
    unit = fit(pair(gap), initial=start, optimizer=NormalizedGradientDescent(1e3), ridge=ridge, steps=1, engine=engine)
    assert_close(unit.weights - start, -1e3 * expected / expected.norm(), 1e-12)


@every_engine
@every_kind
def test_far_out_only_the_ridge_is_left(engine: Any, kind: Any) -> None:
    """Where the gradient is exp(-1000), descent shrinks every factor towards zero along itself."""
    data = random_sphere(n=4, T=5, d=6, batch=9, seed=4)
    settled = fit(data, parameterization=kind, steps=300)
    start = {name: 1e3 * value for name, value in settled.parameters.items()}
    assert float(gradient(data, start, parameterization=kind)[next(iter(start))].log_norm().max()) < -500
    for optimizer, factor in ((NormalizedGradientDescent(0.1), None), (GradientDescent(1e15), 1 - 0.22)):
        run = fit(
            data, parameterization=kind, initial=start, optimizer=optimizer, ridge=2.2e-16, steps=1, engine=engine
        )
        for name, value in start.items():
            shrunk = 1 - 0.1 / torch.linalg.matrix_norm(value)[:, None, None] if factor is None else factor
            assert_close(run.parameters[name], shrunk * value, 1e-15)


@every_engine
def test_without_a_gradient_the_ridge_pulls_to_zero(engine: Any) -> None:
    start = torch.tensor([[3.0], [4.0]], dtype=torch.float64)
    for ridge in (1.0, 2.2e-16):
        run = fit(pair(0.0), initial=start, ridge=ridge, steps=10, engine=engine)
        assert_close(run.weights, 0.8 * start, 1e-14)
        assert not bool(run.stalled)
    assert bool(fit(pair(0.0), initial="zeros", ridge=1.0, steps=10, engine=engine).stalled)


@every_engine
def test_a_ridge_far_below_the_gradient_is_nothing(engine: Any) -> None:
    data = random_sphere(n=4, T=5, d=6, batch=9, seed=5)
    tiny, none = (fit(data, ridge=ridge, steps=20, engine=engine) for ridge in (1e-300, 0.0))
    assert worst_error(tiny.weights, none.weights) < 1e-14


def test_factors_reach_the_nuclear_optimum() -> None:
    """The minimum is that of risk + ridge ||W||_nuclear: K^T K = Q^T Q, and -gradient / ridge is a dual of W."""
    ridge = 0.02
    data = random_sphere(n=4, T=5, d=6, batch=9, seed=6)
    run = fit(data, parameterization=KeyQuery(), optimizer=GradientDescent(2.0), ridge=ridge, steps=20_000, record=[0])
    key, query = run.parameters["key"], run.parameters["query"]
    assert float((key.mT @ key - query.mT @ query).abs().max()) < 1e-10
    push = -gradient(data, run.weights)["weights"].tensor()
    nuclear = torch.linalg.svdvals(run.weights).sum(-1)
    inner = (push * run.weights).sum((-2, -1))
    assert float(nuclear.min()) > 0.1
    assert torch.allclose(inner, ridge * nuclear, rtol=1e-8)
    assert float(torch.linalg.svdvals(push).amax(-1).max()) < ridge * (1 + 1e-6)


# --------------------------------------------------------- resuming and refusals


@every_engine
@every_kind
def test_resumes_bit_for_bit(engine: Any, kind: Any) -> None:
    data = random_sphere(n=4, T=5, d=4, batch=3, seed=7)
    options = {"parameterization": kind, "engine": engine, "ridge": 0.1, "record": [0, 40]}
    part = fit(data, steps=17, **options | {"record": [0]})
    assert_same_run(fit(data, steps=40, resume=part, **options), fit(data, steps=40, **options))


def test_resume_needs_the_same_ridge() -> None:
    data = random_sphere(n=4, T=5, d=4, seed=8)
    part = fit(data, steps=5, ridge=0.1)
    with pytest.raises(ValueError, match=r"resume needs the same ridge; the run was made with 0\.1, now it is 0\.0"):
        fit(data, steps=9, resume=part)
    plain = fit(data, steps=5)
    older = dataclasses.replace(plain, configuration={k: v for k, v in plain.configuration.items() if k != "ridge"})
    assert_same_run(fit(data, steps=9, resume=older), fit(data, steps=9, resume=plain))


@pytest.mark.parametrize("ridge", [-1e-9, math.inf, math.nan, True, "much", None])
def test_bad_ridge(ridge: Any) -> None:
    with pytest.raises(ValueError, match="ridge must be finite and not negative; got "):
        fit(random_sphere(n=2, T=3, d=2, seed=9), steps=1, ridge=ridge)


def test_what_needs_the_bare_risk_takes_no_ridge() -> None:
    data = random_sphere(n=2, T=3, d=2, seed=9)
    with pytest.raises(ValueError, match="PolyakDescent needs the best risk, which a ridge changes"):
        fit(data, steps=1, ridge=0.1, optimizer=PolyakDescent())
    with pytest.raises(ValueError, match=r"LipschitzStep\(\) bounds the gradient of the risk alone; it needs ridge=0"):
        fit(data, steps=1, ridge=0.1, optimizer=GradientDescent(LipschitzStep()))
