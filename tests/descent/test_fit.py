"""The fit loop: records, batches of data sets, mini-batches, stopping, what it says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from attsvm import (
    Adam,
    GradientDescent,
    KeyQuery,
    MaxEntry,
    ModuleHead,
    NormalizedGradientDescent,
    NormalizedMirrorDescent,
    PolyakDescent,
    QuadraticHead,
    ReluHead,
    Spectral,
    SteepestDescent,
    TokenDataset,
    fit,
    initial_parameters,
)
from attsvm.attention import evaluate
from attsvm.data import random_sphere
from attsvm.descent import CompiledEngine, Engine, Optimizer, Saturated, Settled, TorchEngine
from attsvm.descent.task import InputBatches
from attsvm.norms import direction_distance
from cases import Case, every_case

from .reference import assert_close, normal

DATA = random_sphere(n=4, T=5, d=4, dq=3, batch=3, seed=1)
OPTIMIZERS: tuple[Optimizer, ...] = (
    GradientDescent(0.5),
    NormalizedGradientDescent(0.1),
    SteepestDescent(MaxEntry(), 0.1, momentum=0.9),
    SteepestDescent(Spectral(), 0.1),
    NormalizedMirrorDescent(1.5, 0.1),
    Adam(0.1),
    PolyakDescent(),
)
every_optimizer = pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda one: type(one).__name__)
ENGINES: tuple[Engine, ...] = (TorchEngine(), CompiledEngine())
every_engine = pytest.mark.parametrize("engine", ENGINES, ids=lambda one: type(one).__name__)


# ----------------------------------------------------------------------- records


@pytest.mark.parametrize(
    ("record", "steps", "expected"),
    [
        (50, 200, [0, 50, 100, 150, 200]),
        (40, 100, [0, 40, 80, 100]),
        (1000, 30, [0, 30]),
        (1, 3, [0, 1, 2, 3]),
        ([1, 10], 20, [1, 10]),
        ([20, 3, 3], 20, [3, 20]),
        (range(0, 20, 7), 20, [0, 7, 14]),
        (np.array([0, 5]), 20, [0, 5]),
        (torch.tensor([4, 5]), 20, [4, 5]),
        ([], 20, []),
        (50, 0, [0]),
    ],
)
def test_recorded_steps(record: Any, steps: int, expected: list[int]) -> None:
    run = fit(DATA, steps=steps, record=record)
    assert run.history.step.tolist() == expected
    assert len(run.history) == len(expected)
    assert run.step == steps
    assert repr(run.history).startswith("History(")


@every_engine
@pytest.mark.parametrize(
    "options", [{}, {"parameterization": KeyQuery(2)}, {"starts": 2}, {"optimizer": GradientDescent(1.0)}], ids=str
)
def test_a_record_is_one_iterate(engine: Engine, options: dict[str, Any]) -> None:
    """Attention, risk and norm of each row are those of the row's weights, and the last row is the final iterate."""
    run = fit(DATA, steps=30, record=7, engine=engine, **options)
    history = run.history
    assert history.weights is not None
    for row, weights in enumerate(history.weights):
        seen = evaluate(DATA, weights)
        assert_close(history.attention[row], seen.attention)
        assert_close(history.risk[row], seen.risk)
        assert_close(history.norm[row], torch.linalg.matrix_norm(weights))
    for name in ("weights", "attention", "risk", "norm"):
        assert getattr(run, name).equal(getattr(history, name)[-1])


@every_engine
def test_records_do_not_depend_on_each_other(engine: Engine) -> None:
    """Recording often or seldom gives the same iterates, bit for bit."""
    often, seldom = (fit(DATA, steps=40, record=record, engine=engine) for record in (1, 40))
    assert often.weights.equal(seldom.weights)
    shorter = fit(DATA, steps=20, engine=engine)
    assert often.history.weights[20].equal(shorter.weights)


def test_keep() -> None:
    for keep in ([], ["risk"], ["norm", "weights"], ("attention",), {"parameters"}):
        history = fit(DATA, steps=10, record=5, keep=keep, parameterization=KeyQuery(2)).history
        for name in ("risk", "norm", "attention", "weights", "parameters"):
            assert (getattr(history, name) is not None) == (name in keep)
    history = fit(DATA, steps=10, record=5, keep=["parameters", "weights"], parameterization=KeyQuery(2)).history
    assert_close(history.parameters["key"] @ history.parameters["query"].mT, history.weights)


def test_shapes() -> None:
    for batch in (None, 2, (2, 3)):
        for starts in (None, 1, 4):
            data = random_sphere(n=3, T=4, d=5, dq=2, batch=batch, seed=0)
            run = fit(data, steps=4, record=2, starts=starts)
            lead = (*(() if starts is None else (starts,)), *data.batch_shape)
            assert run.weights.shape == (*lead, 5, 2)
            assert run.attention.shape == (*lead, 3, 4)
            assert run.selected.shape == (*lead, 3)
            assert run.risk.shape == run.norm.shape == run.stalled.shape == run.steps_taken.shape == lead
            assert run.history.weights.shape == (3, *lead, 5, 2)
            assert run.history.risk.shape == (3, *lead)


def test_float32() -> None:
    data = DATA.to(dtype=torch.float32)
    run = fit(data, steps=30)
    assert run.weights.dtype == torch.float32
    peer = fit(DATA, steps=30, initial=initial_parameters(data)["weights"].double())
    assert_close(run.weights.double(), peer.weights, 1e-3)


def test_progress_is_called() -> None:
    calls: list[tuple[int, int]] = []
    fit(DATA, steps=25, record=10, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(10, 25), (20, 25), (25, 25)]


def test_memory_is_bounded_by_what_is_recorded() -> None:
    few = fit(DATA, steps=200, record=[200], keep=["risk"])
    kept = sum(value.numel() for value in (few.history.step, few.history.risk))
    assert kept == 1 + 3
    assert few.history.weights is None


# ------------------------------------------------------ batches and starts


@pytest.mark.parametrize(
    ("engine", "relative"), [(TorchEngine(), 1e-12), (CompiledEngine(), 1e-12)], ids=["torch", "compiled"]
)
def test_batch_100_equals_100_single_runs(engine: Engine, relative: float) -> None:
    data = random_sphere(n=4, T=5, d=4, batch=100, seed=3)
    together = fit(data, steps=250, record=250, seed=7, engine=engine)
    singles = range(100) if isinstance(engine, CompiledEngine) else range(0, 100, 20)
    for b in singles:
        alone = fit(data[b], steps=250, record=250, seed=[(7, b)], engine=engine)
        assert_close(together.weights[b], alone.weights, relative)
        assert_close(together.risk[b], alone.risk, relative)


def test_batch_100_equals_100_single_runs_on_factors() -> None:
    """Lanes never mix, so the compiled engine gives the same bits however the batch is cut."""
    data = random_sphere(n=4, T=5, d=4, batch=100, seed=3)
    options: dict[str, Any] = {"parameterization": KeyQuery(), "steps": 300, "record": 300, "engine": CompiledEngine()}
    together = fit(data, seed=7, **options)
    for b in range(100):
        alone = fit(data[b], seed=[(7, b)], **options)
        assert_close(together.parameters["key"][b], alone.parameters["key"])
        assert_close(together.parameters["query"][b], alone.parameters["query"])


@every_optimizer
def test_batch_equals_singles_for_every_optimizer(optimizer: Optimizer) -> None:
    together = fit(DATA, optimizer=optimizer, steps=60, seed=5)
    for b in range(3):
        assert_close(together.weights[b], fit(DATA[b], optimizer=optimizer, steps=60, seed=[(5, b)]).weights, 1e-11)


def test_starts_do_not_copy_the_data() -> None:
    """The engine sees the caller's own token tensor, and no operation makes one for each start."""
    from attention.test_linear_maps import Largest

    data = random_sphere(n=6, T=20, d=30, dq=2, batch=2, seed=0)
    starts = 8
    with Largest() as watch:
        fit(data, starts=starts, steps=2, engine=TorchEngine(), keep=["risk"])
    assert watch.elements < starts * data.tokens.numel()
    assert data.flatten().tokens.data_ptr() == data.tokens.data_ptr()


def test_training_leaves_the_start_and_the_data_alone() -> None:
    start, tokens = normal(1, 3, 4, 3), DATA.tokens.clone()
    before = start.clone()
    for engine in ENGINES:
        fit(DATA, initial=start, steps=10, engine=engine)
    assert start.equal(before)
    assert DATA.tokens.equal(tokens)


# ---------------------------------------------------------------- mini-batches


def test_each_pass_visits_each_input_once() -> None:
    batches = InputBatches(12, 4, ((0, 0), (0, 1)), torch.device("cpu"))
    orders = []
    for number in range(5):
        seen = torch.cat([batches.inputs(3 * number + place) for place in range(3)], 1)
        assert seen.sort(-1).values.equal(torch.arange(12).expand(2, 12))
        orders.append(seen)
    assert not orders[0].equal(orders[1])
    assert not orders[0][0].equal(orders[0][1])
    again = InputBatches(12, 4, ((0, 0), (0, 1)), torch.device("cpu"))
    assert again.inputs(7).equal(batches.inputs(7))


def test_a_pass_that_does_not_divide_drops_its_rest() -> None:
    batches = InputBatches(7, 3, ((0, 0),), torch.device("cpu"))
    for number in range(4):
        seen = torch.cat([batches.inputs(2 * number + place) for place in range(2)], 1).flatten().tolist()
        assert len(set(seen)) == 6


@every_optimizer
def test_full_batch_size_is_the_full_batch(optimizer: Optimizer) -> None:
    whole = fit(DATA, optimizer=optimizer, steps=12, engine=TorchEngine())
    shuffled = fit(DATA, optimizer=optimizer, steps=12, batch_size=4)
    assert_close(shuffled.weights, whole.weights, 1e-9)


def test_mini_batches_are_the_gradient_of_their_inputs() -> None:
    keys = tuple((0, b) for b in range(3))
    chosen = InputBatches(4, 2, keys, torch.device("cpu")).inputs(0)
    start = normal(4, 3, 4, 3)
    step = fit(DATA, initial=start, steps=1, batch_size=2, optimizer=GradientDescent(1.0))
    part = fit(DATA.take_inputs(chosen), initial=start, steps=1, optimizer=GradientDescent(1.0))
    assert_close(step.weights, part.weights)


def test_mini_batches_are_reproducible_and_independent_of_the_batch() -> None:
    one, two = (fit(DATA, steps=30, batch_size=2, seed=3) for _ in range(2))
    assert one.weights.equal(two.weights)
    assert not one.weights.equal(fit(DATA, steps=30, batch_size=2, seed=4).weights)
    assert_close(one.weights[1], fit(DATA[1], steps=30, batch_size=2, seed=[(3, 1)]).weights, 1e-11)


def test_mini_batches_of_shared_tokens() -> None:
    causal = TokenDataset.causal(normal(5, 2, 4, 3), torch.sign(normal(6, 2, 4)), head=normal(7, 3))
    run = fit(causal, steps=20, batch_size=4, optimizer=GradientDescent(0.1))
    assert bool(torch.isfinite(run.weights).all())


# -------------------------------------------------------------------- stopping


def test_saturated_stops_each_element_for_itself() -> None:
    rule = Saturated(tolerance=1e-6, every=5)
    together = fit(DATA, steps=3000, stop=rule)
    for b in range(3):
        alone = fit(DATA[b], steps=3000, stop=rule, seed=[(0, b)])
        assert int(together.steps_taken[b]) == int(alone.steps_taken)
        assert_close(together.weights[b], alone.weights)
        assert (1 - alone.attention.amax(-1)).max() <= 1e-6
        earlier = fit(DATA[b], steps=int(alone.steps_taken) - 5, seed=[(0, b)])
        assert (1 - earlier.attention.amax(-1)).max() > 1e-6
    assert len(set(together.steps_taken.tolist())) > 1
    assert together.step == int(together.steps_taken.max()) < 3000
    assert together.history.step[-1] == together.step


def test_settled_stops_when_a_doubling_no_longer_turns_it() -> None:
    rule = Settled(tolerance=1e-3, growth=2.0, every=10)
    run = fit(DATA, steps=20_000, stop=rule, record=10)
    assert bool((run.steps_taken < 20_000).all())
    for b in range(3):
        single = fit(DATA[b], steps=20_000, stop=rule, record=10, seed=[(0, b)])
        assert int(single.steps_taken) == int(run.steps_taken[b])
        last, norms = single.weights, single.history.norm
        half = int((norms <= norms[-1] / 2).nonzero().max())
        assert direction_distance(last, single.history.weights[half]) < 2e-3


def test_stopping_on_both_engines() -> None:
    rule = Saturated(1e-4, every=10)
    ours, peer = (fit(DATA, steps=2000, stop=rule, engine=engine) for engine in ENGINES[::-1])
    assert ours.steps_taken.equal(peer.steps_taken)
    assert_close(ours.weights, peer.weights, 1e-10)


def test_a_start_that_is_done_takes_no_step() -> None:
    run = fit(DATA, initial=fit(DATA, steps=3000).weights, steps=50, stop=Saturated(1e-3))
    assert run.steps_taken.tolist() == [0, 0, 0]
    assert run.step == 0


# -------------------------------------------------------- what cannot move, and says so


@every_engine
@every_optimizer
@pytest.mark.parametrize("kind", ["zero query", "one token"])
def test_a_zero_gradient_stays_put_and_says_so(optimizer: Optimizer, engine: Engine, kind: str) -> None:
    if isinstance(engine, CompiledEngine) and type(optimizer) not in (GradientDescent, NormalizedGradientDescent):
        pytest.skip("refused by the compiled engine")
    length = 1 if kind == "one token" else 4
    queries = torch.zeros(3, 2, dtype=torch.float64) if kind == "zero query" else normal(0, 3, 2)
    data = TokenDataset(normal(1, 3, length, 4), queries, [1, -1, 1], head=normal(2, 4))
    start = normal(3, 4, 2)
    run = fit(data, optimizer=optimizer, initial=start, steps=20, engine=engine)
    assert_close(run.weights, start, 1e-14)
    assert bool(run.stalled)
    assert run.notes == [
        "1 of 1 runs met a gradient of exactly zero and stayed where they were"
        " (zero queries, one token, or tied scores)."
    ]
    assert "stayed where they were" in repr(run)
    assert bool((run.attention == 1 / length).all())


def test_ordinary_runs_have_no_notes() -> None:
    run = fit(DATA, steps=50)
    assert run.notes == []
    assert not run.stalled.any()
    assert repr(run).startswith("Run(batch [3], 50 steps, risk ")


def test_invisible_tokens_are_noted() -> None:
    """A quadratic head that wants two tokens: the third falls below round-off on the way, and the run says so."""
    data = TokenDataset(np.eye(3)[None], np.ones((1, 1)), [1])
    head = QuadraticHead(np.array([1.0, 1.0, 0.0]), 1.0)
    start = torch.tensor([[0.0], [0.0], [-45.0]], dtype=torch.float64)
    run = fit(data, head, initial=start, steps=5, optimizer=GradientDescent(0.1))
    assert run.invisible.tolist() == [[False, False, True]]
    assert "have tokens whose pull has fallen below the round-off" in run.notes[0]


# ----------------------------------------------------------- every case, every trainer


@every_case
@pytest.mark.parametrize("parameterization", [None, KeyQuery(2)], ids=["W", "KQ"])
@every_optimizer
def test_every_trainer_runs_every_case(optimizer: Optimizer, parameterization: Any, case: Case) -> None:
    run = fit(case.data, optimizer=optimizer, parameterization=parameterization, steps=15, record=5)
    for value in (run.weights, run.risk, run.attention, run.history.weights, run.history.risk):
        assert bool(torch.isfinite(value).all())
    assert torch.allclose(run.attention.sum(-1), torch.ones((), dtype=torch.float64), rtol=1e-13)


@every_case
@pytest.mark.parametrize("head", ["relu", "quadratic", "module", "trained", "trained module"])
def test_every_head_runs_every_case(case: Case, head: str) -> None:
    data = case.data
    module = torch.nn.Sequential(torch.nn.Linear(data.dv, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)).double()
    given: Any = {
        "relu": ReluHead(normal(0, data.dv, 3)),
        "quadratic": QuadraticHead(normal(1, data.dv), 0.1),
        "module": module,
        "trained": None,
        "trained module": ModuleHead(module),
    }[head]
    run = fit(data, given, optimizer=NormalizedGradientDescent(0.01), train_head=head.startswith("trained"), steps=10)
    assert bool(torch.isfinite(run.weights).all())
    if head == "trained":
        assert run.parameters["head"].shape == (*data.batch_shape, data.dv)
    if head == "trained module":
        assert run.parameters["head.0.weight"].shape == (*data.batch_shape, 3, data.dv)


def test_trained_heads_differ_by_data_set() -> None:
    run = fit(DATA, normal(8, 4), train_head=True, steps=10, starts=2)
    heads: Tensor = run.parameters["head"]
    assert heads.shape == (2, 3, 4)
    assert not heads[0, 0].equal(heads[0, 1])
    alone = fit(
        DATA[1], normal(8, 4), train_head=True, steps=10, initial=initial_parameters(DATA, starts=2)["weights"][1, 1]
    )
    assert_close(heads[1, 1], alone.parameters["head"], 1e-11)


def test_small_runs_of_torch_take_their_steps_on_one_thread() -> None:
    """A second thread would only wait; larger runs and compiled ones have all, and nothing stays changed."""
    seen: list[int] = []

    class Watched(TorchEngine):
        def prepare(self, task, starts):
            seen.append(torch.get_num_threads())
            return super().prepare(task, starts)

    class Compiled(CompiledEngine):
        def prepare(self, task, starts):
            seen.append(torch.get_num_threads())
            return super().prepare(task, starts)

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for count, engine in ((2, Watched()), (1000, Watched()), (2, Compiled())):
            fit(random_sphere(n=4, T=6, d=6, batch=count, seed=5), steps=1, engine=engine)
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == [1, 2, 2]
