"""What experiments share: seeds and streams, recorded steps, long tables, and the SVMs of what a run selected."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, Self

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.data import TokenDataset, streams
from attsvm.descent import Run
from attsvm.experiments.base import Check, Verdict
from attsvm.norms import Frobenius, Norm, Nuclear, direction_cosine
from attsvm.svm import AttentionSVM, SVMSolution, solve
from attsvm.sweep import Configuration, Task, chunked

NORMS: Mapping[str, Norm] = {"frobenius": Frobenius(), "nuclear": Nuclear()}
"""The norms of the two SVMs that W and (K, Q) are compared with, by their names in tables."""

APART, FARTHER_APART = 1_000_003, 2_000_003  # added to the seed of the data for streams of their own

_REACHED = 0.99
_DENSE = 200
_SPARSE = 80


@dataclass(frozen=True, kw_only=True)
class DataSets(Configuration):
    """Base of the configuration of an experiment on many data sets."""

    datasets: int = 100  # how many
    chunk_size: int = 50  # how many of them one task computes

    runs_field: ClassVar[str | None] = "datasets"

    def quick(self) -> Self:
        return self.with_values(datasets=20)

    def chunks(self, name: str = "datasets", **values: Any) -> list[Task]:
        """Tasks that share out the data sets, named after `name`; each of them knows `values`."""
        return chunked(name, self.datasets, self.chunk_size, **values)


def seeds_of(configuration: Configuration, task: Task) -> list[tuple[int, int]]:
    """The stream (seed, number) of every data set of a chunk: cutting the chunks otherwise draws the same data."""
    return [(configuration.seed, number) for number in range(task.values["first"], task.values["last"])]


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


def long_column(values: object, shape: tuple[int, ...], axis: int | None = None) -> np.ndarray:
    """`values`, which broadcast to `shape` or belong to its `axis`, as one column of a table whose rows run through it.

    >>> long_column([10, 20], (2, 3), axis=0).tolist()
    [10, 10, 10, 20, 20, 20]
    """
    array = _array(values)
    if axis is not None:
        array = array.reshape([-1 if place == axis else 1 for place in range(len(shape))])
    return np.broadcast_to(array, shape).reshape(-1)


def stacked(parts: Sequence[Mapping[str, object]]) -> dict[str, np.ndarray]:
    """Tables of the same columns one below the other; columns are flattened, a scalar fills all rows of its part.

    >>> stacked([{"step": [0, 1], "run": "W"}, {"step": [5], "run": "KQ"}])["run"].tolist()
    ['W', 'W', 'KQ']
    """
    whole = []
    for part in parts:
        arrays = {name: _array(value) for name, value in part.items()}
        rows = next((array.size for array in arrays.values() if array.ndim), 1)
        whole.append({name: array.reshape(-1) if array.ndim else np.repeat(array, rows)
                      for name, array in arrays.items()})  # fmt: skip
    return {name: np.concatenate([part[name] for part in whole]) for name in whole[0]}


def _array(values: object) -> np.ndarray:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def allowance(deviation: float, count: int, public: int) -> float:
    """Three standard errors of the difference between a mean of `count` values and a public one: what chance explains.

    `deviation` is that of one value, sqrt(p (1 - p)) for a share p; `public` values are behind the public mean.

    >>> round(allowance(0.5, 100, 100), 3)
    0.212
    """
    return float(3 * deviation * np.sqrt(1 / count + 1 / public))


def rises(shares: Sequence[float], count: int) -> bool:
    """Whether shares of `count` draws each rise, from the first to the last and as far as chance lets one say.

    The last must lie above the first, and none below an earlier one, each time by more than three standard errors.

    >>> rises([0.1, 0.5, 0.45, 0.9], 100), rises([0.1, 0.9, 0.5], 100), rises([0.5, 0.5], 100)
    (True, False, False)
    """

    def climb(before: float, after: float) -> float:
        middle = (before + after) / 2
        return (after - before) / allowance(max(np.sqrt(middle * (1 - middle)), 1e-9), count, count)

    return climb(shares[0], shares[-1]) > 1 and all(climb(a, b) >= -1 for a, b in combinations(shares, 2))


def turning(
    what: str, expected: str, cosines: Callable[[int], np.ndarray], recorded: np.ndarray, last: int, *, enough: bool
) -> Check:
    """A check that the directions of all runs tend to their limits, the slowest included.

    A run that is not there yet, at a cosine of .99 or less, must be on its way: while attention saturates the angle
    falls like the inverse of the norm, 1 - cosine like its square. Half that pace is asked for, over the last half of
    the steps, since a run may turn late. `cosines` gives those of every run at a recorded step; `enough` says whether
    the runs are long enough to judge those that are not there yet.
    """
    half = int(recorded[recorded <= last / 2].max())
    after, growth = cosines(last), last / half
    there = after > _REACHED
    stuck = ~there & ~(1 - after <= (1 - cosines(half)) / growth)  # so is a run without a cosine
    decided = len(after) > 0 and (enough or bool(there.all()))
    return Check(
        what,
        expected,
        f"{there.sum()} of {len(after)} above .99, {stuck.sum()} stuck"
        + (f"; median {np.median(after):.5f}, least {after.min():.4f}" if len(after) else ""),
        Verdict.of(not stuck.any(), enough=decided),
        f"a run ends at a cosine of .99 or less, and 1 - cosine fell less than {growth:.2f}-fold from step {half:,} to"
        f" {last:,}",
        "" if decided else "so few runs or steps do not decide",
    )


def own_svms(data: TokenDataset, run: Run) -> dict[str, SVMSolution]:
    """Both SVMs of the selection that `run` reached on `data`, by the names of `NORMS`."""
    problem = AttentionSVM(data, run.selected)
    return {name: solve(problem, norm) for name, norm in NORMS.items()}


def cosine_columns(run: Run, solutions: Mapping[str, SVMSolution], shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    """The columns ``cosine_NAME``: the direction cosine to each solution at every recorded step."""
    assert run.history.weights is not None
    weights = run.history.weights
    return {
        f"cosine_{name}": long_column(direction_cosine(weights, each.weights), shape)
        for name, each in solutions.items()
    }


def selected_attention(run: Run) -> Float[Tensor, "records *batch n"]:
    """Attention at every recorded step on the tokens that are selected in the end."""
    attention = run.history.attention
    assert attention is not None
    chosen = run.selected.expand(len(attention), *run.selected.shape).unsqueeze(-1)
    return attention.gather(-1, chosen).squeeze(-1)


def separating_offsets(problem: AttentionSVM, weights: Float[Tensor, "*batch d dq"]) -> Float[Tensor, "*batch n"]:
    """c_i of the lines ``x^T W z_i = c_i`` half-way between the selected token and the nearest of its input's others.

    For max-margin weights and an input with support tokens, half-way is a margin of 1/2 from either side.
    """
    margins = problem.margins(weights).masked_fill(~problem.rows, torch.inf)
    directions = torch.einsum("...de,...ie->...id", weights, problem.data.queries)
    kept = (problem.data.tokens_of(problem.reference) * directions).sum(-1)
    return kept - margins.amin(-1) / 2
