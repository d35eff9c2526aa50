"""Chunks computed by the workers of a Dask cluster."""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import logging
import math
import secrets
import socket
import sys
import time
import warnings
from asyncio import CancelledError
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from attsvm.sweep.backends import Order, compute_placed
from attsvm.sweep.manifest import RESUME

_PROTOCOLS = ("tcp", "tls", "ws", "wss", "ucx", "inproc")
_LOOK = 1.0  # seconds between two looks at the workers
_AHEAD = 4  # orders per worker that are sent ahead
_ANSWER = 5.0  # seconds for the scheduler to say who they are


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
    notice: float = 15.0  #: seconds without a worker after which `say` is told
    #: takes the sentences that the cluster has lost its last worker and that one has come; stderr by default.
    #: `attsvm.sweep.run` passes on its own
    say: Callable[[str], object] | None = None

    def __post_init__(self) -> None:
        if self.worker_timeout is not None and not 0 < self.worker_timeout < math.inf:
            raise ValueError(f"worker_timeout must be a positive number of seconds or None; got {self.worker_timeout}")

    def telling(self, say: Callable[[str], object]) -> DaskCluster:
        """The same cluster, which tells `say` unless it was given a listener of its own."""
        return self if self.say is not None else replace(self, say=say)

    def __call__(self, orders: Sequence[Order]) -> Generator[tuple[int, bytes], None, None]:
        try:
            from distributed import KilledWorker, as_completed
        except ImportError:
            raise ValueError("the dask backend needs the package distributed; pip install 'attsvm[dask]'") from None
        with _quiet(), self._client() as client:
            # Fresh keys: Dask would report a chunk that failed under an old key again without computing it.
            session = secrets.token_hex(6)
            keys = [f"attsvm-{order.task.name}-{session}" for order in orders]
            left = iter(range(len(orders)))
            # Nothing else refers to the futures, so workers forget a chunk's bytes as soon as they have arrived here.
            futures = as_completed([], loop=client.loop, with_results=True)

            def send(count: int) -> None:
                for place in itertools.islice(left, count):  # orders may be large: only some wait at the scheduler
                    futures.add(client.submit(compute_placed, place, orders[place], key=keys[place], pure=False))

            watch = _Watch(self, client, len(client.nthreads()))
            send(_AHEAD * watch.workers)
            try:
                while watch.wait(futures):
                    _, found = next(futures)
                    if isinstance(found, BaseException):  # as_completed raises what a task raised, but not this
                        raise found
                    yield found
                    send(max(1, _AHEAD * watch.workers - futures.count()))
            except KilledWorker as error:
                raise ChildProcessError(
                    f"several Dask workers died while computing one chunk ({error.task}), perhaps for lack of memory;"
                    f" finished chunks are kept, go on with {RESUME}"
                ) from None
            except (CancelledError, concurrent.futures.CancelledError, TimeoutError):
                raise ConnectionError(
                    f"the Dask scheduler at {self.address} went away; finished chunks are kept, go on with {RESUME}"
                ) from None

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
            raise ValueError(
                f"the Dask cluster at {self.address} has no workers; start some with `dask worker {self.address}`"
            ) from None
        return client


@dataclass
class _Watch:
    """Waits for chunks, and looks whether there is anybody left to compute them."""

    cluster: DaskCluster
    client: Any
    workers: int
    alone_since: float | None = None
    told: bool = False
    looked: float = field(default_factory=time.monotonic)

    def wait(self, futures: Any) -> bool:
        """Wait until a chunk has arrived, `worker_timeout` seconds without a worker at most; False if none is left."""
        every = min(_LOOK, self.cluster.notice / 4, (self.cluster.worker_timeout or math.inf) / 4)
        while True:
            if time.monotonic() - self.looked >= every:
                self._look()
                self.looked = time.monotonic()
            if futures.has_ready() or futures.is_empty():
                return bool(futures.has_ready())
            with futures.thread_condition:
                futures.thread_condition.wait(timeout=min(0.1, every))

    def _look(self) -> None:
        try:
            workers = self.client.nthreads(callback_timeout=_ANSWER)
        except (OSError, TimeoutError):
            return  # the scheduler does not answer; if it is gone, the futures are cancelled
        cluster, self.workers = self.cluster, len(workers)
        say = cluster.say or (lambda sentence: sys.stderr.write(f"{sentence}\n"))
        if workers:
            if self.told:
                say(f"the Dask cluster at {cluster.address} has a worker again; going on")
            self.alone_since, self.told = None, False
            return
        now = time.monotonic()
        self.alone_since = now if self.alone_since is None else self.alone_since
        alone = now - self.alone_since
        if cluster.worker_timeout is not None and alone >= cluster.worker_timeout:
            raise ConnectionError(
                f"the Dask cluster at {cluster.address} has had no worker for {alone:.0f} s; finished chunks are kept,"
                f" start workers with `dask worker {cluster.address}` and go on with {RESUME}"
            )
        if alone >= cluster.notice and not self.told:
            self.told = True
            end = "" if cluster.worker_timeout is None else f" for up to {cluster.worker_timeout:g} s"
            say(
                f"the Dask cluster at {cluster.address} has lost its last worker; waiting{end} for another, start one"
                f" with `dask worker {cluster.address}`"
            )


def _unanswered(address: str, error: Exception) -> ValueError:
    reason = (getattr(error, "strerror", None) or str(error) or type(error).__name__).partition("\n")[0]
    return ValueError(
        f"no Dask scheduler answers at {address!r} ({reason[:1].lower()}{reason[1:]}); give the address of one, such as"
        " tcp://host:8786"
    )


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
