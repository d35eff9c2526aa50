"""Where chunks are computed: in this process, in several processes of this machine, or by a backend of your own."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
import time
import warnings
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from attsvm.data import machine
from attsvm.data.checks import check_count
from attsvm.sweep.chunks import as_chunk, encode
from attsvm.sweep.clock import clocked
from attsvm.sweep.configuration import Configuration
from attsvm.sweep.manifest import RESUME
from attsvm.sweep.task import Sweep, Task


class Backend(Protocol):
    """Computes orders, in whatever sequence, and yields the place of each with its bytes as soon as it is finished.

    One that has something to say while it waits has a method `telling` too, which takes a function of a sentence and
    returns the same backend that calls it.
    """

    def __call__(self, orders: Sequence[Order]) -> Generator[tuple[int, bytes], None, None]: ...


@dataclass(frozen=True)
class Processes:
    """This machine: `jobs` processes started by joblib, or, for one job, this process itself.

    Raises:
        ValueError: if `jobs` is no positive integer.
        ChildProcessError: while computing, if a process was killed from outside.
    """

    jobs: int = 1

    def __post_init__(self) -> None:
        check_count(self.jobs, "jobs")

    def __call__(self, orders: Sequence[Order]) -> Generator[tuple[int, bytes], None, None]:
        if self.jobs == 1 or len(orders) == 1:
            for place, order in enumerate(orders):
                yield place, order.compute()
            return
        from joblib import Parallel, delayed
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        # loky replaces a worker that has grown too large; no chunk is lost by that.
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given", category=UserWarning)
        jobs = min(self.jobs, len(orders))
        pool = Parallel(n_jobs=jobs, backend="loky", return_as="generator_unordered", batch_size=1)
        calls = [delayed(_compute_watched)(os.getpid(), place, order) for place, order in enumerate(orders)]
        try:
            with contextlib.ExitStack() as stack:
                with _children_without_interrupts():
                    results = pool(calls)
                    stack.callback(_close, results)
                # `yield from` would close joblib's generator before we can, with its warning.
                for found in results:  # noqa: UP028
                    yield found
        except TerminatedWorkerError:
            raise ChildProcessError(
                "a process that computed chunks was killed, perhaps for lack of memory; finished chunks are kept, go on"
                f" with fewer jobs and {RESUME}"
            ) from None


def _compute_watched(parent: int, place: int, order: Order) -> tuple[int, bytes]:
    """Compute one order in a process that joblib started."""
    _leave_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # also where joblib started this process later, in place of a dead one
    return compute_placed(place, order)


@functools.cache
def _leave_with(parent: int) -> None:
    """End this process when `parent` is gone; joblib's processes would wait for minutes after it was killed."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    if hasattr(os, "fork"):  # on Windows a process keeps the number of a parent that is gone
        threading.Thread(target=watch, daemon=True).start()


def _close(results: Generator[Any, None, None]) -> None:
    """Stop what is still being computed, without joblib's warning, which does not apply to a run that was stopped."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        results.close()


@contextlib.contextmanager
def _children_without_interrupts() -> Iterator[None]:
    """Processes started in this block never receive Ctrl-C; this one receives it after the block, and stops them."""
    if not hasattr(signal, "pthread_sigmask"):  # not on Windows
        yield
        return
    from multiprocessing import resource_tracker

    from joblib.externals.loky.backend import resource_tracker as loky_tracker

    for tracker in (resource_tracker, loky_tracker):
        tracker.ensure_running()  # joblib needs both, and starting one inside the block would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# The number of threads and the CPU clock belong to the process: threads of a Dask worker compute one after the other.
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True)
class Order:
    """One chunk to compute: it is sent to the worker, which sends the chunk's bytes back."""

    sweep: Sweep[Any]
    configuration: Configuration
    task: Task
    device: str
    fingerprint: str

    def compute(self) -> bytes:
        """The chunk's bytes, computed on one thread so that they do not depend on the number of cores."""
        with _ONE_AT_A_TIME, one_thread(), clocked(self.sweep.imports) as clock:
            try:
                piece = self.sweep.compute(self.configuration, self.task, torch.device(self.device))
            except Exception as error:
                error.add_note(f"while computing chunk {self.task.name} of {self.sweep.id}")
                raise
        return encode(as_chunk(piece, self.sweep.columns, clock.spent), self.fingerprint, self.task.name)


def compute_placed(place: int, order: Order) -> tuple[int, bytes]:
    """What a worker runs: the order's place, with the bytes of its chunk."""
    return place, order.compute()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """One thread for PyTorch and BLAS inside the block."""
    from threadpoolctl import threadpool_limits

    with machine.one_thread(), threadpool_limits(limits=1):
        yield
