"""Nuclear-norm attention SVMs, many at once, on the CPU or on a GPU.

The rows are normalised and reduced, and every problem is solved by one call of the compiled `kernel`. Problems whose
dual value grows without bound, or that do not converge, are tested for a ray.

Problems with many rows are solved by working sets: solve with a subset of the rows, add the rows its solution
violates, repeat. The duals of a subset, padded with zeros, are feasible for the whole problem, and so is a ray of a
subset: an infeasible subset settles the whole. When no row is violated, the pair is optimal.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attsvm.data.machine import numba_sees_gpu
from attsvm.norms import Norm, Nuclear
from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.base import ProgressReport, RawSolution, Rows, Solver, row_kinds
from attsvm.svm.solvers.nuclear.rows import ReducedRows, normalise

_PATIENCE, _LIMIT = 16, 1e4  # iterations of a stage, and normalised dual value, after which a ray is looked for
_LAST = 60  # iterations of a stage where none was found
_PER_INPUT = 2  # working rows of an input at the start, and at most as many more in every round
_ROUNDS = 50  # of working sets
_SHARE = 16  # problems that are worth a thread
_FEWEST, _MOST_ROWS = 512, 128  # problems for which a GPU is worth it, and rows that a thread of it can bear
_CHUNK = 2**17  # problems at a time
_RESIDUAL = 2e-14  # ||sum lam_k A_k||_F <= _RESIDUAL * sum |lam_k| ||A_k||_F counts as zero


@dataclass(frozen=True)
class NuclearInteriorPoint(Solver):
    """Primal-dual interior point, then a Newton polish on the identified rank and active rows, compiled.

    Rows are projected on the spans of the queries and of the differences first, which is exact for this norm. Problems
    with more than `most_rows` rows are solved by working sets: a subset of rows, then the rows its solution violates.
    On a GPU a thread solves a problem; fewer problems than are worth it, or larger ones, are solved on the CPU.

    Arguments:
        accuracy: relative gap and violation to which the certificate must hold.
        most_rows: rows handled at once; their Schur matrix has this order squared.
    """

    norms = (Nuclear,)
    accuracy: float = 1e-8
    most_rows: int = 400

    def solve(self, problem: AttentionSVM, norm: Norm, initial: Tensor | None, progress: ProgressReport) -> RawSolution:
        def report(turn: int, chosen: int, violated: int, error: float) -> None:
            if progress is not None:
                progress(f"round {turn}: {violated} rows violated, {chosen} working rows, error {error:.1e}")

        count = problem.batch_shape[0]
        if int(problem.rows.flatten(1).sum(1).max()) <= self.most_rows:
            parts = (problem[first : first + _CHUNK] for first in range(0, count, _CHUNK))
            found = [_solve(Rows.of(part), self.accuracy) for part in parts]
        else:
            found = [_solve_large(Rows.of(problem[e : e + 1]), self.accuracy, report) for e in range(count)]
        weights, duals, iterations, unique, *_ = (torch.cat(part) for part in zip(*found, strict=True))
        return RawSolution(weights, duals, iterations, unique)


class _Found(NamedTuple):
    """What is known of a batch: weights (0 where infeasible), duals or a ray, iterations, where W is proved unique,
    where a ray was found, and the relative gap plus largest violation in normalised rows."""

    weights: Tensor
    duals: Tensor
    iterations: Tensor
    unique: Tensor
    infeasible: Tensor
    error: Tensor


def _solve_large(rows: Rows, tolerance: float, report: Callable[[int, int, int, float], None]) -> _Found:
    """Solve one problem (batch 1) by working sets.

    `report` is called after each round with the round, the number of working rows, of rows violated, and the error.
    """
    sides, size = rows.right_hand_side, rows.differences.norm(dim=-1) * rows.queries.norm(dim=-1)[..., None]
    # First guess: the rows a mean direction serves worst.
    directions = rows.differences / size.clamp(min=1e-300)[..., None]
    asks = (rows.inequalities & (sides > 0)).to(directions)
    mean = torch.einsum("bntd,bnt,bne->bde", directions, asks, rows.queries)
    chosen = _worst(_margins(directions, mean, rows.queries), rows.inequalities, _PER_INPUT)
    chosen |= rows.inequalities & (size == 0)  # zero rows with b > 0 settle the problem
    iterations = torch.zeros(1, dtype=torch.long, device=sides.device)
    for turn in range(_ROUNDS):
        found = _solve(replace(rows, inequalities=chosen), tolerance)
        iterations += found.iterations
        if bool(found.infeasible):
            break
        margins = _margins(rows.differences, found.weights, rows.queries)
        scale = torch.where(sides == 0, size * found.weights.norm(), sides.abs())
        short = (margins - sides) / scale
        violated = rows.inequalities & ~chosen & (short < -1e-12)
        count = int(violated.sum())
        report(turn + 1, int(chosen.sum()), count, float(found.error[0]))
        if count == 0:
            break
        chosen = chosen | _worst(short, violated, _PER_INPUT)
    return found._replace(iterations=iterations)


def _margins(differences: Tensor, weights: Tensor, queries: Tensor) -> Tensor:
    """d_it^T W z_i."""
    return (differences @ (weights @ queries.mT).mT[..., None])[..., 0]


def _worst(margins: Tensor, allowed: Tensor, count: int) -> Tensor:
    """Mask of the `count` smallest margins of every input among the allowed rows."""
    count = min(count, margins.shape[-1])
    order = torch.where(allowed, margins, torch.inf).topk(count, dim=-1, largest=False).indices
    return torch.zeros_like(allowed).scatter_(-1, order, True) & allowed


def _solve(rows: Rows, tolerance: float) -> _Found:
    """Problems few enough to be held at once; W = 0, lam = 0 where no row asks for anything."""
    settled, where, reduced, way = normalise(rows)
    hopeless = (settled != 0).flatten(1).any(1)
    found = _Found(
        weights=rows.differences.new_zeros(len(rows), rows.differences.shape[-1], rows.queries.shape[-1]),
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

    def test_rays(which: Tensor) -> None:
        for k in torch.nonzero(which & ~tested)[:, 0].tolist():
            tested[k], ray = True, _find_ray(reduced[k : k + 1])
            if ray is not None:
                duals[k], infeasible[k], report[k, 0] = ray, True, torch.inf

    if not settled.is_cuda:  # a ray in general position needs one row more than there are unknowns
        test_rays(reduced.present.sum(1) > rx * rz)
    for limit, patience in ((_LIMIT, _PATIENCE), (torch.inf, _LAST)):
        go = torch.nonzero(~infeasible & ((report[:, 3] > 0) | (limit < torch.inf)))[:, 0]
        if go.numel():
            weights[go], duals[go], report[go] = _run(reduced[go], limit, patience)
            test_rays(~infeasible & ((report[:, 3] > 0) | (report[:, 0] > tolerance)))
    weights[infeasible] = 0.0
    found.weights[where], found.duals[where] = way.weights(weights), way.duals(duals, *settled.shape[1:])
    found.infeasible[where], found.error[where], found.iterations[where] = infeasible, report[:, 0], report[:, 1].long()
    found.unique[where] = (report[:, 2] > 0) & (report[:, 0] <= tolerance)
    return found


def _run(rows: ReducedRows, limit: float, patience: int) -> tuple[Tensor, Tensor, Tensor]:
    """Weights, duals and report of `solve_one` for every problem, on the rows' device."""
    from attsvm.svm.solvers.nuclear.kernel import Workspace, shapes, solve_many  # Numba starts only where it is used

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

    def solve_share(share: np.ndarray) -> None:
        sizes = shapes(m, n, rx, rz)
        work = Workspace._make(np.empty(shape, np.int64 if shape is sizes.rows else float) for shape in sizes)
        part = slice(share[0], share[-1] + 1)
        solve_many(*(x[part] for x in arrays), limit, patience, *(x[part] for x in answers), work)

    threads = max(1, min(torch.get_num_threads(), batch // _SHARE))
    shares = np.array_split(np.arange(batch), threads)
    if threads == 1:
        solve_share(shares[0])
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(solve_share, shares))
    weights, duals, report = (torch.from_numpy(x).to(rows.differences.device) for x in answers)
    return weights, duals, report


def _find_ray(rows: ReducedRows) -> Tensor | None:
    """A ray ``[m]`` of one normalised problem (batch 1), scaled to sum_k |lam_k| <= 1; None where none is found.

        min_{lam >= 0}  || sum_k lam_k A_k ||_F^2 + (b^T lam - 1)^2

    is 0 exactly when a ray exists. Otherwise, with residual (R, rho) at the optimum, W = R / (-rho) meets every row:
    the same solve proves feasibility. Equality rows enter with both signs. The active-set method of Lawson and Hanson
    ends on an exact least-squares solution, so the residual of a true ray is round-off.
    """
    from scipy.optimize import nnls  # slow to import, and few problems come here

    d, z, b = (x[0].cpu().numpy() for x in (rows.differences, rows.queries, rows.right_hand_side))
    real, equal = rows.present[0].cpu().numpy(), rows.equalities[0].cpu().numpy()
    index = np.concatenate([np.flatnonzero(real), np.flatnonzero(equal)])
    sign = np.concatenate([np.ones(real.sum()), -np.ones(equal.sum())])
    matrix = (d[index, :, None] * z[index, None, :]).reshape(len(index), -1).T * sign
    sides = b[index] * sign
    stacked = np.vstack([matrix, sides])
    if stacked.shape[0] > 2 * stacked.shape[1]:  # same normal equations, fewer rows
        q, stacked = np.linalg.qr(stacked)
        target = q[-1]
    else:
        target = np.zeros(stacked.shape[0])
        target[-1] = 1.0
    try:
        x, _ = nnls(stacked, target, maxiter=20 * stacked.shape[1])
    except RuntimeError:  # iteration limit: no verdict
        return None
    total = x.sum()
    if not (total > 0 and np.linalg.norm(matrix @ x) <= _RESIDUAL * total and sides @ x > 0.5):
        return None
    flat = np.zeros(len(b))
    np.add.at(flat, index, x * sign)
    return torch.from_numpy(flat).to(rows.right_hand_side) / max(total, 1e-300)
