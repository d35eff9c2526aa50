"""All that a worker needs to compute one chunk, wherever it is."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from attsvm.experiments.chunks import as_chunk, encode
from attsvm.experiments.clock import Clock
from attsvm.experiments.configuration import Configuration
from attsvm.experiments.experiment import Experiment, Task

# The number of threads and the CPU clock belong to the process: a Dask worker with several threads takes turns.
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True)
class Order:
    """One chunk to compute; it travels to the worker, and the chunk's bytes travel back."""

    experiment: Experiment[Any]
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
