"""The nuclear kernel as a warp of a GPU runs it, its threads one after the other between barriers.

Workers that share a problem may run in any order between two barriers. Here they run one at a time, in an order that
the test chooses: the results must be the same to the last bit in every order, and those of one worker up to rounding.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from attsvm.data import random_sphere
from attsvm.svm import AttentionSVM
from attsvm.svm.solvers.base import row_kinds
from attsvm.svm.solvers.nuclear import kernel, workers
from attsvm.svm.solvers.nuclear.rows import normalise

from .checks import dataset

Order = Callable[[int, int], Sequence[int]]  #: of so many workers, in this phase
ORDERS: dict[str, Order] = {
    "upwards": lambda count, phase: range(count),
    "downwards": lambda count, phase: range(count - 1, -1, -1),
    "shuffled": lambda count, phase: np.random.default_rng(phase).permutation(count).tolist(),
}


class Warp:
    """Threads that run one at a time from barrier to barrier."""

    def __init__(self, count: int, order: Order) -> None:
        self._count, self._order, self._phase = count, order, 0
        self._go = [threading.Semaphore(0) for _ in range(count)]
        self._queue: list[int] = []
        self._waiting: set[int] = set()
        self._place: list[str] = []  # of the barrier at which they wait
        self._boards: list[dict[int, Any]] = [{}, {}]
        self._own = threading.local()
        self.failure: BaseException | None = None

    @property
    def thread(self) -> int:
        return int(self._own.number)

    def run(self, work: Callable[[], None]) -> None:
        def one(number: int) -> None:
            self._own.number = number
            self._go[number].acquire()
            try:
                if self.failure is None:
                    work()
                    if self._waiting:
                        raise AssertionError(f"thread {number} ends while {sorted(self._waiting)} wait at a barrier")
            except BaseException as error:  # handed to the test
                self.failure = self.failure or error
            self._next()

        threads = [threading.Thread(target=one, args=(number,)) for number in range(self._count)]
        for each in threads:
            each.start()
        self._queue = list(self._order(self._count, 0))
        self._next()
        for each in threads:
            each.join()
        if self.failure is not None:
            raise self.failure

    def _next(self) -> None:
        """Hand over to the next of this phase; after the last one a new phase begins."""
        if not self._queue:
            self._phase += 1
            self._queue = [number for number in self._order(self._count, self._phase) if number in self._waiting]
            self._waiting.clear()
        if self._queue:
            self._go[self._queue.pop(0)].release()

    def barrier(self) -> None:
        number = self.thread
        place, frame = [], sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_name != "_solve":
            place.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
            frame = frame.f_back
        if not self._waiting:
            self._place = place
        elif place != self._place:
            raise AssertionError(f"threads meet at different barriers: {place} and {self._place}")
        self._waiting.add(number)
        self._next()
        self._go[number].acquire()
        if self.failure is not None:
            raise self.failure

    def exchange(self, mask: int, value: Any, lanes: int) -> Any:
        """What thread `thread ^ lanes` brings; two boards, so that nobody writes on one that is still read."""
        assert mask == 2**32 - 1
        board = self._boards[self._phase % 2]
        board[self.thread] = value
        self.barrier()
        return board[self.thread ^ lanes]


def as_a_warp(warp: Warp, lanes: int, columns: int) -> dict[str, Any]:
    """The module of the device in plain Python, on a warp of so many threads, `columns` of them along a row."""
    from attsvm.svm.solvers.nuclear import device

    def add(array: np.ndarray, index: int, value: int) -> int:
        before = int(array[index])
        array[index] += value
        return before

    cuda = SimpleNamespace(
        syncwarp=warp.barrier, shfl_xor_sync=warp.exchange, atomic=SimpleNamespace(add=add),
        blockIdx=SimpleNamespace(x=0), threadIdx=type("Index", (), {"x": property(lambda self: warp.thread)})(),
    )  # fmt: skip
    words: dict[str, Any] = {**vars(device), **device._words, "cuda": cuda}
    words |= {"_LANES": lanes, "_COLUMNS": columns, "WORKERS": lanes, "COLUMNS": columns, "LINES": lanes // columns}
    for name, function in list(words.items()):
        if hasattr(function, "py_func"):
            words[name] = FunctionType(function.py_func.__code__, words)
    words["_solve_one"] = words["solve_one"]
    return words


def problems() -> dict[str, AttentionSVM]:
    draw = torch.Generator().manual_seed(4)
    data, few = random_sphere(2, 4, 3, batch=3, seed=3), random_sphere(3, 3, 4, batch=2, seed=1)
    kept = torch.zeros(2, 3, 3, dtype=torch.bool)
    kept[:, 0, :2] = kept[:, 1:, 0] = True
    sides = torch.tensor([[1.0, 0.0, 1.0]]).double().expand(2, 3)
    mask = torch.ones(2, 4, dtype=torch.bool)
    mask[0, 3] = False
    tokens = torch.randn(2, 4, 3, generator=draw).double()
    ragged = dataset(tokens.numpy()[None], np.eye(2)[None], mask=mask.numpy()[None])
    opposite = dataset(np.array([[[[0.0, 0.0], [1.0, 0.5], [-1.0, -0.5]]]]), np.ones((1, 1, 2)))
    return {
        "random": AttentionSVM(data, torch.tensor([[0, 1], [1, 1], [2, 0]])),
        "equalities": AttentionSVM(few, selected_set=kept),
        "relaxed": AttentionSVM(few, torch.zeros(2, 3, dtype=torch.long), right_hand_side=sides),
        "ragged": AttentionSVM(ragged, [[0, 1]]),
        "infeasible": AttentionSVM(opposite, [[0]]),
    }


def solved(problem: AttentionSVM, solve: Callable[..., None]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, duals and report of the kernel's normalised problems; what it writes on begins as NaN."""
    _, _, reduced, _ = normalise(problem)
    assert reduced is not None
    queries = reduced.queries if reduced.input_queries is None else reduced.input_queries
    d, z = reduced.differences.contiguous().numpy(), queries.contiguous().numpy()
    b, kind = reduced.right_hand_side.contiguous().numpy(), row_kinds(reduced).contiguous().numpy()
    (batch, m, rx), (n, rz) = d.shape, z.shape[1:]
    outputs = tuple(np.full(shape, np.nan) for shape in ((batch, rx, rz), (batch, m), (batch, 4)))
    sizes = workers.shapes(m, n, rx, rz)
    work = [np.full(shape, -1) if shape is sizes.rows else np.full(shape, np.nan) for shape in sizes]
    solve((d, z, b, kind), (1e4, 16), outputs, work)
    return outputs


def alone(inputs: Any, limits: Any, outputs: Any, work: list[np.ndarray]) -> None:
    kernel.solve_many(*inputs, *limits, *outputs, workers.Workspace(*(np.zeros_like(each) for each in work)))


def shared(lanes: int, columns: int, order: Order) -> Callable[..., None]:
    def run(inputs: Any, limits: Any, outputs: Any, work: list[np.ndarray]) -> None:
        warp, turn = Warp(lanes, order), np.zeros(1, dtype=np.int64)
        kernel_of_all = as_a_warp(warp, lanes, columns)["_solve"]
        warp.run(lambda: kernel_of_all(*inputs, *limits, *outputs, turn, *(each[None] for each in work)))

    return run


@pytest.mark.slow
@pytest.mark.parametrize("name", list(problems()))
def test_any_order_of_threads_gives_the_solution_of_one(name: str) -> None:
    problem = problems()[name]
    weights, _, report = solved(problem, alone)
    found = {order: solved(problem, shared(8, 4, ORDERS[order])) for order in ORDERS}
    for others in (found["downwards"], found["shuffled"]):
        for one, other in zip(found["upwards"], others, strict=True):
            np.testing.assert_array_equal(one, other)
    ours = found["upwards"]
    assert ours[2][:, 3].tolist() == report[:, 3].tolist(), "a ray is looked for where one worker looks for it"
    sure = (report[:, 0] < 1e-8) & (report[:, 2] > 0)
    print(f"{name}: {int(sure.sum())} of {len(sure)} solutions are unique")
    assert sure.any() or name == "infeasible"
    assert (ours[2][report[:, 0] < 1e-8, 0] < 1e-8).all()
    np.testing.assert_allclose(ours[0][sure], weights[sure], rtol=0, atol=1e-7)


@pytest.mark.slow
def test_a_whole_warp() -> None:
    problem = problems()["random"]
    weights, *_ = solved(problem, alone)
    several = solved(problem, shared(32, 16, ORDERS["downwards"]))
    assert (several[2][:, 0] < 1e-8).all()
    np.testing.assert_allclose(several[0], weights, rtol=0, atol=1e-7)


def test_a_race_and_a_missed_barrier_are_seen() -> None:
    """The comparison can fail: a number that two threads share without a barrier depends on the order."""

    def last_of(order: Order, synchronized: bool) -> list[float]:
        warp, board, seen = Warp(4, order), [0.0] * 4, [0.0] * 4

        def work() -> None:
            board[warp.thread] = 1.0 + warp.thread
            if synchronized:
                warp.barrier()
            seen[warp.thread] = board[warp.thread ^ 1]

        warp.run(work)
        return seen

    assert last_of(ORDERS["upwards"], True) == last_of(ORDERS["downwards"], True)
    assert last_of(ORDERS["upwards"], False) != last_of(ORDERS["downwards"], False)
    warp = Warp(4, ORDERS["upwards"])
    with pytest.raises(AssertionError, match="thread 3 ends while"):
        warp.run(lambda: warp.barrier() if warp.thread < 3 else None)
