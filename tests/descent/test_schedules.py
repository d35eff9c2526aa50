"""Step sizes along a run."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attsvm import GradientDescent, NormalizedGradientDescent, TokenDataset, fit, lipschitz_bound
from attsvm.data import random_sphere
from attsvm.descent import Constant, Geometric, InverseSqrt, LipschitzStep, Schedule, TorchEngine

from .reference import assert_close


def test_formulas() -> None:
    assert Constant(0.3).sizes(5, 3).tolist() == [0.3] * 3
    assert np.allclose(InverseSqrt(2.0).sizes(3, 3), [2 / np.sqrt(4), 2 / np.sqrt(5), 2 / np.sqrt(6)], rtol=1e-15)
    assert np.allclose(Geometric(0.1, 1.5).sizes(2, 3), 0.1 * 1.5 ** np.arange(2, 5), rtol=1e-14)
    assert np.allclose(Geometric(0.1, 0.5).sizes(0, 60), 0.1 * 0.5 ** np.arange(60), rtol=1e-14)
    assert LipschitzStep(0.5).sizes(7, 2).tolist() == [0.5, 0.5]


@given(size=st.floats(1e-3, 1e3), growth=st.floats(0.5, 3), first=st.integers(0, 10**6), count=st.integers(1, 20))
def test_geometric_never_overflows_and_meets_its_ceiling(size: float, growth: float, first: int, count: int) -> None:
    sizes = Geometric(size, growth, largest=1e50).sizes(first, count)
    assert np.isfinite(sizes).all()
    assert (sizes >= 0).all()
    assert (sizes <= 1e50).all()
    logs = np.log(size) + np.arange(first, first + count) * np.log(growth)
    inside = (logs < np.log(1e50) - 1e-6) & (logs > -600)
    assert np.allclose(np.log(sizes[inside]), logs[inside], rtol=1e-9, atol=1e-6)
    assert (sizes[logs > np.log(1e50) + 1e-6] == 1e50).all()


@pytest.mark.parametrize("schedule", [Constant(0.2), InverseSqrt(0.7), Geometric(0.1, 1.3)], ids=repr)
def test_pieces_make_the_whole(schedule: Schedule) -> None:
    whole = schedule.sizes(0, 20)
    assert np.concatenate([schedule.sizes(0, 7), schedule.sizes(7, 13)]).tolist() == whole.tolist()


@pytest.mark.parametrize("schedule", [Constant(0.2), InverseSqrt(0.7), Geometric(0.1, 1.3)], ids=repr)
def test_normalized_descent_walks_by_its_schedule(schedule: Schedule) -> None:
    data = random_sphere(n=3, T=4, d=3, seed=0)
    run = fit(data, optimizer=NormalizedGradientDescent(schedule), steps=12, record=1)
    lengths = torch.linalg.matrix_norm(run.history.weights.diff(dim=0))
    assert np.allclose(lengths.numpy(), schedule.sizes(0, 12), rtol=1e-12)


def test_lipschitz_step_is_one_over_the_bound_of_each_data_set() -> None:
    data = random_sphere(n=3, T=4, d=3, batch=3, seed=1)
    ours = fit(data, optimizer=GradientDescent(LipschitzStep(0.5)), steps=20, engine=TorchEngine())
    for b in range(3):
        size = 0.5 / lipschitz_bound(data[b]).item()
        alone = fit(data[b], optimizer=GradientDescent(size), steps=20, seed=[(0, b)], engine=TorchEngine())
        assert_close(ours.weights[b], alone.weights)


def test_lipschitz_step_of_a_flat_risk() -> None:
    flat = TokenDataset(np.ones((2, 1, 3)), np.ones((2, 2)), [1, -1], head=np.ones(3))
    run = fit(flat, optimizer=GradientDescent(LipschitzStep()), steps=3)
    assert run.weights.equal(run.history.weights[0])
