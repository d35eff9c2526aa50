"""What the experiments in the plane share: which steps they keep, columns of long tables, separating lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.svm import AttentionSVM

_DENSE = 200
_SPARSE = 80


def path_steps(steps: int) -> list[int]:
    """Every step while a path is among the tokens, then ever more sparsely; 100, 200, 300, 500 and their decades too.

    >>> path_steps(3), path_steps(1000)[199:203], path_steps(1000)[-1]
    ([0, 1, 2, 3], [199, 200, 204, 208], 1000)
    """
    round_ones = {factor * 10**power for factor in (1, 2, 3, 5) for power in range(2, 7)}
    spread = np.geomspace(_DENSE, steps, _SPARSE).round().astype(int).tolist() if steps > _DENSE else []
    return sorted({*range(min(steps, _DENSE) + 1), *spread, *(step for step in round_ones if step <= steps), steps})


def long_column(values: object, shape: tuple[int, ...], axis: int | None = None) -> np.ndarray:
    """`values` as one column of a table whose rows run through `shape`.

    Arguments:
        values: of that shape, or one value for each place along `axis`.
        shape: of the quantities in the table.
        axis: None for values of the full shape.

    >>> long_column([10, 20], (2, 3), axis=0).tolist()
    [10, 10, 10, 20, 20, 20]
    """
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if axis is not None:
        array = array.reshape([-1 if place == axis else 1 for place in range(len(shape))])
    return np.broadcast_to(array, shape).reshape(-1)


def stacked(parts: Sequence[Mapping[str, object]]) -> dict[str, np.ndarray]:
    """Tables of the same columns one below the other; a scalar fills all rows of its part.

    >>> stacked([{"step": [0, 1], "run": "W"}, {"step": [5], "run": "KQ"}])["run"].tolist()
    ['W', 'W', 'KQ']
    """
    whole = []
    for part in parts:
        arrays = {name: np.asarray(value) for name, value in part.items()}
        rows = max(array.size for array in arrays.values())
        whole.append({name: np.repeat(array, rows) if array.ndim == 0 else array for name, array in arrays.items()})
    return {name: np.concatenate([part[name] for part in whole]) for name in whole[0]}


def separating_offsets(problem: AttentionSVM, weights: Float[Tensor, "*batch d dq"]) -> Float[Tensor, "*batch n"]:
    """c_i of the lines ``x^T W z_i = c_i`` half-way between the selected token and the nearest of its input's others.

    For max-margin weights and an input with support tokens, half-way is a margin of 1/2 from either side.
    """
    margins = problem.margins(weights).masked_fill(~problem.rows, torch.inf)
    directions = torch.einsum("...de,...ie->...id", weights, problem.data.queries)
    kept = (problem.data.tokens_of(problem.reference) * directions).sum(-1)
    return kept - margins.amin(-1) / 2
