"""The CUDA engine: very many small runs at once on an NVIDIA GPU."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attsvm.data.machine import numba_sees_gpu
from attsvm.descent.engines.base import Advance, Engine, Progress
from attsvm.descent.engines.kernel_task import KernelData, packed_memory, step_table, task_refusal, unpacked_memory
from attsvm.descent.task import Task

_WARP, _MOST_THREADS, _MOST_INPUTS = 32, 256, 1024
_MANY = 50_000  # runs for which the fastest kernel is worth the time of its compiler


@dataclass(frozen=True)
class CudaEngine(Engine):
    """Numba's CUDA: one thread for each input of a run, or several, a stretch of steps a launch.

    For a fixed linear, ReLU or quadratic head with gradient, normalized, sign or spectral descent or Adam. Inside a
    stretch it computes in float64, also for float32 data. Several starts of one data set read the same data. The first
    task of each kind waits for a compiler, and from 50,000 runs on the first of each size.

    Arguments:
        threads: of a block, a multiple of 32 up to 256, more where a run needs more; None chooses by the size of the
            data. Spectral steps take 32, or as many as a run needs.

    Raises:
        ValueError: if `threads` is not such a number.
    """

    threads: int | None = None

    def __post_init__(self) -> None:
        if self.threads is not None and self.threads not in range(_WARP, _MOST_THREADS + 1, _WARP):
            expected = f"a multiple of {_WARP} up to {_MOST_THREADS}, or None"
            raise ValueError(f"threads must be {expected}; got {self.threads!r}")

    def refusal(self, task: Task, starts: int) -> str | None:
        if task.data.device.type != "cuda":
            return f"it runs on a CUDA device, and the data are on {task.data.device}"
        if task.data.n > _MOST_INPUTS:
            return f"it takes at most {_MOST_INPUTS} inputs"
        if not numba_sees_gpu():
            return "Numba finds no CUDA device; the package numba-cuda may be missing"
        return task_refusal(task)

    def prepare(self, task: Task, starts: int) -> Advance:
        return Launch(task, starts, self.threads).advance


class Launch:
    """A task laid out for the kernel."""

    def __init__(self, task: Task, starts: int, threads: int | None, **variant: Any) -> None:
        from attsvm.descent.engines.cuda.kernel import Plan, build, in_span, parts_of

        self._task, self._lead, self.device = task, (starts, task.data.batch_shape[0]), task.data.device
        data = KernelData.of(task, parts_of(task.data))
        self.shape = data.shape(task)
        self._span = in_span(self.shape)
        many = starts * task.data.batch_shape[0] >= _MANY
        self._plan = Plan(self.shape, threads, **{"unrolled": many, **variant})
        self._kernel = build(self._plan)

        def by_worker(value: Tensor) -> Tensor:
            """``[batch, n, parts, ...]`` as ``[batch, entries, workers]``, so that neighbors read neighbors."""
            return _some(value.flatten(3).flatten(1, 2).mT)

        self._queries = data.queries
        self._data = [by_worker(value) for value in (data.tokens, data.scores, data.features)]
        self._data += [data.labels.contiguous(), data.queries.flatten(1).contiguous()]
        # Product, then sum: equal queries then have equal products.
        products = (data.queries.unsqueeze(1) * data.queries.unsqueeze(2)).sum(-1)
        self._products = products.flatten(1).contiguous()
        self._numbers = torch.tensor(list(self._plan.numbers.values()), device=self.device)
        # Bytes of shared memory that the kernel asks for.
        self._shared = 0 if self._plan.unrolled or self._plan.scratch else 8 * self._plan.space
        self._factors = task.factors.double().expand(self._lead).reshape(-1).contiguous()

    def advance(self, progress: Progress, first: int, sizes: np.ndarray) -> None:
        """Take a stretch of steps."""
        before, runs = progress.parameters, self._lead[0] * self._lead[1]
        which = progress.active.reshape(-1).nonzero()[:, 0]
        stalled = torch.zeros(runs, dtype=torch.float64, device=self.device)
        flat = {name: value.double().reshape(runs, *value.shape[2:]) for name, value in before.items()}
        table = torch.from_numpy(step_table(self._task, first, sizes)).to(self.device)
        blocks = -(-len(which) // self._plan.runs)
        scratch = torch.empty((blocks, max(1, self._plan.scratch)), dtype=torch.float64, device=self.device)
        told = [table, self._factors, which, stalled, scratch, self._numbers]
        memories: list[Tensor] = []
        if self._span:
            weights = flat["weights"].reshape(*self._lead, *flat["weights"].shape[1:])
            starts = (self._queries @ weights.mT).reshape(runs, -1).contiguous()
            ends = torch.zeros_like(starts)
            self._run([*self._data, starts, ends, self._products, *told], blocks)
            way = ends.reshape(*self._lead, self.shape.n, self.shape.d).mT @ self._queries
            found = [(weights - way).reshape(runs, -1)]
        else:
            found = [value.flatten(1).clone(memory_format=torch.contiguous_format) for value in flat.values()]
            memories = [
                packed_memory(progress.state, name).flatten(0, 1).contiguous() for name in before if progress.state
            ]
            nothing = torch.zeros((runs, 2), dtype=torch.float64, device=self.device)
            self._run([*self._data, *(*found, nothing)[:2], *(*memories, nothing, nothing)[:2], *told], blocks)
        moved = {name: value.reshape(before[name].shape) for name, value in zip(before, found, strict=True)}
        self._keep(progress, moved, [value.reshape(*self._lead, -1) for value in memories], stalled)

    def _keep(self, progress: Progress, moved: dict[str, Tensor], memories: list[Tensor], stalled: Tensor) -> None:
        """Take over what the kernel found of runs that are active and stayed in the range of floating point."""
        before, state = progress.parameters, progress.state
        moved = {name: value.to(before[name].dtype) for name, value in moved.items()}
        finite = self._task.in_range(moved)
        kept = progress.active & finite

        def chosen(new: Tensor, old: Tensor) -> Tensor:
            return torch.where(kept.reshape(*kept.shape, *(1,) * (new.ndim - 2)), new, old)

        progress.parameters = {name: chosen(value, before[name]) for name, value in moved.items()}
        later = unpacked_memory(memories, state)
        progress.state = {name: chosen(value, state[name]) for name, value in later.items()}
        progress.overflowed |= ~finite & progress.active
        progress.active &= ~progress.overflowed
        progress.stalled |= (stalled.reshape(self._lead) > 0) & progress.active

    @contextmanager
    def _current(self) -> Iterator[None]:
        """The data's device is the current one, for torch and for Numba."""
        from numba import cuda

        with torch.cuda.device(self.device), cuda.gpus[torch.cuda.current_device()]:
            yield

    def _run(self, tensors: list[Tensor], blocks: int) -> None:
        from numba import cuda

        if blocks == 0 or len(tensors[-6]) == 0:  # no runs, or no steps
            return
        if self.device.type == "cpu":  # in tests
            self._kernel[blocks, self._plan.threads, 0, self._shared](*(tensor.numpy() for tensor in tensors))
            return
        with self._current(), warnings.catch_warnings():
            # A few runs leave most of the device idle; the warning's class moved between versions, its words did not.
            warnings.filterwarnings("ignore", message=".*under-utilization")
            # The kernel joins torch's own stream, so everything stays in order without waiting.
            handle = torch.cuda.current_stream().cuda_stream
            stream = cuda.external_stream(handle) if handle else 0
            launch = self._kernel[blocks, self._plan.threads, stream, self._shared]
            launch(*(cuda.as_cuda_array(tensor) for tensor in tensors))


def _some(value: Tensor) -> Tensor:
    """Contiguous, and never empty: an array without numbers has no place on a device."""
    return value.contiguous() if value.numel() else value.new_zeros((len(value), 1, value.shape[-1]))
