"""Working sets of rows around the nuclear solver, for problems with thousands of rows.

Solve with a subset of the rows; add the rows its solution violates; repeat. The duals of a subset, padded with zeros, are feasible for
the whole problem, and so is a ray of a subset: an infeasible subset settles the whole. When no row is violated, the pair is optimal.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, allow-incomplete-defs
from __future__ import annotations

import torch
from torch import Tensor

from attsvm.svm.solvers.nuclear.solve import INFEASIBLE, NOT_CONVERGED, SOLVED, NuclearResult, solve_nuclear


def solve_nuclear_large(
    differences: Tensor,
    rows: Tensor,
    queries: Tensor,
    values: Tensor | None = None,
    equal: Tensor | None = None,
    *,
    tolerance: float = 1e-8,
    per_input: int = 2,
    max_rounds: int = 50,
    progress=None,
) -> NuclearResult:
    """As `solve_nuclear` with batch 1 ([1, n, T, d]), by working sets.

    `per_input` rows an input enter at the start and at most as many in every round; `progress(round, rows, violated, error)` is called
    after each round.
    """
    b = torch.ones_like(differences[..., 0]) if values is None else values.expand(rows.shape)
    fixed = torch.zeros_like(rows) if equal is None else equal
    size = differences.norm(dim=-1) * queries.norm(dim=-1)[..., None]
    # First guess: the rows a mean direction serves worst.
    unit = differences / size.clamp(min=1e-300)[..., None]
    mean = torch.einsum("bntd,bnt,bne->bde", unit, (rows & (b > 0)).to(unit), queries)
    chosen = _worst(_margins(unit, mean, queries), rows, per_input) | (rows & (size == 0))
    iterations = torch.zeros(1, dtype=torch.long, device=rows.device)
    for turn in range(max_rounds):
        # Zero rows with b > 0 stay in: they settle the problem.
        result = solve_nuclear(differences, chosen, queries, b, fixed, tolerance=tolerance)
        iterations += result.iterations
        if int(result.status[0]) == INFEASIBLE:
            break
        margins = _margins(differences, result.weights, queries)
        scale = torch.where(b == 0, size * result.weights.norm(), b.abs())
        short = (margins - b) / scale
        violated = rows & ~chosen & (short < -1e-12)
        count = int(violated.sum())
        if progress is not None:
            progress(turn, int(chosen.sum()), count, float(result.error[0]))
        if count == 0:
            break
        chosen = chosen | _worst(short, violated, per_input)
    else:
        result.status[:] = NOT_CONVERGED
    return NuclearResult(**{**result.__dict__, "iterations": iterations})


def _margins(differences: Tensor, weights: Tensor, queries: Tensor) -> Tensor:
    return (differences @ (weights @ queries.mT).mT[..., None])[..., 0]


def _worst(margins: Tensor, allowed: Tensor, count: int) -> Tensor:
    """Mask of the `count` smallest margins of every input among the allowed rows."""
    count = min(count, margins.shape[-1])
    order = torch.where(allowed, margins, torch.inf).topk(count, dim=-1, largest=False).indices
    return torch.zeros_like(allowed).scatter_(-1, order, True) & allowed
