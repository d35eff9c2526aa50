"""Where weights, norms and logits come near the end of floating point."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from attsvm import GradientDescent, KeyQuery, Weights, fit, initial_parameters
from attsvm.data import random_sphere
from attsvm.descent import CompiledEngine, TorchEngine

every_engine = pytest.mark.parametrize("engine", [CompiledEngine(), TorchEngine()], ids=["compiled", "torch"])


@every_engine
def test_the_norm_of_weights_whose_squares_overflow(engine: Any) -> None:
    data = random_sphere(n=3, T=4, d=3, batch=2, seed=14)
    run = fit(data, optimizer=GradientDescent(1e305), steps=5, record=[0, 5], engine=engine)
    expected = 1e303 * torch.linalg.matrix_norm(run.weights / 1e303)
    assert torch.allclose(run.norm, expected, rtol=1e-14)
    assert torch.allclose(run.history.norm[1], expected, rtol=1e-14)
    assert not bool(run.overflowed.any())


@every_engine
@pytest.mark.parametrize("kind", [Weights(), KeyQuery(2)], ids=["W", "KQ"])
def test_a_step_to_logits_beyond_floating_point_is_not_taken(engine: Any, kind: Any) -> None:
    data = random_sphere(n=3, T=4, d=3, batch=2, seed=14)
    large = type(data)(data.tokens * 1e4, data.queries, data.labels, values=data.tokens, head=data.head)
    start = {name: 1e-5 * value for name, value in initial_parameters(data, kind).items()}
    optimizer = GradientDescent(1e304)
    run = fit(large, parameterization=kind, optimizer=optimizer, initial=start, steps=5, engine=engine)
    assert bool(run.overflowed.all())
    assert run.steps_taken.tolist() == [0, 0]
    assert bool(torch.isfinite(run.weights).all())
    assert bool(torch.isfinite(run.attention).all())
    assert bool(torch.isfinite(run.norm).all())


@every_engine
def test_only_the_element_that_overflows_is_held(engine: Any) -> None:
    data = random_sphere(n=3, T=4, d=3, batch=3, seed=15)
    tokens = data.tokens.clone()
    tokens[1] *= 1e9
    wild = type(data)(tokens, data.queries, data.labels, values=data.tokens, head=data.head)
    run = fit(wild, initial="zeros", optimizer=GradientDescent(1e295), steps=3, engine=engine)
    assert run.overflowed.tolist() == [False, True, False]
    assert run.steps_taken.tolist() == [3, 0, 3]
    assert bool(torch.isfinite(run.attention).all())
