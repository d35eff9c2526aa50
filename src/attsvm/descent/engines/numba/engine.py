"""The compiled engine: many small runs at once on the CPU."""

from __future__ import annotations

import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attsvm.descent.engines.base import Advance, Engine, Progress
from attsvm.descent.engines.kernel_task import codes_of, head_terms, task_refusal
from attsvm.descent.engines.torch import TorchEngine
from attsvm.descent.task import Task

# Scores beyond this would let the slope of the loss leave the range in which the kernel keeps it unscaled.
_LARGEST_SCORE = 300.0


@dataclass(frozen=True)
class CompiledEngine(Engine):
    """Numba kernels that run eight data sets side by side in vector registers, one thread a share of the batch.

    For a fixed linear, ReLU or quadratic head with gradient, normalized or sign descent, in float64 on the CPU. The
    data are laid out once more, lane by lane; several starts of one data set share that copy.

    Arguments:
        threads: None means `torch.get_num_threads()`.
    """

    threads: int | None = None

    def refusal(self, task: Task, starts: int) -> str | None:
        if task.data.device.type != "cpu":
            return f"it runs on the CPU, and the data are on {task.data.device}"
        if task.data.dtype != torch.float64:
            return "it computes in float64"
        return task_refusal(task, _LARGEST_SCORE, ridge=True)

    def prepare(self, task: Task, starts: int) -> Advance:
        layout = _Layout(task, starts)

        def advance(progress: Progress, first: int, sizes: np.ndarray) -> None:
            self._advance(task, layout, progress, first, sizes)

        return advance

    def _advance(self, task: Task, layout: _Layout, progress: Progress, first: int, sizes: np.ndarray) -> None:
        from attsvm.descent.engines.numba import kernel  # Numba starts only where it is used

        names = list(progress.parameters)
        arrays = [layout.pack(progress.parameters[name]) for name in names]
        active = layout.pack(progress.active.to(torch.float64))
        stalled = np.zeros(active.shape, dtype=np.bool_)
        factors = layout.pack(task.factors.to(torch.float64).expand(progress.active.shape))
        run = kernel.descend_weights if len(arrays) == 1 else kernel.descend_factors
        rule, loss = codes_of(task)
        log_ridge = math.log(task.ridge) if task.ridge > 0 else -math.inf

        data = (layout.tokens, layout.queries, layout.head, layout.real, layout.floors)

        def share(part: slice) -> None:
            own, told = [array[part] for array in arrays], (factors[part], rule, loss, log_ridge)
            run(*data, layout.pack_of[part], *own, sizes, *told, active[part], stalled[part])

        groups = len(layout.pack_of)
        workers = min(self.threads or torch.get_num_threads(), groups)
        edges = np.linspace(0, groups, workers + 1).astype(int)
        parts = [slice(low, high) for low, high in itertools.pairwise(edges)]
        if workers == 1:
            share(parts[0])
        else:
            with ThreadPoolExecutor(workers) as pool:
                list(pool.map(share, parts))
        if self._in_range(layout, arrays):
            progress.parameters = {name: layout.unpack(array) for name, array in zip(names, arrays, strict=True)}
            progress.stalled |= layout.unpack(stalled) & progress.active
        else:
            # Some run left the range of floating point on the way: the other engine finds its last finite step.
            TorchEngine().prepare(task, layout.shape[0])(progress, first, sizes)

    @staticmethod
    def _in_range(layout: _Layout, arrays: list[np.ndarray]) -> bool:
        """Whether weights are finite and far from logits that are not; the kernel does not carry NaN through."""
        reach = layout.reach
        for array in arrays:
            reach *= max(float(array.max()), -float(array.min())) * array.shape[1] * array.shape[2]
        return reach < 1e300  # False for NaN as well


class _Layout:
    """Where run (start, element) sits: group and lane. Lanes hold different data sets, or, where those are fewer than
    lanes, different starts of the same one."""

    def __init__(self, task: Task, starts: int) -> None:
        from attsvm.descent.engines.numba.head_kernel import FixedScores, MixedFeatures
        from attsvm.descent.engines.numba.lanes import LANES

        terms = head_terms(task.data, task.head)
        assert terms is not None  # refused otherwise
        data, batch = task.data, task.data.batch_shape[0]
        self.shape = (starts, batch)
        self.lanes = LANES
        by_start = batch < LANES and starts > 1
        packs = batch if by_start else math.ceil(batch / LANES)
        across = math.ceil(starts / LANES) if by_start else starts
        lane = np.arange(LANES)
        if by_start:
            group = np.arange(batch * across)
            start = np.minimum((group % across)[:, None] * LANES + lane, starts - 1)
            element = np.repeat((group // across)[:, None], LANES, 1)
            self.pack_of = group // across
            members = np.repeat(np.arange(batch)[:, None], LANES, 1)
        else:
            group = np.arange(starts * packs)
            start = np.repeat((group // packs)[:, None], LANES, 1)
            element = np.minimum((group % packs)[:, None] * LANES + lane, batch - 1)
            self.pack_of = group % packs
            members = element[:packs]
        self._index = start * batch + element  # [groups, lanes]; lanes past the end repeat the last run
        self._place = np.empty(starts * batch, dtype=np.int64)
        self._place[self._index.ravel()[::-1]] = np.arange(self._index.size)[::-1]
        self.reach = float(data.tokens.abs().amax()) * float(data.queries.abs().amax())
        self.tokens = _lanes_last(data.tokens, members)
        self.queries = _lanes_last(data.queries, members)
        # The least log-probability of a runner-up at which the kernel may keep terms unscaled, for each pack: slopes
        # of the loss differ by up to exp(2 bound), so a token may lie that far below the runner-up and yet decide.
        self.floors = np.maximum(-600.0, 2.0 * terms.bound.numpy()[members].max(1) - 660.0)
        scores = _lanes_last(terms.scores, members)
        self.head: FixedScores | MixedFeatures = FixedScores(scores)
        if terms.features is not None:
            features, labels = (_lanes_last(part, members) for part in (terms.features, data.labels))
            self.head = MixedFeatures(scores, features, labels, terms.curve)
        self.real = _lanes_last(data.real, members).astype(np.float64)

    def pack(self, value: Tensor) -> np.ndarray:
        """``[starts, batch, ...]`` as ``[groups, ..., lanes]``."""
        flat = value.reshape(-1, *value.shape[2:])
        return _lanes_last(flat, self._index)

    def unpack(self, array: np.ndarray) -> Tensor:
        """The inverse of `pack`."""
        rows = np.moveaxis(array, -1, 1).reshape(-1, *array.shape[1:-1])[self._place]
        return torch.from_numpy(np.ascontiguousarray(rows)).reshape(*self.shape, *array.shape[1:-1])


def _lanes_last(value: Tensor, members: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(value.contiguous().numpy()[members], 1, -1))
