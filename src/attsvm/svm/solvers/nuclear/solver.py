"""Nuclear-norm attention SVMs, many at once, on the CPU or on a GPU.

The rows are normalised and reduced, and every problem is solved by one call of the compiled `kernel`. Problems whose
dual value grows without bound, or that do not converge, are tested for a ray.

Problems with many rows are solved by working sets: solve with a subset of the rows, add the rows its solution
violates, repeat. The duals of a subset, padded with zeros, are feasible for the whole problem, and so is a ray of a
subset: an infeasible subset settles the whole. When no row is violated, the pair is optimal.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attsvm.data.machine import numba_sees_gpu
from attsvm.norms import Frobenius, Norm, Nuclear
from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.active_set.solver import ActiveSet
from attsvm.svm.solvers.base import ProgressReport, RawSolution, Solver, in_shares, row_kinds
from attsvm.svm.solvers.nuclear.rows import ReducedRows, normalise

_PATIENCE, _LIMIT = 16, 1e4  # iterations of a stage, and normalised dual value, after which a ray is looked for
_LAST = 60  # iterations of a stage where none was found
_PER_INPUT = 2  # working rows of an input at the start, and at most as many more in every round
_ROUNDS = 50  # of working sets
_FEWEST, _MOST_ROWS = 512, 128  # problems for which a GPU is worth it, and rows that a block of it can bear
_CHUNK = 2**17  # problems at a time


@dataclass(frozen=True)
class NuclearInteriorPoint(Solver):
    """Primal-dual interior point, then a Newton polish on the identified rank and active rows, compiled.

    Problems with more than `most_rows` rows are solved by working sets: a subset of rows, then the rows its solution
    violates. On a GPU two warps share a problem; fewer problems than are worth it, or larger ones, stay on the CPU.

    Arguments:
        most_rows: rows handled at once; their Schur matrix has this order squared.
    """

    norms = (Nuclear,)
    accuracy: float = 1e-8
    most_rows: int = 400

    def solve(self, problem: AttentionSVM, norm: Norm, initial: Tensor | None, progress: ProgressReport) -> RawSolution:
        count, large = problem.batch_shape[0], problem.most_rows > self.most_rows
        if large:
            found = [_solve_large(problem[e : e + 1], self.accuracy, progress) for e in range(count)]
        else:
            found = [_solve(problem[first : first + _CHUNK], self.accuracy) for first in range(0, count, _CHUNK)]
        weights, duals, iterations, unique, *_ = (torch.cat(part) for part in zip(*found, strict=True))
        return RawSolution(weights, duals, iterations, unique)


class _Found(NamedTuple):
    """What is known of a batch."""

    weights: Tensor  #: 0 where infeasible
    duals: Tensor  #: or a ray
    iterations: Tensor
    unique: Tensor  #: where W is proved unique
    infeasible: Tensor  #: where a ray was found
    error: Tensor  #: relative gap plus largest violation in normalised rows


def _solve_large(problem: AttentionSVM, tolerance: float, progress: ProgressReport) -> _Found:
    """Solve one problem (batch 1) by working sets."""
    sides, size, allowed = problem.right_hand_side, problem.row_norms.clamp(min=1e-300), problem.inequalities
    # First guess: the rows a mean direction serves worst.
    mean = problem.combine((allowed & (sides > 0)) / size)
    chosen = _worst(problem.margins(mean) / size, allowed, _PER_INPUT)
    chosen |= allowed & problem.vanishing  # zero rows with b > 0 settle the problem
    iterations = torch.zeros(1, dtype=torch.long, device=sides.device)
    for turn in range(_ROUNDS):
        found = _solve(problem.keeping(chosen), tolerance)
        iterations += found.iterations
        if bool(found.infeasible):
            break
        scale = torch.where(sides == 0, size * found.weights.norm(), sides.abs())
        short = (problem.margins(found.weights) - sides) / scale
        violated = allowed & ~chosen & (short < -1e-12)
        count, error = int(violated.sum()), float(found.error[0])
        if progress is not None:
            progress(f"round {turn + 1}: {count} rows violated, {int(chosen.sum())} working rows, error {error:.1e}")
        if count == 0:
            break
        chosen = chosen | _worst(short, violated, _PER_INPUT)
    return found._replace(iterations=iterations)


def _worst(margins: Tensor, allowed: Tensor, count: int) -> Tensor:
    """Mask of the `count` smallest margins of every input among the allowed rows."""
    count = min(count, margins.shape[-1])
    order = torch.where(allowed, margins, torch.inf).topk(count, dim=-1, largest=False).indices
    return torch.zeros_like(allowed).scatter_(-1, order, True) & allowed


def _solve(problem: AttentionSVM, tolerance: float) -> _Found:
    """Problems few enough to be held at once; W = 0, lam = 0 where no row asks for anything."""
    settled, where, reduced, way = normalise(problem)
    hopeless = (settled != 0).flatten(1).any(1)
    found = _Found(
        weights=settled.new_zeros(len(settled), problem.data.d, problem.data.dq),
        duals=settled,
        iterations=torch.zeros_like(hopeless, dtype=torch.long),
        unique=~hopeless,
        infeasible=hopeless,
        error=torch.where(hopeless, torch.inf, 0.0).to(settled),
    )
    if reduced is None or way is None:
        return found
    m, rx = reduced.differences.shape[1:]
    rz = reduced.queries.shape[-1]
    weights, duals, report = (settled.new_zeros(len(where), *shape) for shape in ((rx, rz), (m,), (4,)))
    infeasible, tested = torch.zeros_like(where, dtype=torch.bool), torch.zeros_like(where, dtype=torch.bool)
    rays = settled[where]

    def test_rays(which: Tensor) -> None:
        """Whether weights separate does not depend on the norm: the exact Frobenius solver tells, W = 0 with a ray."""
        some = torch.nonzero(which & ~tested)[:, 0]
        tested[some] = True
        if some.numel():
            answer = ActiveSet().solve(problem[where[some]], Frobenius(), None, None)
            rays[some], infeasible[some] = answer.duals, (answer.weights == 0).flatten(1).all(1)
            report[infeasible, 0] = torch.inf

    if not settled.is_cuda:  # a ray in general position needs one row more than there are unknowns
        test_rays(reduced.present.sum(1) > rx * rz)
    for limit, patience in ((_LIMIT, _PATIENCE), (torch.inf, _LAST)):
        go = torch.nonzero(~infeasible & ((report[:, 3] > 0) | (limit < torch.inf)))[:, 0]
        if go.numel():
            weights[go], duals[go], report[go] = _run(reduced[go], limit, patience)
            test_rays(~infeasible & ((report[:, 3] > 0) | (report[:, 0] > tolerance)))
    weights[infeasible] = 0.0
    found.weights[where] = way.weights(weights)
    found.duals[where] = torch.where(infeasible[:, None, None], rays, way.duals(duals, *settled.shape[1:]))
    found.infeasible[where], found.error[where], found.iterations[where] = infeasible, report[:, 0], report[:, 1].long()
    found.unique[where] = (report[:, 2] > 0) & (report[:, 0] <= tolerance)
    return found


def _run(rows: ReducedRows, limit: float, patience: int) -> tuple[Tensor, Tensor, Tensor]:
    """Weights, duals and report of `solve_one` for every problem, on the rows' device."""
    from attsvm.svm.solvers.nuclear.workers import shapes, workspace  # Numba starts only where it is used

    queries = rows.queries if rows.input_queries is None else rows.input_queries
    inputs = rows.differences, queries, rows.right_hand_side, row_kinds(rows)
    (batch, m, rx), (n, rz) = rows.differences.shape, queries.shape[1:]
    empty = rows.differences.new_zeros
    outputs = empty(batch, rx, rz), empty(batch, m), empty(batch, 4)
    if rows.differences.is_cuda and batch >= _FEWEST and m <= _MOST_ROWS and numba_sees_gpu():
        from attsvm.svm.solvers.nuclear.device import launch

        launch(inputs, limit, patience, outputs)
        return outputs
    arrays, answers = ([x.cpu().contiguous().numpy() for x in group] for group in (inputs, outputs))

    solve_many, sizes = _kernel(), shapes(m, n, rx, rz)

    def solve_share(part: slice) -> None:
        solve_many(*(x[part] for x in arrays), limit, patience, *(x[part] for x in answers), workspace(sizes))

    in_shares(solve_share, batch)
    weights, duals, report = (torch.from_numpy(x).to(rows.differences.device) for x in answers)
    return weights, duals, report


@cache
def _kernel() -> Any:
    """The kernel, read from Numba's cache on disk; where it is not there yet, a process of its own compiles it.

    Calls inside a kernel that was just compiled go to the functions as they were compiled by themselves, in one that
    was read to copies of them that were optimized once more: the last bits of solutions would depend on who came first.
    """
    from attsvm.svm.solvers.nuclear import kernel

    solve_many: Any = kernel.solve_many
    with contextlib.suppress(Exception):  # where there is no cache, or Numba looks different, it is compiled here
        processor = solve_many.targetctx.codegen().magic_tuple()
        if not any(processor in key for key in solve_many._cache._cache_file._load_index()):
            command = [sys.executable, "-c", f"from {kernel.__name__} import solve_none; solve_none()"]
            path = os.pathsep.join(filter(None, sys.path))
            subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True)
    return solve_many
