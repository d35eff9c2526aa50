"""Where runs begin: drawn, zero and given starts, and that `initial_parameters` is where `fit` begins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from attsvm import KeyQuery, ReluHead, TokenDataset, Weights, fit, initial_parameters
from attsvm.data import random_sphere
from attsvm.descent import CompiledEngine, Engine, TorchEngine

from .reference import assert_close, normal

DATA = random_sphere(n=4, T=5, d=4, dq=3, batch=3, seed=1)


@pytest.mark.parametrize("batch", [None, 2, (2, 3)], ids=str)
@pytest.mark.parametrize("kind", [None, Weights(), KeyQuery(), KeyQuery(2)], ids=str)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"seed": 7},
        {"seed": 7, "starts": 4},
        {"starts": 1},
        {"seed": 2, "train_head": True},
        {"seed": 2, "train_head": True, "starts": 2},
    ],
    ids=str,
)
def test_is_where_fit_begins(batch: Any, kind: Any, options: dict[str, Any]) -> None:
    """Bit for bit, in the same order, for every batch shape and with trained prediction heads."""
    data = random_sphere(n=3, T=4, d=5, dq=2, batch=batch, seed=0)
    found = initial_parameters(data, kind, **options)
    expected = fit(data, parameterization=kind, steps=0, **options).parameters
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert found[name].dtype == value.dtype
        assert found[name].equal(value), name


@pytest.mark.parametrize("seed", [5, [4, 5, 6], [(1, 2), 3, (0, 9)]], ids=str)
def test_takes_every_kind_of_seed(seed: Any) -> None:
    found = initial_parameters(DATA, KeyQuery(2), seed)
    for name, value in fit(DATA, parameterization=KeyQuery(2), steps=0, seed=seed).parameters.items():
        assert found[name].equal(value)


def test_takes_a_generator() -> None:
    drawn, again = (initial_parameters(DATA, seed=torch.Generator().manual_seed(3))["weights"] for _ in range(2))
    assert drawn.equal(again)
    assert drawn.equal(fit(DATA, steps=0, seed=torch.Generator().manual_seed(3)).weights)


@pytest.mark.parametrize(
    ("kind", "initial"),
    [
        (None, "zeros"),
        (None, 0),
        (None, normal(0, 4, 3)),
        (None, normal(1, 3, 4, 3).numpy()),
        (None, {"weights": normal(2, 5, 3, 4, 3)}),
        (KeyQuery(2), {"key": normal(3, 4, 2)}),
        (KeyQuery(2), {"query": normal(3, 6, 3, 3, 2)}),
    ],
    ids=str,
)
def test_given_starts_are_those_of_fit(kind: Any, initial: Any) -> None:
    found = initial_parameters(DATA, kind, seed=3, initial=initial)
    for name, value in fit(DATA, parameterization=kind, seed=3, initial=initial, steps=0).parameters.items():
        assert found[name].equal(value)


def test_precision_and_training_from_it() -> None:
    single = DATA.to(dtype=torch.float32)
    start = initial_parameters(single, KeyQuery(2), seed=4)
    assert all(value.dtype == torch.float32 for value in start.values())
    whole = fit(single, parameterization=KeyQuery(2), steps=20, seed=4)
    assert fit(single, parameterization=KeyQuery(2), steps=20, initial=start).weights.equal(whole.weights)


def test_needs_a_prediction_head_only_to_train_it() -> None:
    bare = TokenDataset(DATA.tokens, DATA.queries, DATA.labels)
    assert initial_parameters(bare)["weights"].equal(initial_parameters(DATA)["weights"])
    with pytest.raises(ValueError, match="a prediction head is needed"):
        initial_parameters(bare, train_head=True)
    matrix = normal(5, 4, 2)
    assert initial_parameters(bare, head=ReluHead(matrix), train_head=True)["head"].equal(matrix.expand(3, 4, 2))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"data": DATA.tokens}, "data must be a TokenDataset; got Tensor"),
        ({"parameterization": "weights"}, r"parameterization must be Weights\(\) or KeyQuery\(rank\); got 'weights'"),
        ({"seed": -1}, "seed must be an integer of at least 0"),
        ({"starts": 0}, "starts must be a positive integer or None; got 0"),
        ({"initial": "ones"}, "initial must be 'zeros', a tensor or a mapping of tensors; got 'ones'"),
        ({"initial": np.zeros((3, 4))}, "initial weights must have shape"),
        ({"initial": {"head": np.zeros(4)}}, "initial names 'head', which is not trained"),
        ({"initial": "zeros", "parameterization": KeyQuery(2)}, "both zero, a saddle that descent never leaves"),
    ],
)
def test_refuses_what_fit_refuses(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        initial_parameters(**{"data": DATA, **options})


# ------------------------------------------------------------------- through fit


def test_seeds() -> None:
    one, same, other = (initial_parameters(DATA, seed=seed)["weights"] for seed in (0, 0, 1))
    assert one.equal(same)
    assert not one.equal(other)
    assert one.abs().max() <= 1 / np.sqrt(DATA.d)
    listed = initial_parameters(DATA, seed=[4, 5, 6])["weights"]
    assert listed[1].equal(initial_parameters(DATA[1], seed=5)["weights"])
    before = torch.random.get_rng_state()
    fit(DATA, steps=5, starts=2)
    assert torch.random.get_rng_state().equal(before)


@pytest.mark.parametrize("engine", [TorchEngine(), CompiledEngine()], ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("parameterization", [None, KeyQuery(2)], ids=["W", "KQ"])
def test_starts_equal_separate_runs(engine: Engine, parameterization: Any) -> None:
    together = fit(DATA, starts=4, steps=25, parameterization=parameterization, engine=engine)
    begin = initial_parameters(DATA, parameterization, starts=4)
    for start in range(4):
        own = {name: value[start] for name, value in begin.items()}
        alone = fit(DATA, initial=own, steps=25, parameterization=parameterization, engine=engine)
        assert_close(together.weights[start], alone.weights, 1e-11)
    assert not begin[next(iter(begin))][0].equal(begin[next(iter(begin))][1])


def test_the_first_of_several_starts_is_the_single_one() -> None:
    assert initial_parameters(DATA, starts=3)["weights"][0].equal(initial_parameters(DATA)["weights"])


def test_given_initials() -> None:
    assert fit(DATA, initial="zeros", steps=0).weights.abs().max() == 0
    assert fit(DATA, initial=0, steps=0, starts=2).weights.shape == (2, 3, 4, 3)
    one = normal(0, 4, 3)
    assert fit(DATA, initial=one, steps=0).weights.equal(one.expand(3, 4, 3))
    assert fit(DATA, initial=one.numpy(), steps=0).weights.equal(one.expand(3, 4, 3))
    each, many = normal(1, 3, 4, 3), normal(2, 5, 3, 4, 3)
    assert fit(DATA, initial=each, steps=0).weights.equal(each)
    assert fit(DATA, initial=many, steps=0).weights.equal(many)
    key = normal(3, 4, 2)
    half = fit(DATA, initial={"key": key}, parameterization=KeyQuery(2), steps=0)
    assert half.parameters["key"].equal(key.expand(3, 4, 2))
    assert half.parameters["query"].abs().max() > 0
