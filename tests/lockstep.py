"""CUDA kernels of Numba in plain Python, their threads one at a time from barrier to barrier, in an order of choice.

Between two barriers threads may run in any order. What a kernel writes must therefore be the same to the last bit
whichever order is chosen here; a number that depends on it is a race. Threads that wait for each other at different
places of the text, or for one that has gone, are an error.

Threads that exchange numbers by a shuffle or a vote wait for each other here, and what they wrote before is seen after
it. On a GPU that takes a barrier: a write and a read that only a shuffle separates are a race which is not found here,
but in `benchmarks.emulator`.
"""

from __future__ import annotations

import struct
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from types import CellType, FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from attsvm.data.machine import numba_sees_gpu

WARP = 32
Order = Callable[[list[int]], int]
"""Which of the threads that may go on is the next."""


def shuffled(seed: int = 0) -> Order:
    draw = np.random.default_rng(seed)
    return lambda ready: ready[int(draw.integers(len(ready)))]


ORDERS: dict[str, Callable[[], Order]] = {"upwards": lambda: min, "downwards": lambda: max, "shuffled": shuffled}


class Block:
    """The threads of a block.

    Arguments:
        count: how many there are.
        order: chooses the next.
        warp: how many threads make a warp.
    """

    def __init__(self, count: int, order: Order, warp: int = WARP) -> None:
        self._order, self._warp = order, warp
        self._go = [threading.Semaphore(0) for _ in range(count)]
        self._alive, self._ready = set(range(count)), set(range(count))
        self._waiting: dict[int, frozenset[int]] = {}  # for whom
        self._places: dict[frozenset[int], list[str]] = {}
        self._counts = [0] * count
        self._board: dict[tuple[int, int], Any] = {}
        self._space = np.empty(0)
        self._own = threading.local()
        self._failure: BaseException | None = None

    @property
    def thread(self) -> int:
        return int(self._own.number)

    def run(self, work: Callable[[], None]) -> None:
        """Let every thread do this; what one of them raises is raised."""
        threads = [threading.Thread(target=self._one, args=(number, work)) for number in range(len(self._go))]
        for each in threads:
            each.start()
        self._next()
        for each in threads:
            each.join()
        if self._failure is not None:
            raise self._failure

    def _one(self, number: int, work: Callable[[], None]) -> None:
        self._own.number = number
        self._go[number].acquire()
        try:
            if self._failure is None:
                with np.errstate(all="ignore"):
                    work()
        except BaseException as error:
            self._failure = self._failure or error
        self._alive.discard(number)
        self._next()

    def _next(self) -> None:
        """Hand over to a thread that may go on."""
        for group in set(self._waiting.values()):
            members = group & self._alive
            if all(self._waiting.get(each) == group for each in members):
                self._ready |= members
                for each in members:
                    del self._waiting[each]
                self._places.pop(group)
        if not self._ready and self._waiting:
            met = {number: self._places[group] for number, group in self._waiting.items()}
            self._failure = self._failure or AssertionError(f"threads wait for each other for ever: {met}")
            self._ready = set(self._waiting)
            self._waiting.clear()
        if self._ready:
            number = self._order(sorted(self._ready)) if self._failure is None else min(self._ready)
            self._ready.discard(number)
            self._go[number].release()

    def barrier(self, group: frozenset[int]) -> None:
        """Wait until all of the group that are left have come here."""
        number, place, frame = self.thread, [], sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_name not in ("work", "_one"):
            place.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
            frame = frame.f_back
        if self._places.setdefault(group, place) != place:
            raise AssertionError(f"threads meet at different places: {place} and {self._places[group]}")
        self._waiting[number] = group
        self._next()
        self._go[number].acquire()
        if self._failure is not None:
            raise self._failure

    def _lanes(self, mask: int) -> frozenset[int]:
        first = self.thread // self._warp * self._warp
        return frozenset(
            first + lane for lane in range(self._warp) if int(mask) >> lane & 1 and first + lane < len(self._go)
        )

    def _told(self, mask: int, value: Any) -> tuple[dict[tuple[int, int], Any], int]:
        """The board after all of a group have written on it; nobody writes twice in the same place."""
        self._counts[self.thread] += 1
        count = self._counts[self.thread]
        self._board[self.thread, count] = value, mask
        self.barrier(self._lanes(mask))
        return self._board, count

    def exchange(self, mask: int, value: Any, lanes: int) -> Any:
        """What the thread brings whose number differs by `lanes`."""
        board, count = self._told(mask, value)
        found, told = board[self.thread ^ lanes, count]
        assert told == mask, "threads of different groups exchange"
        return found

    def vote(self, mask: int, value: Any) -> bool:
        """Whether a thread of the group brings a true value."""
        board, count = self._told(mask, bool(value))
        return any(board[each, count][0] for each in self._lanes(mask) if (each, count) in board)

    def cuda(self, number: int, space: int = 0) -> SimpleNamespace:
        """What a kernel in block `number` takes for Numba's module; `space` numbers of shared memory, NaN at first."""
        self._space = np.full(space, np.nan)
        everybody, warp = frozenset(range(len(self._go))), partial(self._lanes, 2**self._warp - 1)
        return SimpleNamespace(
            blockIdx=SimpleNamespace(x=number),
            threadIdx=type("Index", (), {"x": property(lambda _: self.thread)})(),
            syncthreads=lambda: self.barrier(everybody),
            syncwarp=lambda: self.barrier(warp()),
            shfl_xor_sync=self.exchange,
            any_sync=self.vote,
            atomic=SimpleNamespace(add=_add),
            shared=SimpleNamespace(array=lambda count, kind: self._space.view(getattr(kind, "name", kind))),
            local=SimpleNamespace(array=lambda count, kind: np.full(count, np.nan)),
            libdevice=SimpleNamespace(double2loint=_low_word, hiloint2double=_joined),
        )


def _add(array: np.ndarray, index: int, value: int) -> int:
    before = int(array[index])
    array[index] += value
    return before


def _low_word(value: float) -> int:
    return int(struct.unpack("<i", struct.pack("<d", value)[:4])[0])


def _joined(high: int, low: int) -> float:
    return float(struct.unpack("<d", struct.pack("<II", int(low) % 2**32, int(high) % 2**32))[0])


def can_compile() -> None:
    """Skip a test where NVIDIA's compiler is missing: it needs no GPU."""
    numba_sees_gpu()  # loads numba-cuda with any NumPy
    pytest.importorskip("numba_cuda", reason="needs numba-cuda")
    pytest.importorskip("nvidia", reason="needs NVIDIA's compiler, package cuda-toolkit[nvrtc,nvvm]")


def in_python(function: Any, words: dict[str, Any]) -> Any:
    """A function that Numba compiles, with all that it calls, in plain Python; `words` replace names that it uses."""
    made: dict[int, Any] = {}
    worlds: dict[int, dict[str, Any]] = {}

    def plain(value: Any) -> Any:
        source = getattr(value, "py_func", None)
        if source is None:
            return value
        if id(value) not in made:
            world = worlds.get(id(source.__globals__))
            if world is None:
                world = worlds[id(source.__globals__)] = {}
                world |= {name: plain(each) for name, each in source.__globals__.items()} | words
            cells = tuple(CellType(plain(cell.cell_contents)) for cell in source.__closure__ or ())
            made[id(value)] = FunctionType(source.__code__, world, source.__name__, source.__defaults__, cells)
        return made[id(value)]

    return plain(function)


def run_block(
    function: Any, arguments: Sequence[Any], threads: int, order: Order, *, block: int = 0, space: int = 0,
    warp: int = WARP, words: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    """One block of a kernel."""
    crew = Block(threads, order, warp)
    kernel = in_python(function, {"cuda": crew.cuda(block, space), **(words or {})})

    def work() -> None:
        kernel(*arguments)

    crew.run(work)
