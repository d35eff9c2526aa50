"""One problem's rows as plain NumPy arrays, for solvers that take a dense matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from joblib import Parallel, delayed

from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.base import RawSolution


@dataclass(frozen=True, eq=False)
class DenseRows:
    """Rows A_k = d_k z_k^T of one problem, flattened: ``matrix[k] = vec(A_k)``, scaled to unit length.

    `inequality` and `equality` hold scaled rows and right-hand sides; `place` and `scale` lead back to (input, token).
    Right-hand sides are divided by the largest of them, `unit`, and so are the weights: solvers stop at absolute
    tolerances, which would mean nothing for weights of size 1e-6 or 1e6.
    """

    inequality: np.ndarray
    asks: np.ndarray
    equality: np.ndarray
    values: np.ndarray
    place: tuple[np.ndarray, np.ndarray]
    scale: np.ndarray
    shape: tuple[int, int, int, int]
    unit: float

    @property
    def size(self) -> int:
        """Number of entries of W."""
        return self.shape[2] * self.shape[3]

    def duals(self, inequality: np.ndarray, equality: np.ndarray) -> np.ndarray:
        """Multipliers of scaled rows as an array [n, T] for the original ones."""
        full = np.zeros(self.shape[:2])
        full[self.place] = np.concatenate([inequality, equality]) / self.scale
        return full


def dense_rows(problem: AttentionSVM, element: int) -> DenseRows:
    """The rows of element `element` of a flat batch."""
    data = problem.data
    differences = problem[element].differences().cpu().numpy()
    queries = data.queries[element].cpu().numpy()
    values = problem.right_hand_side[element].cpu().numpy()
    parts = []
    for mask in (problem.inequalities[element], problem.equalities[element]):
        place = np.nonzero(mask.cpu().numpy())
        rows = np.einsum("kd,kq->kdq", differences[place], queries[place[0]]).reshape(len(place[0]), data.d * data.dq)
        length = np.linalg.norm(rows, axis=1)
        length[length == 0] = 1.0
        parts.append((rows / length[:, None], values[place] / length, place, length))
    (a, b, at, s), (c, e, ct, r) = parts
    place = (np.concatenate([at[0], ct[0]]), np.concatenate([at[1], ct[1]]))
    unit = float(max(np.abs(b).max(initial=0.0), np.abs(e).max(initial=0.0))) or 1.0
    shape = (data.n, data.T, data.d, data.dq)
    return DenseRows(a, b / unit, c, e / unit, place, np.concatenate([s, r]), shape, unit)


OneSolution = tuple[np.ndarray, np.ndarray, int]
"""W [d, dq], duals [n, T] and iterations; NaN weights where the solver gave up."""


def loop(problem: AttentionSVM, solve_one: Callable[[DenseRows], OneSolution], workers: int | None) -> RawSolution:
    """Solve a batch one by one, over processes where the batch is large enough to pay for them."""
    count = problem.batch_shape[0]
    rows = (dense_rows(problem, element) for element in range(count))
    if count < 32 or workers == 1:
        results = [_in_full(solve_one, one) for one in rows]
    else:
        results = Parallel(n_jobs=workers or -1, batch_size="auto")(delayed(_in_full)(solve_one, one) for one in rows)
    device = problem.data.device
    weights = torch.from_numpy(np.stack([result[0] for result in results])).to(device)
    duals = torch.from_numpy(np.stack([result[1] for result in results])).to(device)
    return RawSolution(
        weights,
        duals,
        torch.tensor([result[2] for result in results], device=device),
    )


def _in_full(solve_one: Callable[[DenseRows], OneSolution], rows: DenseRows) -> OneSolution:
    weights, duals, iterations = solve_one(rows)
    return weights * rows.unit, duals, iterations
