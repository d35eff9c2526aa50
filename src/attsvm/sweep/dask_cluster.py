"""Chunks computed by the workers of a Dask cluster."""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import secrets
import socket
from asyncio import CancelledError
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from attsvm.sweep.backends import Order, compute_placed
from attsvm.sweep.manifest import RESUME

_PROTOCOLS = ("tcp", "tls", "ws", "wss", "ucx", "inproc")


@dataclass(frozen=True)
class DaskCluster:
    """An existing Dask cluster, by the address of its scheduler; its workers need attsvm but no shared disk.

    A chunk whose worker dies is computed again by another one; it is stored once, here, when its bytes arrive. A worker
    computes one chunk at a time on one thread, however many threads it has: start one worker per core.

    Arguments:
        address: such as ``tcp://host:8786``.
        patience: seconds to wait for the scheduler, and for its first worker.

    Raises:
        ValueError: if the package distributed is missing, or no scheduler or no worker answers.
        ConnectionError: while computing, if the scheduler goes away.
        ChildProcessError: while computing, if several workers die while computing the same chunk.
    """

    address: str
    patience: float = 10.0

    def __call__(self, orders: Sequence[Order]) -> Generator[tuple[int, bytes], None, None]:
        try:
            from distributed import KilledWorker, as_completed
        except ImportError:
            raise ValueError("the dask backend needs the package distributed; pip install 'attsvm[dask]'") from None
        with _quiet(), self._client() as client:
            # Fresh keys: Dask would report a chunk that failed under an old key again without computing it.
            session = secrets.token_hex(6)
            keys = [f"attsvm-{order.task.name}-{session}" for order in orders]
            arguments = (range(len(orders)), list(orders))
            # Nothing else refers to the futures, so workers forget a chunk's bytes as soon as they have arrived here.
            futures = as_completed(
                client.map(compute_placed, *arguments, key=keys, pure=False), loop=client.loop, with_results=True
            )
            try:
                for _, found in futures:
                    if isinstance(found, BaseException):  # as_completed raises what a task raised, but not this
                        raise found
                    yield found
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
        """Try to connect once, before anything is computed; Dask itself would try a closed port again and again.

        Raises:
            ValueError: if no scheduler answers at the address.
        """
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
            client.wait_for_workers(1, timeout=self.patience)
        except TimeoutError:
            client.close()
            raise ValueError(
                f"the Dask cluster at {self.address} has no workers; start some with `dask worker {self.address}`"
            ) from None
        return client


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
    before = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
