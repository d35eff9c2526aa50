"""The CUDA engine against TorchEngine: its kernel in plain Python, the whole of it where there is a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.kernels import Emulated

import attsvm
from attsvm.attention.prediction_heads import as_head
from attsvm.descent import CudaEngine, TorchEngine
from attsvm.descent.engines.base import Progress, choose_engine
from attsvm.descent.engines.cuda.engine import Launch
from attsvm.descent.task import Task
from lockstep import ORDERS, Order, can_compile, run_block

MUON = attsvm.SteepestDescent(attsvm.Spectral(), 0.1)
STEPS = 2  # in plain Python; the second step starts from what the first left


def random_data(
    n: int = 2, T: int = 3, d: int = 3, batch: int = 2, masked: bool = False, scale: float = 1.0
) -> attsvm.TokenDataset:
    draw = torch.Generator().manual_seed(n + 10 * T + 100 * d)
    mask = torch.rand(batch, n, T, generator=draw) > 0.4
    mask[..., 1] = True
    return attsvm.TokenDataset(
        torch.randn(batch, n, T, d, generator=draw, dtype=torch.float64),
        torch.randn(batch, n, d + 1, generator=draw, dtype=torch.float64),
        torch.where(torch.rand(batch, n, generator=draw) > 0.5, 1.0, -1.0).to(torch.float64),
        mask if masked else None,
        head=scale * torch.randn(batch, d, generator=draw, dtype=torch.float64),
    )


def task_of(
    data: attsvm.TokenDataset, parameterization: Any = None, optimizer: Any = None, loss: Any = None, **changes: Any
) -> Task:
    optimizer = optimizer or attsvm.NormalizedGradientDescent(0.1)
    fields = {
        "data": data,
        "head": as_head(None, data),
        "loss": loss or attsvm.Logistic(),
        "parameterization": parameterization or attsvm.Weights(),
        "optimizer": optimizer,
    }
    task = Task(**{**fields, **changes})
    # A factor for each data set, as from a schedule that depends on the data.
    factors = torch.linspace(0.5, 1.0, data.batch_shape[0], dtype=torch.float64, device=data.device)
    task.__dict__["factors"] = factors
    return task


def progress_of(task: Task, starts: int = 2, norm: float = 1.0) -> Progress:
    draw = torch.Generator().manual_seed(0)
    lead = (starts, task.data.batch_shape[0])
    parameters = {}
    for name, shape in task.parameterization.shapes(task.data).items():
        value = torch.randn(*lead, *shape, generator=draw, dtype=torch.float64)
        parameters[name] = norm * value.to(task.data.device)
    return Progress.beginning(parameters, task.optimizer)


def relu_head(d: int = 3, width: int = 4) -> attsvm.ReluHead:
    return attsvm.ReluHead(torch.randn(d, width, generator=torch.Generator().manual_seed(d), dtype=torch.float64))


def quadratic_head(d: int = 3) -> attsvm.QuadraticHead:
    draw = torch.Generator().manual_seed(d)
    return attsvm.QuadraticHead(torch.randn(d, generator=draw, dtype=torch.float64), 0.3)


# ----------------------------------------------------------- in plain Python

CASES: dict[str, dict[str, Any]] = {
    "weights": {"data": {"batch": 3}},
    "masked": {"data": {"masked": True}, "loss": attsvm.Exponential()},
    "key_query": {"parameterization": attsvm.KeyQuery(2), "data": {"masked": True}},
    "sign": {"optimizer": attsvm.SteepestDescent(attsvm.MaxEntry(), 0.1), "loss": attsvm.attention.Linear()},
    "plain": {"optimizer": attsvm.GradientDescent(0.7)},
    "plain_key_query": {"optimizer": attsvm.GradientDescent(0.7), "parameterization": attsvm.KeyQuery()},
    "shifted": {"norm": 1e4},
    "shifted_key_query": {"norm": 1e2, "parameterization": attsvm.KeyQuery(2)},
    "two_warps": {"threads": 64, "data": {"n": 4, "T": 18, "batch": 1}},
    "small_slopes": {"data": {"scale": 60.0}, "loss": attsvm.Exponential()},
    "relu": {"data": {"batch": 3}, "head": relu_head()},
    "relu_key_query": {"data": {"masked": True}, "head": relu_head(), "parameterization": attsvm.KeyQuery(2)},
    "relu_two_warps": {"threads": 64, "data": {"n": 4, "T": 18, "batch": 1}, "head": relu_head()},
    "quadratic": {"data": {"masked": True}, "head": quadratic_head(), "loss": attsvm.Exponential()},
    "shifted_relu": {"norm": 1e3, "head": relu_head()},
    "adam": {"optimizer": attsvm.Adam(0.1), "data": {"masked": True}},
    "adam_key_query": {"optimizer": attsvm.Adam(0.1, weight_decay=0.1), "parameterization": attsvm.KeyQuery(2)},
    "spectral": {"optimizer": MUON, "data": {"n": 3, "masked": True}},
    "spectral_few_inputs": {"optimizer": MUON, "data": {"n": 2, "d": 5}},
    "spectral_key_query": {"optimizer": MUON, "parameterization": attsvm.KeyQuery(2), "data": {"n": 4, "masked": True}},
    "spectral_key_query_few_inputs": {"optimizer": MUON, "parameterization": attsvm.KeyQuery(), "data": {"d": 4}},
    "spectral_ridge": {"optimizer": MUON, "ridge": 0.1, "data": {"d": 4}, "head": relu_head(4)},
    "spectral_two_warps": {"optimizer": MUON, "data": {"n": 33, "T": 2, "batch": 1}},
    "spectral_scratch": {"optimizer": MUON, "data": {"n": 2, "T": 2, "d": 56}},
    "stalled_spectral": {"optimizer": MUON, "data": {"scale": 0.0, "d": 2}},
    "ridge": {"ridge": 0.1, "head": relu_head(), "data": {"masked": True}},
    "decay": {"optimizer": attsvm.NormalizedGradientDescent(0.1, weight_decay=0.1)},
    "parts": {"data": {"T": 30, "d": 6, "masked": True}, "head": relu_head(6)},  # two threads for each input
    "parts_ridge": {"data": {"T": 30, "d": 6}, "ridge": 0.1, "threads": 64},
    "loops": {"data": {"masked": True}, "unrolled": False, "head": relu_head()},
    "loops_key_query": {"parameterization": attsvm.KeyQuery(2), "unrolled": False, "ridge": 0.1},
    "loops_parts": {"data": {"T": 40, "d": 6}, "unrolled": False},
    "loops_two_warps": {"threads": 64, "data": {"n": 4, "T": 18, "batch": 1}, "unrolled": False},
    "loops_adam": {"optimizer": attsvm.Adam(0.1), "data": {"masked": True}, "unrolled": False},
    "loops_spectral": {"optimizer": MUON, "data": {"n": 3, "masked": True}, "unrolled": False},
    "loops_quadratic": {"data": {"masked": True}, "head": quadratic_head(), "unrolled": False},
    "memory": {"data": {"n": 1, "T": 2, "d": 81}},  # more than registers hold
    "memory_key_query": {"data": {"n": 1, "T": 2, "d": 81}, "parameterization": attsvm.KeyQuery(2), "ridge": 0.1},
    "scratch": {"data": {"n": 2, "T": 2, "d": 56}, "optimizer": attsvm.Adam(0.1)},  # more than shared memory holds
    "overflowed": {"huge": 1.7e308},
    "overflowed_sign": {"huge": 1.7e308, "optimizer": attsvm.SteepestDescent(attsvm.MaxEntry(), 0.1)},
    "stalled": {"data": {"scale": 0.0}},
    "stalled_two_warps": {"data": {"scale": 0.0, "batch": 1}, "threads": 64, "parameterization": attsvm.KeyQuery(2)},
}


TWO = ("upwards", "downwards")
COMPILED = ("two_warps", "shifted", "relu_key_query", "adam_key_query", "spectral_key_query", "parts_ridge", "loops",
            "loops_parts", "loops_spectral", "memory_key_query", "overflowed", "stalled_two_warps")  # fmt: skip


class Lockstep:
    """In place of the kernel of a launch: its blocks one after the other, in an order of threads."""

    def __init__(self, launch: Launch, order: Order) -> None:
        self._function, self._space, self._order = launch._kernel, launch._plan.space, order

    def __getitem__(self, sizes: tuple[int, ...]) -> Any:
        blocks, threads, *_ = sizes

        def run(*arguments: np.ndarray) -> None:
            for block in range(blocks):
                run_block(self._function, arguments, threads, self._order, block=block, space=self._space)

        return run


def taken(case: str, kernel: Callable[[Launch], Any] | None = None) -> tuple[Progress, Progress]:
    """Where a case begins and where it ends, taken by TorchEngine or by what stands in place of the kernel."""
    options = dict(CASES[case])
    data = random_data(**options.pop("data", {}))
    threads, norm = options.pop("threads", 32), options.pop("norm", 1.0)
    huge, unrolled = options.pop("huge", None), options.pop("unrolled", True)
    task = task_of(data, **options)
    sizes = np.linspace(1.0, 0.5, STEPS)
    before, after = progress_of(task, norm=norm), progress_of(task, norm=norm)
    for progress in (before, after):
        progress.active[0, 0] = False
        if huge is not None:
            progress.parameters["weights"][:, 1] = huge
    if kernel is None:
        TorchEngine().prepare(task, 2)(after, 0, sizes)
    else:
        launch = Launch(task, 2, threads, unrolled=unrolled)
        launch._kernel = kernel(launch)
        launch.advance(after, 0, sizes)
    return before, after


def assert_same_steps(case: str, ours: Progress) -> None:
    """As TorchEngine takes them, and what stalls or overflows there."""
    before, theirs = taken(case)
    way, apart = (
        max(float((theirs.parameters[name] - other.parameters[name]).abs().max()) for name in theirs.parameters)
        for other in (before, ours)
    )
    for name in ("stalled", "overflowed"):
        assert torch.equal(getattr(theirs, name), getattr(ours, name))
    assert bool((ours.active == (theirs.active & ~theirs.overflowed)).all())
    overflowed = theirs.overflowed[1].tolist()
    assert overflowed == [False, True] if case.startswith("overflowed") else not any(overflowed)
    if case.startswith("stalled"):
        assert way == apart == 0
        assert not bool(theirs.stalled[0, 0])  # it was not active
        assert bool(theirs.stalled[1, 0])
    else:
        assert way > 1e-3 or case.startswith(("small", "shifted"))
        # Logits of size 1e4 carry a round-off of 1e-12, and so do exponents.
        assert apart <= (1e-9 if case.startswith("shifted") else 1e-12) * way


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_kernel_takes_the_steps_of_torch(case: str) -> None:
    """In two orders of its threads, which must not differ in a bit."""
    (_, ours), (_, again) = (taken(case, lambda launch, o=order: Lockstep(launch, ORDERS[o]())) for order in TWO)
    for name, value in ours.parameters.items():
        assert torch.equal(value, again.parameters[name]), "a race"
    assert_same_steps(case, ours)


@pytest.mark.slow
@pytest.mark.parametrize("case", COMPILED)
def test_compiled_kernel_takes_the_steps_of_torch(case: str) -> None:
    """What NVIDIA's compiler makes of it, run in NumPy, where every access to memory is watched."""
    can_compile()
    assert_same_steps(case, taken(case, lambda launch: Emulated(launch._kernel))[1])


# ------------------------------------------------------------------- refusals


def test_refuses_the_cpu() -> None:
    task = task_of(random_data())
    assert CudaEngine().refusal(task, 1) == "it runs on a CUDA device, and the data are on cpu"
    with pytest.raises(ValueError, match="CudaEngine cannot run this task: it runs on a CUDA device"):
        choose_engine(CudaEngine(), task, 1)


@pytest.mark.parametrize("threads", [0, 16, 48, 512])
def test_refuses_odd_numbers_of_threads(threads: int) -> None:
    with pytest.raises(ValueError, match=f"threads must be a multiple of 32 up to 256, or None; got {threads}"):
        CudaEngine(threads)


# ------------------------------------------------------------------ on a GPU

on_gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
RULES = [
    attsvm.NormalizedGradientDescent(0.1),
    attsvm.GradientDescent(0.5),
    attsvm.NormalizedGradientDescent(attsvm.descent.InverseSqrt(1.0)),
    attsvm.SteepestDescent(attsvm.Frobenius(), 0.1),
    attsvm.SteepestDescent(attsvm.MaxEntry(), 0.01),
    attsvm.NormalizedGradientDescent(0.1, weight_decay=0.1),
    attsvm.Adam(0.1),
    MUON,
]


def assert_same_runs(
    data: attsvm.TokenDataset, tolerance: float = 1e-9, threads: int | None = None, **options: Any
) -> None:
    runs = [attsvm.fit(data, engine=engine, record=50, **options) for engine in (TorchEngine(), CudaEngine(threads))]
    theirs, ours = (run.weights for run in runs)
    assert float((theirs - ours).abs().max() / theirs.abs().max()) < tolerance
    for name in ("steps_taken", "stalled", "overflowed"):
        assert torch.equal(*(getattr(run, name) for run in runs))


@pytest.mark.parametrize("parameterization", [attsvm.Weights(), attsvm.KeyQuery(), attsvm.KeyQuery(2)], ids=repr)
@pytest.mark.parametrize("rule", RULES, ids=repr)
class TestRules:
    pytestmark = on_gpu

    def test_same_runs(
        self, rule: attsvm.descent.Optimizer, parameterization: attsvm.attention.Parameterization
    ) -> None:
        data = random_data(4, 5, 4, batch=20, masked=True).to("cuda")
        assert_same_runs(data, optimizer=rule, parameterization=parameterization, steps=20, starts=3)


class TestDevice:
    pytestmark = on_gpu

    @pytest.mark.parametrize("many", [0, 10**9], ids=["unrolled", "loops"])
    @pytest.mark.parametrize("shape", [(1, 1, 1), (1, 2, 3), (6, 8, 10), (3, 40, 7), (40, 3, 16), (5, 6, 33)])
    def test_sizes(self, shape: tuple[int, int, int], many: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("attsvm.descent.engines.cuda.engine._MANY", many)
        n, T, d = shape
        data = random_data(n, max(T, 2), d, batch=7, masked=T > 1).to("cuda")
        assert_same_runs(data, steps=30, starts=2)

    @pytest.mark.parametrize("parameterization", [attsvm.Weights(), attsvm.KeyQuery()], ids=repr)
    @pytest.mark.parametrize("many", [0, 10**9], ids=["unrolled", "loops"])
    @pytest.mark.parametrize("shape", [(1, 2, 3), (6, 8, 10), (20, 8, 10), (40, 3, 8), (40, 3, 20), (6, 8, 64)])
    def test_spectral_steps(
        self, shape: tuple[int, int, int], many: int, parameterization: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("attsvm.descent.engines.cuda.engine._MANY", many)
        # Of unit length: where attention saturates, least singular values of gradients are round-off, and so is their
        # part of the polar factor.
        data = attsvm.data.random_sphere(*shape, batch=7, seed=5).to("cuda")
        assert_same_runs(data, 1e-9, optimizer=MUON, parameterization=parameterization, steps=10, starts=2)

    @pytest.mark.parametrize("threads", [32, 64, 256])
    def test_threads(self, threads: int) -> None:
        assert_same_runs(random_data(3, 4, 5, batch=7).to("cuda"), threads=threads, steps=30, starts=2)

    @pytest.mark.parametrize("loss", [attsvm.Logistic(), attsvm.Exponential(), attsvm.attention.Linear()], ids=repr)
    def test_losses(self, loss: attsvm.attention.Loss) -> None:
        assert_same_runs(random_data(6, 8, 10, batch=50).to("cuda"), loss=loss, steps=100)

    @pytest.mark.parametrize("many", [0, 10**9], ids=["unrolled", "loops"])
    @pytest.mark.parametrize("parameterization", [attsvm.Weights(), attsvm.KeyQuery(2)], ids=repr)
    @pytest.mark.parametrize("head", [relu_head(10, 7), quadratic_head(10)], ids=lambda head: type(head).__name__)
    def test_heads(
        self,
        head: attsvm.attention.Head,
        parameterization: attsvm.attention.Parameterization,
        many: int,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr("attsvm.descent.engines.cuda.engine._MANY", many)
        data = random_data(6, 8, 10, batch=20, masked=True)
        own = head.map(lambda tensor, axes: tensor.cuda())
        # A run along the kink of a ReLU magnifies rounding.
        assert_same_runs(data.to("cuda"), 1e-6, head=own, parameterization=parameterization, steps=100)

    def test_a_head_for_each_data_set(self) -> None:
        matrix = torch.randn(20, 10, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64).cuda()
        data = random_data(6, 8, 10, batch=20).to("cuda")
        assert_same_runs(data, 1e-6, head=attsvm.ReluHead(matrix), steps=100, starts=2)
        assert type(choose_engine(None, task_of(data, head=attsvm.ReluHead(matrix)), 1)[0]) is CudaEngine

    def test_many_steps_from_a_large_norm(self) -> None:
        data = random_data(6, 8, 10, batch=20).to("cuda")
        task = task_of(data)
        start = progress_of(task, 1, norm=1e4).parameters["weights"][0]
        assert float(start.flatten(1).norm(dim=-1).max()) > 1e5
        runs = [
            attsvm.fit(data, initial=start, steps=200, engine=engine).weights - start
            for engine in (TorchEngine(), CudaEngine())
        ]
        # Logits of size 1e5 carry a round-off of 1e-11, and so does the direction of each step.
        assert float((runs[0] - runs[1]).abs().max() / runs[0].abs().max()) < 1e-7

    @pytest.mark.parametrize("shape", [(10, 20, 40), (40, 40, 40)])
    @pytest.mark.parametrize("optimizer", [attsvm.NormalizedGradientDescent(0.1), attsvm.Adam(0.1)], ids=repr)
    def test_more_than_registers_and_shared_memory_hold(self, shape: tuple[int, int, int], optimizer: Any) -> None:
        data = random_data(*shape, batch=3).to("cuda")
        assert_same_runs(data, optimizer=optimizer, steps=20)

    def test_too_many_inputs(self) -> None:
        task = task_of(random_data(1025, 2, 2, batch=1).to("cuda"))
        assert CudaEngine().refusal(task, 1) == "it takes at most 1024 inputs"
        assert type(choose_engine(None, task, 1)[0]) is TorchEngine

    def test_a_step_for_each_data_set(self) -> None:
        data = random_data(6, 8, 10, batch=20).to("cuda")
        assert_same_runs(data, optimizer=attsvm.GradientDescent(attsvm.descent.LipschitzStep()), steps=50)

    def test_chosen_on_the_device(self) -> None:
        assert type(choose_engine(None, task_of(random_data().to("cuda")), 1)[0]) is CudaEngine

    def test_large_scores_are_refused(self) -> None:
        task = task_of(random_data(scale=1e3).to("cuda"))
        assert str(CudaEngine().refusal(task, 1)).startswith("scores beyond 200")

    def test_float32(self) -> None:
        data = random_data(6, 8, 10, batch=20).to("cuda", torch.float32)
        assert_same_runs(data, tolerance=1e-3, steps=20)

    def test_other_streams(self) -> None:
        data = random_data(6, 8, 10, batch=50).to("cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            assert_same_runs(data, steps=50)

    def test_stopping_and_overflow(self) -> None:
        data = random_data(6, 8, 10, batch=20).to("cuda")
        assert_same_runs(data, steps=400, stop=attsvm.descent.Settled())
        task = task_of(data)
        progress = progress_of(task, 1)
        progress.parameters["weights"][0, 3] = 1.7e308
        kept = progress.parameters["weights"].clone()
        CudaEngine().prepare(task, 1)(progress, 0, np.full(3, 0.1))
        assert bool(progress.overflowed[0, 3])
        assert not bool(progress.active[0, 3])
        assert torch.equal(progress.parameters["weights"][0, 3], kept[0, 3])
