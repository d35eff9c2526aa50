"""Working sets of rows around the nuclear solver, for problems with thousands of rows.

Solve with a subset of the rows; add the rows its solution violates; repeat. The duals of a subset, padded with zeros,
are feasible for the whole problem, and so is a ray of a subset: an infeasible subset settles the whole. When no row is
violated, the pair is optimal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from attsvm.svm.solvers.nuclear.solve import INFEASIBLE, NOT_CONVERGED, NuclearResult, solve_nuclear

_PER_INPUT = 2  # rows of an input that enter at the start, and at most as many in every round
_ROUNDS = 50


def solve_nuclear_large(
    differences: Tensor,
    rows: Tensor,
    queries: Tensor,
    values: Tensor,
    equal: Tensor,
    *,
    tolerance: float,
    progress: Callable[[int, int, int, float], None],
) -> NuclearResult:
    """As `solve_nuclear` with batch 1, by working sets.

    `progress` is called after each round with the round, the number of working rows, of rows violated, and the error.
    """
    size = differences.norm(dim=-1) * queries.norm(dim=-1)[..., None]
    # First guess: the rows a mean direction serves worst.
    unit = differences / size.clamp(min=1e-300)[..., None]
    mean = torch.einsum("bntd,bnt,bne->bde", unit, (rows & (values > 0)).to(unit), queries)
    chosen = _worst(_margins(unit, mean, queries), rows, _PER_INPUT) | (rows & (size == 0))
    iterations = torch.zeros(1, dtype=torch.long, device=rows.device)
    for turn in range(_ROUNDS):
        # Zero rows with b > 0 stay in: they settle the problem.
        result = solve_nuclear(differences, chosen, queries, values, equal, tolerance=tolerance)
        iterations += result.iterations
        if int(result.status[0]) == INFEASIBLE:
            break
        margins = _margins(differences, result.weights, queries)
        scale = torch.where(values == 0, size * result.weights.norm(), values.abs())
        short = (margins - values) / scale
        violated = rows & ~chosen & (short < -1e-12)
        count = int(violated.sum())
        progress(turn, int(chosen.sum()), count, float(result.error[0]))
        if count == 0:
            break
        chosen = chosen | _worst(short, violated, _PER_INPUT)
    else:
        result.status[:] = NOT_CONVERGED
    return replace(result, iterations=iterations)


def _margins(differences: Tensor, weights: Tensor, queries: Tensor) -> Tensor:
    """d_it^T W z_i."""
    return (differences @ (weights @ queries.mT).mT[..., None])[..., 0]


def _worst(margins: Tensor, allowed: Tensor, count: int) -> Tensor:
    """Mask of the `count` smallest margins of every input among the allowed rows."""
    count = min(count, margins.shape[-1])
    order = torch.where(allowed, margins, torch.inf).topk(count, dim=-1, largest=False).indices
    return torch.zeros_like(allowed).scatter_(-1, order, True) & allowed
