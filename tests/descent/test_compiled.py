"""The compiled engine against the PyTorch one, its exponential against mpmath, and what it refuses."""

from __future__ import annotations

from typing import Any

import mpmath as mp
import numpy as np
import pytest
import torch
from numba import njit
from torch import Tensor

from attsvm import (
    Adam,
    Exponential,
    Frobenius,
    GradientDescent,
    KeyQuery,
    Logistic,
    MaxEntry,
    NormalizedGradientDescent,
    ReluHead,
    Run,
    Spectral,
    SteepestDescent,
    TokenDataset,
    fit,
    initial_parameters,
)
from attsvm.attention import Linear, Log
from attsvm.data import random_sphere
from attsvm.descent import (
    CompiledEngine,
    Constant,
    Geometric,
    InverseSqrt,
    Lion,
    LipschitzStep,
    NewtonSchulzDescent,
    TorchEngine,
)
from attsvm.descent.engines.numba.lanes import exponential, load, store
from cases import Case, every_case

from .reference import assert_close, normal


def both(data: TokenDataset, **options: Any) -> tuple[Run, Run]:
    """The same run on both engines."""
    ours, peer = (fit(data, engine=engine, **options) for engine in (CompiledEngine(), TorchEngine()))
    return ours, peer


def worst_error(found: Tensor, expected: Tensor) -> float:
    """The largest relative error of any matrix of a batch."""
    each = torch.linalg.matrix_norm(found - expected) / torch.linalg.matrix_norm(expected).clamp(min=1e-300)
    return float(each.max())


def masked(data: TokenDataset, seed: int) -> TokenDataset:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, data.T + 1, (*data.batch_shape, data.n))
    mask = torch.from_numpy(np.arange(data.T) < lengths[..., None])
    return TokenDataset(data.tokens, data.queries, data.labels, mask=mask, head=data.head)


def test_comparison_can_fail() -> None:
    one = torch.eye(2).expand(3, 2, 2)
    other = one.clone()
    other[1, 0, 0] += 1e-3
    assert worst_error(one, one) == 0
    assert worst_error(other, one) > 1e-4


# --------------------------------------------------------------------------- W


@pytest.mark.parametrize(
    "optimizer",
    [
        NormalizedGradientDescent(0.1),
        SteepestDescent(Frobenius(), 0.1),
        SteepestDescent(MaxEntry(), 0.05),
        GradientDescent(1.0),
        GradientDescent(LipschitzStep()),
        NormalizedGradientDescent(InverseSqrt(0.5)),
        NormalizedGradientDescent(Geometric(0.05, 1.002)),
        NormalizedGradientDescent(Constant(0.1)),
        NormalizedGradientDescent(0.1, weight_decay=0.02),
        GradientDescent(InverseSqrt(1.0), weight_decay=0.1),
        Adam(0.02),
        Adam(0.02, beta1=0.0, epsilon=1e-6, weight_decay=0.1),
    ],
    ids=repr,
)
def test_weights_agree_for_500_steps(optimizer: Any) -> None:
    data = random_sphere(n=6, T=8, d=10, batch=11, seed=0)  # 11 is no multiple of the eight lanes
    ours, peer = both(data, optimizer=optimizer, steps=500, record=100)
    assert worst_error(ours.weights, peer.weights) < 1e-10
    assert torch.allclose(ours.history.risk, peer.history.risk, rtol=1e-10)
    assert ours.selected.equal(peer.selected)


@pytest.mark.parametrize("loss", [Logistic(), Exponential(), Linear()], ids=repr)
@pytest.mark.parametrize("optimizer", [NormalizedGradientDescent(0.1), GradientDescent(0.5)], ids=repr)
def test_losses_and_masks(loss: Any, optimizer: Any) -> None:
    data = masked(random_sphere(n=5, T=6, d=4, dq=3, batch=9, seed=1), seed=2)
    ours, peer = both(data, optimizer=optimizer, loss=loss, steps=300)
    assert worst_error(ours.weights, peer.weights) < 1e-10


@pytest.mark.parametrize("size", [0.0, 30.0])
@pytest.mark.parametrize("optimizer", [NormalizedGradientDescent(0.1), GradientDescent(0.5)], ids=repr)
def test_next_token_data(size: float, optimizer: Any) -> None:
    """The log of the attention on the right tokens, from starts where other tokens have nearly all of it too."""
    data = masked(random_sphere(n=5, T=6, d=7, batch=9, seed=30), seed=31)
    right = (normal(32, 9, 5, 6, 1) > 0).double()
    right[:, :, 0] = 1.0  # every input has one, and the first token is real
    ones = torch.ones(9, 1, dtype=torch.float64)
    words = TokenDataset(data.tokens, data.queries, torch.ones(9, 5), mask=data.mask, values=right, head=ones)
    start = size * normal(33, 9, 7, 7)
    ours, peer = both(words, optimizer=optimizer, loss=Log(), initial=start, steps=100)
    assert worst_error(ours.weights, peer.weights) < 1e-11
    assert float(torch.linalg.matrix_norm(peer.weights - start).median()) > 0.1  # or nothing was compared


@pytest.mark.parametrize(
    ("batch", "starts"), [(1, 1), (1, 3), (1, 17), (3, 5), (7, 2), (8, 1), (9, 3), (None, 4), (None, None)]
)
def test_lanes_hold_every_mix_of_batch_and_starts(batch: int | None, starts: int | None) -> None:
    data = random_sphere(n=3, T=4, d=3, batch=batch, seed=3)
    ours, peer = both(data, starts=starts, steps=100)
    assert ours.weights.shape == peer.weights.shape
    assert worst_error(ours.weights, peer.weights) < 1e-11


def test_threads_change_nothing() -> None:
    data = random_sphere(n=3, T=4, d=3, batch=40, seed=4)
    one, three = (fit(data, steps=100, engine=CompiledEngine(threads=threads)) for threads in (1, 3))
    assert one.weights.equal(three.weights)


def test_scores_up_to_its_limit() -> None:
    data = random_sphere(n=4, T=5, d=4, batch=8, seed=5)
    data = data.with_head(data.head * 190)
    for loss in (Logistic(), Exponential()):
        for size in (0.0, 1.0, 30.0, 1e3):
            start = size * normal(6, 50, 8, 4, 4)
            ours, peer = both(data, loss=loss, optimizer=NormalizedGradientDescent(0.1), initial=start, steps=1)
            assert worst_error(ours.weights - start, peer.weights - start) < 1e-12 * (10 + size)


@pytest.mark.parametrize("norm", [1e2, 1e3, 1e5])
def test_far_out(norm: float) -> None:
    """One step from many far-out points, where attention is one to the last bit."""
    data = random_sphere(n=6, T=8, d=10, batch=8, seed=6)
    settled = fit(data, steps=1000).weights
    start = norm * settled / torch.linalg.matrix_norm(settled)[..., None, None]
    ours, peer = both(data, optimizer=NormalizedGradientDescent(norm), initial=start, steps=1)
    assert worst_error(ours.weights - start, peer.weights - start) < 1e-14 * norm + 1e-12


def test_growing_steps_amplify_rounding() -> None:
    """Why growing steps are compared one at a time: a step much longer than a margin hops between support rows.

    The same engine, started twice 1e-15 apart, ends up percents apart while every quantity of interest agrees.
    """
    data = random_sphere(n=6, T=8, d=10, batch=8, seed=6)
    start = normal(7, 8, 10, 10) / 3
    optimizer = NormalizedGradientDescent(Geometric(0.1, 1.05))
    first, second = (fit(data, optimizer=optimizer, initial=at, steps=250) for at in (start, start * (1 + 1e-15)))
    assert first.norm.min() > 1e4
    assert worst_error(first.weights, second.weights) > 1e-6
    assert first.selected.equal(second.selected)


@every_case
@pytest.mark.parametrize("parameterization", [None, KeyQuery(2)], ids=["W", "KQ"])
def test_every_case(case: Case, parameterization: Any) -> None:
    if case.data.queries_per_sequence > 1 or case.name == "badly scaled":
        pytest.skip("refused: shared tokens, or scores beyond the kernel's range")
    ours, peer = both(case.data, parameterization=parameterization, optimizer=GradientDescent(0.01), steps=50)
    assert worst_error(ours.weights, peer.weights) < 1e-11
    assert ours.stalled.equal(peer.stalled)


# ------------------------------------------------------------------- K and Q


@pytest.mark.parametrize(
    "optimizer",
    [
        NormalizedGradientDescent(0.1),
        GradientDescent(0.5),
        SteepestDescent(MaxEntry(), 0.02),
        Adam(0.02, weight_decay=0.1),
    ],
    ids=repr,
)
@pytest.mark.parametrize("rank", [None, 1, 3])
def test_factors(optimizer: Any, rank: int | None) -> None:
    data = masked(random_sphere(n=4, T=5, d=5, dq=4, batch=9, seed=7), seed=8)
    ours, peer = both(data, parameterization=KeyQuery(rank), optimizer=optimizer, steps=25)
    for name in ("key", "query"):
        assert worst_error(ours.parameters[name], peer.parameters[name]) < 1e-9
    assert torch.allclose(ours.weights, ours.parameters["key"] @ ours.parameters["query"].mT, rtol=1e-14, atol=1e-15)


def test_normalized_steps_on_factors_amplify_rounding() -> None:
    """Why factors are compared over few steps: a start moved by 1e-15 ends up elsewhere.

    Once a normalized step is longer than the distance to the valley of the factors, K and Q hop across it and each hop
    multiplies a difference. The same engine, started twice 1e-15 apart, shows it: no engine can do better. W has no
    such valley, and there the difference stays.
    """
    data = random_sphere(n=6, T=8, d=10, batch=8, seed=9)
    start = {"key": normal(10, 8, 10, 10) / 3, "query": normal(11, 8, 10, 10) / 3}
    moved = {"key": start["key"] + 1e-15 * normal(12, 8, 10, 10), "query": start["query"]}
    few, many = (
        worst_error(
            *(
                fit(data, parameterization=KeyQuery(), initial=initial, steps=steps).weights
                for initial in (moved, start)
            )
        )
        for steps in (20, 2000)
    )
    assert few < 1e-12
    assert many > 1e3 * few
    weights = normal(13, 8, 10, 10)
    still = worst_error(
        *(fit(data, initial=initial, steps=2000).weights for initial in (weights * (1 + 1e-15), weights))
    )
    assert still < 1e-12


# ----------------------------------------------------------- where numbers end


@pytest.mark.parametrize("parameterization", [None, KeyQuery(2)], ids=["W", "KQ"])
def test_overflow_is_held_at_the_last_finite_weights(parameterization: Any) -> None:
    data = random_sphere(n=3, T=4, d=3, batch=2, seed=14)
    options = {
        "parameterization": parameterization,
        "steps": 400,
        "record": 400,
        "optimizer": NormalizedGradientDescent(Geometric(1.0, 10.0, largest=1e307)),
    }
    ours, peer = both(data, **options)
    for run in (ours, peer):
        assert bool(run.overflowed.all())
        assert bool(
            torch.isfinite(run.weights).all()
            if parameterization is None
            else torch.isfinite(run.parameters["key"]).all()
        )
        assert "would have left the range of floating point" in run.notes[0]
    assert torch.linalg.matrix_norm(ours.parameters[next(iter(ours.parameters))]).min() > 1e100


def test_overflowing_elements_do_not_touch_the_others() -> None:
    data = random_sphere(n=3, T=4, d=3, batch=3, seed=15)
    tokens = data.tokens.clone()
    tokens[1] *= 1e200
    start = torch.ones(3, 3, dtype=torch.float64)
    wild = TokenDataset(tokens, data.queries, data.labels, values=data.tokens, head=data.head)
    start = torch.stack([start, 1e200 * start, start])
    for run in both(wild, initial=start, steps=50):
        assert run.overflowed.tolist() == [False, True, False]
        assert run.weights[1].equal(start[1])
        assert bool(torch.isfinite(run.weights).all())
    alone = fit(data[0], initial=start[0], steps=50)
    assert_close(fit(wild, initial=start, steps=50).weights[0], alone.weights)


# -------------------------------------------------------------- the exponential


@njit
def _exponentials(x, out):  # type: ignore[no-untyped-def]
    for row in range(x.shape[0]):
        store(out, row, exponential(load(x, row)))


def test_exponential_to_one_unit_in_the_last_place() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [
            rng.uniform(-708, 708, 4000),
            rng.uniform(-1, 1, 2000),
            rng.uniform(-1e-8, 1e-8, 500),
            np.log(2) * (np.arange(-1000, 1000) + 0.5),
            [0.0, -0.0, 708.0, -707.999, 1e-300, -1e-300],
        ]
    )
    x = np.resize(x, (len(x) // 8 + 1) * 8).reshape(-1, 8)
    out = np.empty_like(x)
    _exponentials(x, out)
    with mp.workdps(40):
        error = max(
            abs((mp.mpf(float(got)) - mp.exp(mp.mpf(float(at)))) / mp.mpf(float(np.spacing(got))))
            for at, got in zip(x.ravel(), out.ravel(), strict=True)
        )
    assert error <= 1.0
    assert np.abs(out - np.exp(x)).max() <= 2 * np.spacing(np.exp(708.0))


def test_exponential_beyond_its_range() -> None:
    x = np.array([[-708.5, -1e4, -1e300, -np.inf, -709.0, -745.0, -1e5, -800.0]])
    out = np.empty_like(x)
    _exponentials(x, out)
    assert out.tolist() == [[0.0] * 8]


# ------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"optimizer": Lion(0.1)}, "it knows gradient, normalized, sign and spectral descent without momentum"),
        ({"optimizer": SteepestDescent(MaxEntry(), 0.1, momentum=0.5)}, "without momentum"),
        ({"optimizer": SteepestDescent(Spectral(), 0.1, momentum=0.9)}, "without momentum, and Adam"),
        ({"optimizer": NewtonSchulzDescent(0.1)}, "it knows gradient, normalized, sign and spectral descent"),
        ({"optimizer": GradientDescent(0.1, weight_decay=0.1, clip=3.0)}, "it knows no QK-clip"),
        ({"head": torch.nn.Linear(3, 1).double()}, "it knows LinearHead, ReluHead and QuadraticHead"),
        ({"head": ReluHead(200 * np.eye(3)), "loss": Exponential()}, "scores beyond 200"),
        ({"train_head": True}, "it needs a fixed head"),
        ({"loss": torch.neg}, "it knows Logistic, Exponential, Linear and Log losses"),
        ({"batch_size": 2}, "it takes no mini-batches"),
        ({"head": np.array([1e3, 0.0, 0.0])}, "scores beyond 200 need the scaled slopes of TorchEngine"),
    ],
)
def test_refusals(options: dict[str, Any], words: str) -> None:
    data = random_sphere(n=3, T=4, d=3, seed=16)
    with pytest.raises(ValueError, match=f"CompiledEngine cannot run this task: .*{words}"):
        fit(data, engine=CompiledEngine(), steps=2, **options)
    fit(data, steps=2, **options)  # and the other engine takes it


def test_refuses_shared_tokens_and_float32() -> None:
    causal = TokenDataset.causal(normal(17, 1, 3, 3), [[1, -1, 1]], head=normal(18, 3))
    with pytest.raises(
        ValueError, match="CompiledEngine cannot run this task: it does not share tokens between queries"
    ):
        fit(causal, engine=CompiledEngine(), steps=2)
    single = random_sphere(n=3, T=4, d=3, seed=16, dtype=torch.float32)
    with pytest.raises(ValueError, match="CompiledEngine cannot run this task: it computes in float64"):
        fit(single, engine=CompiledEngine(), steps=2)


def test_tiny_data_go_where_the_gradient_is_scaled() -> None:
    """Scores and tokens of 1e-150 make gradients of 1e-300: normalized descent must still move."""
    data = random_sphere(n=3, T=4, d=5, seed=1)
    small = TokenDataset(data.tokens * 1e-150, data.queries, data.labels, head=data.head)
    run = fit(small, steps=20)
    assert not bool(run.stalled)
    assert torch.linalg.matrix_norm(run.weights - initial_parameters(small)["weights"]).item() > 1
    with pytest.raises(ValueError, match="data as small as these need the scaled gradient of TorchEngine"):
        fit(small, steps=20, engine=CompiledEngine())
