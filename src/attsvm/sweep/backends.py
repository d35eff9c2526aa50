"""Where chunks are computed: in this process, in several of this machine, on a Dask cluster, or by your own backend."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import itertools
import logging
import math
import os
import secrets
import signal
import socket
import sys
import threading
import time
import warnings
from asyncio import CancelledError
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

import torch
from threadpoolctl import threadpool_limits

from attsvm.data import machine
from attsvm.data.checks import check_count
from attsvm.sweep.chunks import as_chunk, encode
from attsvm.sweep.clock import clocked
from attsvm.sweep.manifest import RESUME
from attsvm.sweep.task import Configuration, Sweep, Task

_KEPT = "finished chunks are kept, go on with"
# Of a Dask cluster.
_PROTOCOLS = ("tcp", "tls", "ws", "wss", "ucx", "inproc")
_LOOK = 1.0  # seconds between two looks at the workers
_AHEAD = 4  # orders per worker that are sent ahead
_ANSWER = 5.0  # seconds for the scheduler to say who they are

Results = Generator[tuple[int, bytes], None, None]
"""The place of an order, with the bytes of its chunk."""


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
    with machine.one_thread(), threadpool_limits(limits=1):
        yield


class Backend(Protocol):
    """Computes orders, in whatever sequence, and yields the place of each with its bytes as soon as it is finished."""

    def __call__(self, orders: Sequence[Order]) -> Results: ...


@dataclass(frozen=True)
class Processes:
    """This machine: `jobs` processes started by joblib, or, for one job, this process itself.

    Raises:
        ValueError: if `jobs` is no positive integer, or above four for each core of this machine.
        ChildProcessError: while computing, if a process was killed from outside.
    """

    jobs: int = 1

    def __post_init__(self) -> None:
        cores = os.cpu_count() or 1
        if check_count(self.jobs, "jobs") > 4 * cores:
            raise ValueError(f"jobs must be at most {4 * cores}, four for each core of this machine; got {self.jobs}")

    def __call__(self, orders: Sequence[Order]) -> Results:
        if self.jobs == 1 or len(orders) == 1:
            yield from itertools.starmap(compute_placed, enumerate(orders))
            return
        from joblib import Parallel, delayed
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        # loky replaces a worker that has grown too large; no chunk is lost by that.
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given", category=UserWarning)
        # An interrupt may come before the block below that stops what is still being computed.
        warnings.filterwarnings("ignore", message=r"\d+ tasks ", category=UserWarning)
        jobs = min(self.jobs, len(orders))
        pool = Parallel(n_jobs=jobs, backend="loky", return_as="generator_unordered", batch_size=1)
        calls = [delayed(_compute_watched)(os.getpid(), place, order) for place, order in enumerate(orders)]
        try:
            with _children_without_interrupts():
                results = pool(calls)
            try:
                # `yield from` would close joblib's generator before we can, with its warning.
                for found in results:  # noqa: UP028
                    yield found
            finally:  # what is still being computed stops; joblib's warning does not apply to a run that was stopped
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)
                    results.close()
        except TerminatedWorkerError:
            died = "a process was killed while computing, perhaps for lack of memory"
            raise ChildProcessError(f"{died}; {_KEPT} fewer jobs and {RESUME}") from None


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


@dataclass(frozen=True)
class DaskCluster:
    """An existing Dask cluster, by the address of its scheduler; its workers need attsvm but no shared disk.

    A chunk whose worker dies is computed again by another one; it is stored once, here, when its bytes arrive. A worker
    computes one chunk at a time on one thread, however many threads it has: start one worker per core.

    Raises:
        ValueError: if the package distributed is missing, or no scheduler or no worker answers.
        ConnectionError: while computing, if the scheduler goes away, or no worker comes within `worker_timeout`.
        ChildProcessError: while computing, if several workers die while computing the same chunk.
    """

    address: str  #: such as ``tcp://host:8786``
    patience: float = 10.0  #: seconds to wait for the scheduler, and for its first worker
    #: seconds to wait while the cluster has no worker, at the beginning (instead of `patience`) and after the last one
    #: was lost; None waits for a new one without end
    worker_timeout: float | None = None
    notice: float = 15.0  #: seconds without a worker after which that is said

    def __post_init__(self) -> None:
        if self.worker_timeout is not None and not 0 < self.worker_timeout < math.inf:
            raise ValueError(f"worker_timeout must be a positive number of seconds or None; got {self.worker_timeout}")

    def __call__(self, orders: Sequence[Order], say: Callable[[str], object] | None = None) -> Results:
        """Compute `orders`; `say`, else stderr, takes the sentences that the last worker was lost and one has come."""
        try:
            from distributed import KilledWorker, wait
        except ImportError:
            raise ValueError("the dask backend needs the package distributed; pip install 'attsvm[dask]'") from None
        with _quiet(), self._client() as client:
            # Fresh keys: Dask would report a chunk that failed under an old key again without computing it.
            session = secrets.token_hex(6)
            keys = [f"attsvm-{order.task.name}-{session}" for order in orders]
            tell = say or (lambda sentence: sys.stderr.write(f"{sentence}\n"))
            watch = _Watch(self, client, tell, len(client.nthreads()))
            left = iter(range(len(orders)))
            waiting: set[Any] = set()
            try:
                while True:
                    room = _AHEAD * watch.workers - len(waiting)  # orders may be large: only some wait at the scheduler
                    for place in itertools.islice(left, max(room, 0 if waiting else 1)):
                        waiting.add(client.submit(compute_placed, place, orders[place], key=keys[place], pure=False))
                    if not waiting:
                        return
                    watch.look()
                    try:
                        with client.as_current():
                            done, waiting = wait(waiting, timeout=watch.every, return_when="FIRST_COMPLETED")
                    except TimeoutError:
                        continue
                    while done:  # nothing else refers to a future, so its worker forgets the bytes that arrived
                        yield done.pop().result()
            except KilledWorker as error:
                died = f"several Dask workers died computing one chunk ({error.task})"
                raise ChildProcessError(f"{died}; {_KEPT} more memory and {RESUME}") from None
            except (CancelledError, concurrent.futures.CancelledError):
                raise ConnectionError(f"the Dask scheduler at {self.address} went away; {_KEPT} {RESUME}") from None

    def check(self) -> None:
        """Try once to connect, else a ValueError; Dask itself would try a closed port again and again."""
        parts = urlsplit(self.address if "://" in self.address else f"tcp://{self.address}")
        if parts.scheme not in _PROTOCOLS:
            raise _unanswered(self.address, ValueError(f"unknown protocol {parts.scheme!r}"))
        if parts.scheme not in ("tcp", "tls"):
            return  # only these two are plain sockets that can be tried
        try:
            socket.create_connection((parts.hostname, parts.port or 8786), timeout=self.patience).close()
        except (OSError, ValueError) as error:
            raise _unanswered(self.address, error) from None

    def _client(self) -> Any:
        from distributed import Client

        self.check()
        try:
            client = Client(self.address, timeout=self.patience, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            raise _unanswered(self.address, error) from None
        try:
            client.wait_for_workers(1, timeout=self.worker_timeout or self.patience)
        except TimeoutError:
            client.close()
            start = f"start some with `dask worker {self.address}`"
            raise ValueError(f"the Dask cluster at {self.address} has no workers; {start}") from None
        return client


@dataclass
class _Watch:
    """Looks from time to time whether there is anybody left to compute chunks."""

    cluster: DaskCluster
    client: Any
    say: Callable[[str], object]
    workers: int
    alone_since: float | None = None
    told: bool = False
    looked: float = field(default_factory=time.monotonic)

    @property
    def every(self) -> float:
        """Seconds between two looks."""
        return min(_LOOK, self.cluster.notice / 4, (self.cluster.worker_timeout or math.inf) / 4)

    def look(self) -> None:
        """Count the workers, if it is time; a ConnectionError after `worker_timeout` seconds without one."""
        if time.monotonic() - self.looked < self.every:
            return
        with contextlib.suppress(OSError, TimeoutError):  # if the scheduler is gone, the futures are cancelled
            self.workers = len(self.client.nthreads(callback_timeout=_ANSWER))
        self.looked, cluster = time.monotonic(), self.cluster
        name, start = f"the Dask cluster at {cluster.address}", f"`dask worker {cluster.address}`"
        if self.workers:
            if self.told:
                self.say(f"{name} has a worker again; going on")
            self.alone_since, self.told = None, False
            return
        self.alone_since = self.alone_since or self.looked
        alone = self.looked - self.alone_since
        if cluster.worker_timeout is not None and alone >= cluster.worker_timeout:
            raise ConnectionError(f"{name} has had no worker for {alone:.0f} s; {_KEPT} others ({start}) and {RESUME}")
        if alone >= cluster.notice and not self.told:
            self.told = True
            end = "" if cluster.worker_timeout is None else f" for up to {cluster.worker_timeout:g} s"
            self.say(f"{name} has lost its last worker; waiting{end} for another, start one with {start}")


def _unanswered(address: str, error: Exception) -> ValueError:
    reason = (getattr(error, "strerror", None) or str(error) or type(error).__name__).partition("\n")[0]
    said = f"no Dask scheduler answers at {address!r} ({reason[:1].lower()}{reason[1:]})"
    return ValueError(f"{said}; give the address of one, such as tcp://host:8786")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence Dask's log, which would repeat what our messages say."""
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "distributed"]
    warnings.filterwarnings("ignore", message="Sending large graph", category=UserWarning)
    before = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
