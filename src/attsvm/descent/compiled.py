"""The compiled engine: many small runs at once on the CPU."""

from __future__ import annotations

import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attsvm.attention import Exponential, KeyQuery, Linear, LinearHead, Logistic, Weights
from attsvm.attention.gradient import fixed_scores
from attsvm.descent.engine import Advance, Engine, Progress, Task, TorchEngine
from attsvm.descent.optimizers import GradientDescent, NormalizedGradientDescent, SteepestDescent
from attsvm.norms import Frobenius, MaxEntry

# Scores beyond this would let the slope of the loss leave the range in which the kernel keeps it unscaled.
_LARGEST_SCORE = 300.0
_LOSSES: dict[type, int] = {Logistic: 0, Exponential: 1, Linear: 2}


@dataclass(frozen=True)
class CompiledEngine(Engine):
    """Numba kernels that run eight data sets side by side in vector registers, one thread a share of the batch.

    For a fixed linear head with gradient, normalized or sign descent, in float64 on the CPU. The data are laid out once
    more, lane by lane; several starts of one data set share that copy.

    Arguments:
        threads: None means `torch.get_num_threads()`.
    """

    threads: int | None = None

    def refusal(self, task: Task, starts: int) -> str | None:
        data = task.data
        checks = (
            (data.device.type == "cpu", f"it runs on the CPU, and the data are on {data.device}"),
            (data.dtype == torch.float64, "it computes in float64"),
            (isinstance(task.head, LinearHead) and not task.train_head, "it needs a fixed linear head"),
            (type(task.loss) in _LOSSES, "it knows Logistic, Exponential and Linear losses"),
            (type(task.parameterization) in (Weights, KeyQuery), "it knows Weights and KeyQuery"),
            (_rule(task) is not None, "it knows gradient, normalized and sign descent without momentum"),
            (task.batches is None, "it takes no mini-batches"),
            (data.queries_per_sequence == 1, "it does not share tokens between queries"),
        )
        for holds, reason in checks:
            if not holds:
                return reason
        if float(_scores(task).abs().amax()) > _LARGEST_SCORE:
            return f"scores beyond {_LARGEST_SCORE:g} need the scaled slopes of TorchEngine"
        return None

    def prepare(self, task: Task, starts: int) -> Advance:
        layout = _Layout(task, starts)

        def advance(progress: Progress, first: int, sizes: np.ndarray) -> None:
            self._advance(task, layout, progress, first, sizes)

        return advance

    def _advance(self, task: Task, layout: _Layout, progress: Progress, first: int, sizes: np.ndarray) -> None:
        from attsvm.descent import compiled_kernel as kernel  # Numba starts only where it is used

        names = list(progress.parameters)
        arrays = [layout.pack(progress.parameters[name]) for name in names]
        active = layout.pack(progress.active.to(torch.float64))
        stalled = np.zeros(active.shape, dtype=np.bool_)
        factors = layout.pack(task.factors.to(torch.float64).expand(progress.active.shape))
        run = kernel.descend_weights if len(arrays) == 1 else kernel.descend_factors
        rule, loss = _rule(task), _LOSSES[type(task.loss)]

        def share(part: slice) -> None:
            run(
                layout.tokens,
                layout.queries,
                layout.scores,
                layout.real,
                layout.pack_of[part],
                *(array[part] for array in arrays),
                sizes,
                factors[part],
                rule,
                loss,
                active[part],
                stalled[part],
            )

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


def _rule(task: Task) -> int | None:
    optimizer = task.optimizer
    if type(optimizer) is NormalizedGradientDescent:
        return 0
    if type(optimizer) is GradientDescent:
        return 1
    if type(optimizer) is SteepestDescent and optimizer.momentum == 0:
        return {Frobenius: 0, MaxEntry: 2}.get(type(optimizer.norm))
    return None


def _scores(task: Task) -> Tensor:
    """Token scores ``[batch, n, T]``, 0 at masked tokens."""
    scores = fixed_scores(task.data, task.head)
    assert scores is not None  # refused otherwise
    return scores[0] if task.data.mask is None else scores[0].masked_fill(~task.data.mask, 0.0)


class _Layout:
    """Where run (start, element) sits: group and lane. Lanes hold different data sets, or, where those are fewer than
    lanes, different starts of the same one."""

    def __init__(self, task: Task, starts: int) -> None:
        from attsvm.descent.lanes import LANES

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
        self.scores = _lanes_last(_scores(task), members)
        real = torch.ones(data.n, data.T, dtype=torch.float64) if data.mask is None else data.mask.to(torch.float64)
        self.real = _lanes_last(real.expand(batch, data.n, data.T), members)

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
