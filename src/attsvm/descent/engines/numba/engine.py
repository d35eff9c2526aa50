"""The compiled engine: many small runs at once on the CPU."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from attsvm.descent.engines.base import Advance, Engine, Progress
from attsvm.descent.engines.kernel_task import KernelData, packed_memory, step_table, task_refusal, unpacked_memory
from attsvm.descent.engines.torch import TorchEngine
from attsvm.descent.task import Task


@dataclass(frozen=True)
class CompiledEngine(Engine):
    """Numba kernels that run eight data sets side by side in vector registers, one thread a share of the batch.

    For a fixed linear, ReLU or quadratic head with gradient, normalized, sign or spectral descent or Adam, in float64.
    The data are laid out once more, lane by lane; several starts of one data set share that copy.

    Arguments:
        threads: None means `torch.get_num_threads()`.
    """

    threads: int | None = None

    def refusal(self, task: Task, starts: int) -> str | None:
        if task.data.device.type != "cpu":
            return f"it runs on the CPU, and the data are on {task.data.device}"
        if task.data.dtype != torch.float64:
            return "it computes in float64"
        return task_refusal(task)

    def prepare(self, task: Task, starts: int) -> Advance:
        return partial(self._advance, task, _Layout(task, starts))

    def _advance(self, task: Task, layout: _Layout, progress: Progress, first: int, sizes: np.ndarray) -> None:
        from attsvm.descent.engines.matrices import rotated_numbers  # Numba starts only where it is used
        from attsvm.descent.engines.step import descend_lanes

        names = list(progress.parameters)
        matrices = [layout.pack(progress.parameters[name]) for name in names]
        factors = layout.pack((task.factors * progress.active).unsqueeze(-1))
        stalled = np.zeros(factors.shape)
        memories = [layout.pack(packed_memory(progress.state, name)) for name in names if progress.state]
        nothing = np.zeros((len(layout.pack_of), 2, layout.lanes))
        two, kept = (*matrices, nothing)[:2], (*memories, nothing, nothing)[:2]
        table, numbers = step_table(task, first, sizes), rotated_numbers(layout.shape)

        def share(part: slice) -> None:
            own = [*(array[part] for array in two), tuple(memory[part] for memory in kept)]
            rotated = np.empty((numbers, layout.lanes)) if numbers else None
            told = (table, factors[part], layout.shape, stalled[part], rotated)
            descend_lanes(layout.data, layout.pack_of[part], *own, *told)

        groups = len(layout.pack_of)
        workers = min(self.threads or torch.get_num_threads(), groups)
        edges = np.linspace(0, groups, workers + 1).astype(int)
        parts = [slice(low, high) for low, high in itertools.pairwise(edges)]
        if workers == 1:
            share(parts[0])
        else:
            with ThreadPoolExecutor(workers) as pool:
                list(pool.map(share, parts))
        if self._in_range(layout, matrices):
            progress.parameters = {
                name: layout.unpack(array).reshape(progress.parameters[name].shape)
                for name, array in zip(names, matrices, strict=True)
            }
            progress.state = unpacked_memory([layout.unpack(memory) for memory in memories], progress.state)
            progress.stalled |= (layout.unpack(stalled)[..., 0] > 0) & progress.active
        else:
            # Some run left the range of floating point on the way: the other engine finds its last finite step.
            TorchEngine().prepare(task, layout.runs[0])(progress, first, sizes)

    @staticmethod
    def _in_range(layout: _Layout, matrices: list[np.ndarray]) -> bool:
        """Whether weights are finite and far from logits that are not; the kernel does not carry NaN through."""
        reach = layout.reach
        for array in matrices:
            reach *= max(float(array.max()), -float(array.min())) * array.shape[1]
        return reach < 1e300  # False for NaN as well


class _Layout:
    """Where run (start, element) sits: group and lane. Lanes hold different data sets, or, where those are fewer than
    lanes, different starts of the same one."""

    def __init__(self, task: Task, starts: int) -> None:
        from attsvm.descent.engines.numba.lanes import LANES
        from attsvm.descent.engines.step import Data

        data, batch = KernelData.of(task), task.data.batch_shape[0]
        self.runs = (starts, batch)
        self.lanes = LANES
        by_start = batch < LANES and starts > 1
        inner, outer = (starts, batch) if by_start else (batch, starts)
        lanes = np.minimum(np.arange(-(-inner // LANES) * LANES), inner - 1).reshape(-1, LANES)
        across, along = np.tile(lanes, (outer, 1)), np.repeat(np.arange(outer), len(lanes))
        start, element = (across, along[:, None]) if by_start else (along[:, None], across)
        self.pack_of = along if by_start else np.tile(np.arange(len(lanes)), outer)
        members = np.repeat(np.arange(batch)[:, None], LANES, 1) if by_start else lanes
        self._index = start * batch + element  # [groups, lanes]; lanes past the end repeat the last run
        self._place = np.empty(starts * batch, dtype=np.int64)
        self._place[self._index.ravel()[::-1]] = np.arange(self._index.size)[::-1]
        self.reach = float(task.data.tokens.abs().amax()) * float(task.data.queries.abs().amax())
        self.shape = data.shape(task)
        parts = (data.tokens, data.scores, data.features, data.labels, data.queries)
        self.data = Data(*(_lanes_last(part.flatten(1), members) for part in parts))

    def pack(self, value: Tensor) -> np.ndarray:
        """``[starts, batch, ...]`` as ``[groups, entries, lanes]``."""
        return _lanes_last(value.flatten(0, 1).flatten(1), self._index)

    def unpack(self, array: np.ndarray) -> Tensor:
        """The inverse of `pack`, ``[starts, batch, entries]``."""
        rows = np.moveaxis(array, -1, 1).reshape(-1, array.shape[1])[self._place]
        return torch.from_numpy(np.ascontiguousarray(rows)).reshape(*self.runs, -1)


def _lanes_last(value: Tensor, members: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(value.contiguous().numpy()[members], 1, -1))
