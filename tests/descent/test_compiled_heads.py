"""ReLU and quadratic heads on the compiled engine: against autograd, the PyTorch engine, and heads that are linear."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from attention.reference import plain_risk
from attsvm import (
    Exponential,
    GradientDescent,
    KeyQuery,
    LinearHead,
    Logistic,
    MaxEntry,
    NormalizedGradientDescent,
    QuadraticHead,
    ReluHead,
    SteepestDescent,
    TokenDataset,
    Weights,
    fit,
    initial_parameters,
)
from attsvm.attention import Head, Linear
from attsvm.data import random_sphere
from attsvm.descent import CompiledEngine, InverseSqrt, Saturated, Settled, TorchEngine
from attsvm.descent.engines.base import Engine, choose_engine
from attsvm.descent.task import Task

from .reference import assert_close, normal
from .test_compiled import both, masked, worst_error
from .test_resume import TENSORS

BATCH = 11  # no multiple of the eight lanes


def relu(dv: int, batch: int = BATCH, width: int | None = None) -> ReluHead:
    """V of Frobenius norm 1, one a data set, as in the papers' experiment."""
    matrix = normal(1, batch, dv, width or dv)
    return ReluHead(matrix / torch.linalg.matrix_norm(matrix)[:, None, None])


def quadratic(dv: int, batch: int = BATCH) -> QuadraticHead:
    return QuadraticHead(normal(2, batch, dv), torch.linspace(0, 1, batch, dtype=torch.float64))


HEADS: dict[str, Callable[[int], Head]] = {"relu": relu, "quadratic": quadratic}
every_head = pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
every_kind = pytest.mark.parametrize("kind", [Weights(), KeyQuery(2)], ids=["W", "KQ"])


# ------------------------------------------------------------------ truths


@every_kind
def test_relu_is_what_autograd_descends(kind: Any) -> None:
    """The formula as it reads, autograd and normalized steps, one data set at a time."""
    data = random_sphere(n=3, T=4, d=5, batch=BATCH, seed=3)
    head = relu(5)
    run = fit(data, head, parameterization=kind, engine=CompiledEngine(), steps=60)
    start = initial_parameters(data, kind)
    for b in range(BATCH):
        now = {name: value[b].clone() for name, value in start.items()}
        for _ in range(60):
            leaves = {name: value.requires_grad_(True) for name, value in now.items()}
            risk = plain_risk(data[b], kind.weights(leaves), lambda x, V=head.matrix[b]: torch.relu(x @ V).sum(-1))
            gradients = torch.autograd.grad(risk, list(leaves.values()))
            steps = {name: 0.1 * g / g.norm() if g.norm() > 0 else g for name, g in zip(leaves, gradients, strict=True)}
            now = {name: (value - steps[name]).detach() for name, value in leaves.items()}
        for name, value in now.items():
            assert_close(run.parameters[name][b], value, 1e-10)


@every_kind
def test_relu_of_positive_units_is_linear(kind: Any) -> None:
    """Where every unit is on for every token, 1^T relu(V^T x) = (V 1)^T x."""
    data = random_sphere(n=4, T=5, d=6, batch=BATCH, seed=4)
    values = data.tokens.abs()
    data = TokenDataset(data.tokens, data.queries, data.labels, values=values)
    matrix = normal(5, BATCH, 6, 3).abs()
    bent = fit(data, ReluHead(matrix), parameterization=kind, engine=CompiledEngine(), steps=30)
    straight = fit(data, LinearHead(matrix.sum(-1)), parameterization=kind, engine=CompiledEngine(), steps=30)
    assert worst_error(bent.weights, straight.weights) < 1e-10


def test_quadratic_without_penalty_is_linear() -> None:
    data = random_sphere(n=4, T=5, d=6, batch=BATCH, seed=4)
    vector = normal(6, BATCH, 6)
    bent = fit(data, QuadraticHead(vector, 0.0), engine=CompiledEngine(), steps=300)
    straight = fit(data, LinearHead(vector), engine=CompiledEngine(), steps=300)
    assert worst_error(bent.weights, straight.weights) < 1e-11


def test_a_unit_at_its_kink_is_off() -> None:
    """At W = 0 both tokens weigh 1/2; the first unit reads 0 there, and its slope is 0 as in `ReluHead`."""
    tokens = torch.tensor([[[1.0, 2.0], [-1.0, 1.0]]], dtype=torch.float64)
    data = TokenDataset(tokens, torch.ones(1, 1, dtype=torch.float64), [1])
    start = torch.zeros(2, 1, dtype=torch.float64)
    for engine in (CompiledEngine(), TorchEngine()):
        optimizer = GradientDescent(1.0)
        off = fit(data, ReluHead(np.array([[3.0], [0.0]])), initial=start, optimizer=optimizer, steps=1, engine=engine)
        assert bool(off.stalled)
        assert off.weights.equal(start)
        both_units = ReluHead(np.array([[3.0, 0.0], [0.0, 1.0]]))
        run = fit(data, both_units, initial=start, optimizer=optimizer, steps=1, engine=engine)
        # f = 1.5 and u = (2, 1): the gradient in the logits is -sigmoid(-f) / 4 * (1, -1).
        push = 1 / (1 + np.exp(1.5)) / 4
        assert_close(run.weights, torch.tensor([[2 * push], [push]], dtype=torch.float64), 1e-14)


@every_kind
def test_dead_inputs_do_not_pull(kind: Any) -> None:
    """An input all of whose units are off has no gradient: the others train as if it were not there."""
    data = random_sphere(n=3, T=4, d=4, batch=BATCH, seed=7)
    values = data.tokens.abs()
    values[:, 1] *= -1  # the second input is dead under a non-negative V
    half_dead = TokenDataset(data.tokens, data.queries, data.labels, values=values)
    live = half_dead.take_inputs(torch.tensor([0, 2]).expand(BATCH, 2))
    head = ReluHead(normal(8, BATCH, 4, 3).abs())
    run, alone = (
        fit(each, head, parameterization=kind, engine=CompiledEngine(), steps=40) for each in (half_dead, live)
    )
    assert worst_error(run.weights, alone.weights) < 1e-9
    assert not bool(run.stalled.any())
    dead = TokenDataset(data.tokens, data.queries, data.labels, values=-data.tokens.abs())
    for engine in (CompiledEngine(), TorchEngine()):
        still = fit(dead, head, parameterization=kind, engine=engine, steps=40)
        assert bool(still.stalled.all())
        assert still.weights.equal(still.history.weights[0])


# ------------------------------------------------------------ the other engine


@every_head
@every_kind
@pytest.mark.parametrize(
    "optimizer",
    [
        NormalizedGradientDescent(0.1),
        NormalizedGradientDescent(InverseSqrt(0.5)),
        GradientDescent(0.5),
        SteepestDescent(MaxEntry(), 0.05),
    ],
    ids=repr,
)
def test_engines_agree(head: Any, kind: Any, optimizer: Any) -> None:
    """Over few steps where normalized steps hop: on factors, and around the stationary point of a quadratic head."""
    data = random_sphere(n=3, T=4, d=6, batch=BATCH, seed=9)
    steps = 25 if kind == KeyQuery(2) else 50 if head is quadratic else 300
    ours, peer = both(data, head=head(6), parameterization=kind, optimizer=optimizer, steps=steps)
    assert worst_error(ours.weights, peer.weights) < 1e-9
    assert float((ours.attention - peer.attention).abs().max()) < 1e-9
    assert ours.selected.equal(peer.selected)
    assert ours.stalled.equal(peer.stalled)
    assert torch.allclose(ours.risk, peer.risk, rtol=1e-9)


@every_head
@pytest.mark.parametrize("loss", [Logistic(), Exponential(), Linear()], ids=repr)
@pytest.mark.parametrize("optimizer", [NormalizedGradientDescent(0.1), GradientDescent(0.5)], ids=repr)
def test_losses_masks_and_values(head: Any, loss: Any, optimizer: Any) -> None:
    plain = masked(random_sphere(n=5, T=6, d=4, dq=3, batch=BATCH, seed=10), seed=11)
    data = TokenDataset(plain.tokens, plain.queries, plain.labels, mask=plain.mask, values=normal(12, BATCH, 5, 6, 7))
    ours, peer = both(data, head=head(7), optimizer=optimizer, loss=loss, steps=40)
    assert worst_error(ours.weights, peer.weights) < 1e-9


@pytest.mark.parametrize(("batch", "starts", "width"), [(1, 1, 1), (1, 17, 5), (3, 5, 20), (9, 2, 2), (None, None, 3)])
def test_lanes_starts_and_widths(batch: int | None, starts: int | None, width: int) -> None:
    data = random_sphere(n=3, T=2, d=3, batch=batch, seed=13)
    head = ReluHead(normal(14, 3, width))  # one head for the whole batch
    ours, peer = both(data, head=head, starts=starts, steps=60)
    assert worst_error(ours.weights, peer.weights) < 1e-9
    assert ours.stalled.equal(peer.stalled)


@every_head
@pytest.mark.parametrize("norm", [1e2, 1e3, 1e5])
def test_far_out(head: Any, norm: float) -> None:
    """One step from far-out points, where attention is one to the last bit and the gradient below any float."""
    data = random_sphere(n=3, T=4, d=10, batch=BATCH, seed=15)
    start = normal(16, BATCH, 10, 10)
    start *= norm / torch.linalg.matrix_norm(start)[:, None, None]
    ours, peer = both(data, head=head(10), optimizer=NormalizedGradientDescent(norm), initial=start, steps=1)
    assert worst_error(ours.weights - start, peer.weights - start) < 1e-14 * norm + 1e-12
    assert ours.stalled.equal(peer.stalled)


def test_hopping_over_a_finite_component_amplifies_rounding() -> None:
    """Why long runs are compared by what they select: the same engine, started twice 1e-15 apart, drifts as well.

    A constant normalized step is longer than the distance to the finite component, so runs hop around it; a step that
    falls settles there, and then both engines agree to round-off after 2001 steps too.
    """
    data = random_sphere(n=3, T=4, d=4, batch=64, seed=0)
    head = relu(4, 64)
    start = initial_parameters(data)["weights"]
    runs = [fit(data, head, initial=at, steps=2001, record=[2001]) for at in (start, start * (1 + 1e-15))]
    assert worst_error(runs[0].weights, runs[1].weights) > 1e-12
    assert runs[0].selected.equal(runs[1].selected)
    falling = NormalizedGradientDescent(InverseSqrt(0.5))
    ours, peer = both(data[:8], head=ReluHead(head.matrix[:8]), optimizer=falling, steps=2001, record=[2001])
    assert worst_error(ours.weights, peer.weights) < 1e-11


# ------------------------------------------------------- threads, stops, resuming


def test_threads_change_nothing() -> None:
    data = random_sphere(n=3, T=4, d=4, batch=40, seed=17)
    one, three = (fit(data, relu(4, 40), steps=100, engine=CompiledEngine(threads=threads)) for threads in (1, 3))
    assert one.weights.equal(three.weights)


@every_head
@every_kind
@pytest.mark.parametrize("stop", [None, Saturated(0.5, every=7), Settled(0.05, growth=1.2, every=3)], ids=repr)
def test_stops_and_resumes_bit_for_bit(head: Any, kind: Any, stop: Any) -> None:
    data = random_sphere(n=3, T=4, d=4, batch=BATCH, seed=18)
    options = {"parameterization": kind, "stop": stop, "engine": CompiledEngine(), "record": [60]}
    whole = fit(data, head(4), steps=60, **options)
    for interrupted in (1, 21, 26):
        part = fit(data, head(4), steps=interrupted, **options | {"record": [interrupted]})
        resumed = fit(data, head(4), steps=60, resume=part, **options)
        for name in TENSORS:
            assert getattr(resumed, name).equal(getattr(whole, name)), name
    peer = fit(data, head(4), steps=60, **options | {"engine": TorchEngine()})
    assert whole.steps_taken.equal(peer.steps_taken)
    if stop is not None:
        assert int(whole.steps_taken.min()) < 60  # or nothing was tested


# ---------------------------------------------------------------- who runs it


def engine_for(data: TokenDataset, head: Head, **changes: Any) -> Engine:
    parts = (data.flatten(), head.flatten(), Logistic(), Weights(), NormalizedGradientDescent(0.1))
    return choose_engine(None, Task(*parts, **changes), 1)[0]


@every_head
def test_chosen_by_itself(head: Any) -> None:
    data = random_sphere(n=3, T=4, d=4, batch=BATCH, seed=19)
    # A quadratic head must be asked for: where a token's pull vanishes to first order the kernel loses it.
    chosen = TorchEngine() if isinstance(head(4), QuadraticHead) else CompiledEngine()
    assert engine_for(data, head(4)) == chosen
    assert engine_for(data, head(4), ridge=1e-3) == chosen
    assert engine_for(data, head(4), train_head=True) == TorchEngine()


def test_very_wide_heads_and_large_scores_go_to_torch() -> None:
    data = random_sphere(n=3, T=4, d=4, batch=2, seed=20)
    assert engine_for(data, ReluHead(torch.ones(4, 10_000, dtype=torch.float64) / 1e4)) == TorchEngine()
    assert engine_for(data, ReluHead(torch.full((4, 2), 1e3, dtype=torch.float64))) == TorchEngine()


def test_a_head_of_ones_own_is_not_mistaken_for_its_parent() -> None:
    class Leaky(ReluHead):
        def output(self, values: Tensor) -> Tensor:
            return torch.nn.functional.leaky_relu(values @ self.matrix).sum(-1)

    data = random_sphere(n=3, T=4, d=4, batch=2, seed=21)
    assert engine_for(data, Leaky(torch.eye(4, dtype=torch.float64))) == TorchEngine()
