"""What an engine is, what it advances, and which one runs a task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from attsvm.attention import QuadraticHead, ReluHead
from attsvm.descent.optimizers.base import Optimizer, State
from attsvm.descent.task import Task

# A compiled run fills eight lanes; with fewer runs than this, on data larger than this, BLAS is faster.
_FEW_RUNS = 4
_LARGE = 20_000
# Likewise LAPACK on polar factors of higher rank than this.
_HIGH_RANK = 24
# With more features of tokens than this, BLAS on attended values is faster than mixing features.
_WIDE = 100_000


@dataclass(eq=False)
class Progress:
    """The moving part of a batch of runs; tensors are ``[starts, batch, ...]``."""

    parameters: dict[str, Tensor]  # the present iterate
    state: State  # what the optimizer remembers
    active: Tensor  # runs that go on
    stalled: Tensor  # runs that met a gradient of exactly zero
    overflowed: Tensor  # runs whose next step would have left the range of floating point
    taken: Tensor  # steps taken so far
    memory: dict[str, Tensor] = field(default_factory=dict)  # what the stopping rule remembers

    @classmethod
    def beginning(cls, parameters: dict[str, Tensor], optimizer: Optimizer) -> Progress:
        """All runs at their start, active."""
        like = next(iter(parameters.values()))
        none = torch.zeros(like.shape[:2], dtype=torch.bool, device=like.device)
        return cls(parameters, optimizer.start(parameters), ~none, none.clone(), none.clone(), none.to(torch.int64))


Advance = Callable[[Progress, int, np.ndarray], None]
"""Called with (progress, first, sizes): takes ``len(sizes)`` steps, numbered from `first`, in place."""


class Engine(ABC):
    """Advances a batch of runs by some steps; all engines give the same iterates up to rounding.

    Attributes:
        torch_threads: whether PyTorch's threads do the work, of which small runs should have one.
    """

    torch_threads = False

    @abstractmethod
    def refusal(self, task: Task, starts: int) -> str | None:
        """Why this engine cannot run the task, as a clause; None if it can."""

    @abstractmethod
    def prepare(self, task: Task, starts: int) -> Advance:
        """Lay out the task once; the result advances it, stretch by stretch."""


def choose_engine(engine: Engine | None, task: Task, starts: int) -> tuple[Engine, str | None]:
    """The engine asked for (a ValueError if it cannot run the task) or the fastest that can, and, where that is
    PyTorch's although a compiled one was not ruled out by the caller, why."""
    from attsvm.descent.engines.cuda.engine import CudaEngine  # engines import this file
    from attsvm.descent.engines.kernel_task import rotated_rows
    from attsvm.descent.engines.numba.engine import CompiledEngine
    from attsvm.descent.engines.torch import TorchEngine

    if engine is not None:
        if (refusal := engine.refusal(task, starts)) is not None:
            raise ValueError(f"{type(engine).__name__} cannot run this task: {refusal}")
        return engine, None
    data = task.data
    compiled = CudaEngine() if data.device.type == "cuda" else CompiledEngine()
    reason = compiled.refusal(task, starts)
    if reason is None and isinstance(task.head, QuadraticHead):
        reason = "where the pull of a token vanishes to first order, as with a quadratic head, it is not accurate"
    if reason is None and data.device.type == "cpu":
        few = starts * data.batch_shape[0] < _FEW_RUNS
        wide = isinstance(task.head, ReluHead) and data.n * data.T * task.head.matrix.shape[-1] > _WIDE
        large = data.n * data.T * data.d > _LARGE or rotated_rows(task) > _HIGH_RANK
        if wide or (few and large):
            reason = "it is slower on a few large data sets, or with so wide a head"
    found = f"{type(compiled).__name__} does not suit: {reason}"
    return (compiled, None) if reason is None else (TorchEngine(), found)
