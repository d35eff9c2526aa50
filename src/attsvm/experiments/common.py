"""What experiments share: streams, recorded steps, long tables, checks of many runs, what pictures of runs need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.attention import optimal_token_set, token_scores
from attsvm.data import TokenDataset, streams
from attsvm.descent import Run
from attsvm.norms import Frobenius, Norm, Nuclear
from attsvm.svm import AttentionSVM
from attsvm.sweep import Done
from attsvm.sweep.chunks import as_array

NORMS: Mapping[str, Norm] = {"frobenius": Frobenius(), "nuclear": Nuclear()}
"""The norms of the two SVMs that W and (K, Q) are compared with, by their names in tables."""

APART, FARTHER_APART = 1_000_003, 2_000_003  # added to the seed of the data for streams of their own

_DENSE = 200
_SPARSE = 80


def streams_apart(seeds: Sequence[tuple[int, int]], offset: int = APART) -> list[np.random.Generator]:
    """For every data set a stream apart from the one that draws its data: for starts, heads and whatever else."""
    return streams([(seed + offset, number) for seed, number in seeds], (len(seeds),))


def spread_steps(first: int, last: int, count: int, *also: int) -> list[int]:
    """Step 0, `count` steps from `first` to `last` ever farther apart, and the steps `also`.

    >>> spread_steps(10, 1000, 3, 500)
    [0, 10, 100, 500, 1000]
    """
    return sorted({0, *also, *np.geomspace(first, last, count).round().astype(int).tolist()})


def path_steps(steps: int) -> list[int]:
    """Every step while a path is among the tokens, then ever more sparsely; 100, 200, 300, 500 and their decades too.

    >>> path_steps(3), path_steps(1000)[199:203], path_steps(1000)[-1]
    ([0, 1, 2, 3], [199, 200, 204, 208], 1000)
    """
    round_ones = {factor * 10**power for factor in (1, 2, 3, 5) for power in range(2, 7)}
    spread = spread_steps(_DENSE, steps, _SPARSE) if steps > _DENSE else []
    return sorted({*range(min(steps, _DENSE) + 1), *spread, *(step for step in round_ones if step <= steps), steps})


def long_table(axes: Mapping[str, object], **columns: object) -> dict[str, np.ndarray]:
    """A table with a row for every combination of the values of its `axes`, the last axis fastest.

    Other columns broadcast to the lengths of the axes, as arrays do.

    >>> long_table({"step": [0, 5], "run": ["W", "KQ"]}, done=False, size=[1, 2])["size"].tolist()
    [1, 2, 1, 2]
    """
    grid = np.meshgrid(*map(as_array, axes.values()), indexing="ij")
    own = {name: np.broadcast_to(as_array(values), grid[0].shape) for name, values in columns.items()}
    return {name: values.reshape(-1) for name, values in {**dict(zip(axes, grid, strict=True)), **own}.items()}


def stacked(parts: Sequence[Mapping[str, object]]) -> dict[str, np.ndarray]:
    """Tables of the same columns one below the other; columns are flattened, a scalar fills all rows of its part.

    >>> stacked([{"step": [0, 1], "run": "W"}, {"step": [5], "run": "KQ"}])["run"].tolist()
    ['W', 'W', 'KQ']
    """
    whole = []
    for part in parts:
        columns = {name: as_array(value) for name, value in part.items()}
        lengths = {array.size for array in columns.values() if array.ndim} or {1}
        if len(lengths) > 1:
            raise ValueError(f"the columns of a table must have one length; got {sorted(lengths)}")
        whole.append({name: np.broadcast_to(array.reshape(-1), tuple(lengths)) for name, array in columns.items()})
    return {name: np.concatenate([part[name] for part in whole]) for name in whole[0]}


def so_far(done: Sequence[Done], reason: str, **values: object) -> tuple[int, int]:
    """Of the finished tasks with these values: how many draws they made, and how many they counted for `reason`."""
    own = [each for each in done if values.items() <= each.task.values.items()]
    return max(each.task.values["last"] for each in own), sum(each.counts[reason] for each in own)


def recorded(run: Run, what: str = "weights") -> Float[Tensor, "records *batch _ _"]:
    """The weights ``[d, dq]`` of a run at every recorded step, or its attention ``[n, T]``."""
    return getattr(run.history, what)


def scored(data: TokenDataset) -> dict[str, Tensor]:
    """The arrays with which a picture shows the tokens."""
    return {"tokens": data.tokens, "scores": token_scores(data), "optimal": optimal_token_set(data)}


def offsets_of(problem: AttentionSVM, weights: Float[Tensor, "*batch d dq"]) -> Float[Tensor, "*batch n"]:
    """c_i of the lines ``x^T W z_i = c_i`` half-way between the selected token and the nearest of its input's others.

    For max-margin weights and an input with support tokens, half-way is a margin of 1/2 from either side.
    """
    directions = torch.einsum("...de,...ie->...id", weights, problem.data.queries)
    kept = (problem.data.tokens_of(problem.reference) * directions).sum(-1)
    return kept - problem.margins(weights).masked_fill(~problem.rows, torch.inf).amin(-1) / 2
