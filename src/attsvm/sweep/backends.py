"""Where chunks are computed: in this process, in several of this machine's, or wherever a backend of yours does it."""

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

from attsvm.sweep.chunks import as_chunk, encode
from attsvm.sweep.clock import Clock
from attsvm.sweep.configuration import Configuration
from attsvm.sweep.task import Sweep, Task


class Backend(Protocol):
    """Computes orders in any order of time; yields each one's place with its bytes, as they finish."""

    def __call__(self, orders: Sequence[Order]) -> Generator[tuple[int, bytes], None, None]: ...


@dataclass(frozen=True)
class Processes:
    """This machine: `jobs` processes by joblib, or this very process for one job.

    Raises:
        ValueError: if `jobs` is no positive integer.
        ChildProcessError: while computing, if a process was killed from outside.
    """

    jobs: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.jobs, int) or isinstance(self.jobs, bool) or self.jobs < 1:
            raise ValueError(f"jobs must be a positive integer; got {self.jobs!r}")

    def __call__(self, orders: Sequence[Order]) -> Generator[tuple[int, bytes], None, None]:
        if self.jobs == 1 or len(orders) == 1:
            for place, order in enumerate(orders):
                yield place, order.compute()
            return
        from joblib import Parallel, delayed
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        # loky replaces a worker that has grown; that is its business, and no chunk is lost by it.
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given", category=UserWarning)
        pool = Parallel(
            n_jobs=min(self.jobs, len(orders)), backend="loky", return_as="generator_unordered", batch_size=1
        )
        try:
            with contextlib.ExitStack() as stack:
                with _deaf_children():
                    results = pool(
                        delayed(_compute_watched)(os.getpid(), place, order) for place, order in enumerate(orders)
                    )
                    stack.callback(_close, results)
                # `yield from` would close joblib's generator before we can, with its warning.
                for found in results:  # noqa: UP028
                    yield found
        except TerminatedWorkerError:
            raise ChildProcessError(
                "a process that computed chunks was killed, perhaps for lack of memory; finished chunks are kept, try"
                " again with --resume and fewer --jobs"
            ) from None


def _compute_watched(parent: int, place: int, order: Order) -> tuple[int, bytes]:
    """What a process of joblib's runs."""
    _leave_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # also where joblib started this process later, for one that died
    return compute_placed(place, order)


@functools.cache
def _leave_with(parent: int) -> None:
    """End this process when `parent` is gone: joblib's processes would wait minutes for one that was killed."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    if hasattr(os, "fork"):  # elsewhere a process keeps the number of a parent that is gone
        threading.Thread(target=watch, daemon=True).start()


def _close(results: Generator[Any, None, None]) -> None:
    """Stop what is still being computed; joblib's advice to ask for less does not apply to a run that was stopped."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        results.close()


@contextlib.contextmanager
def _deaf_children() -> Iterator[None]:
    """Processes started in this block never hear Ctrl-C; the parent hears it right after the block, for all of them."""
    if not hasattr(signal, "pthread_sigmask"):  # not on Windows
        yield
        return
    from multiprocessing import resource_tracker

    from joblib.externals.loky.backend import resource_tracker as loky_tracker

    for tracker in (resource_tracker, loky_tracker):
        tracker.ensure_running()  # joblib wants both, and a tracker that starts unblocks the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# The number of threads and the CPU clock belong to the process: a Dask worker with several threads takes turns.
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True)
class Order:
    """One chunk to compute; it travels to the worker, and the chunk's bytes travel back."""

    experiment: Sweep[Any]
    configuration: Configuration
    task: Task
    device: str
    fingerprint: str

    def compute(self) -> bytes:
        """The chunk's bytes, computed on one thread so that they do not hang on the number of cores."""
        with _ONE_AT_A_TIME, one_thread(), Clock() as clock:
            try:
                piece = self.experiment.compute(self.configuration, self.task, torch.device(self.device))
            except Exception as error:
                error.add_note(f"while computing chunk {self.task.name} of {self.experiment.id}")
                raise
        return encode(as_chunk(piece, self.experiment.columns, clock.spent), self.fingerprint, self.task.name)


def compute_placed(place: int, order: Order) -> tuple[int, bytes]:
    """An order's place with its bytes; what a worker runs."""
    return place, order.compute()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """One thread for PyTorch and BLAS inside the block."""
    from threadpoolctl import threadpool_limits

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1):
            yield
    finally:
        torch.set_num_threads(threads)
