"""One problem's rows as plain NumPy arrays, for solvers that take a dense matrix."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch

from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.base import RawSolution

_MANY = 32  # problems that may go to worker processes
_PATIENCE = 3.0  # seconds before they do: about what the processes take to start


@dataclass(frozen=True, eq=False)
class DensePart:
    """The inequality rows of a problem, or its equality rows, scaled to unit length."""

    matrix: np.ndarray  #: vec(d_k z_k^T) of every row, ``[rows, d dq]``
    right_hand_side: np.ndarray  #: ``[rows]``
    place: tuple[np.ndarray, ...]  #: input and token of every row
    scale: np.ndarray  #: length of every row before scaling, ``[rows]``

    def __len__(self) -> int:
        return len(self.matrix)


@dataclass(frozen=True, eq=False)
class DenseRows:
    """The rows of one problem, ``matrix w >= right_hand_side`` on inequalities and ``=`` on equalities, w = vec(W).

    Right-hand sides are divided by the largest of them, `unit`, and so are the weights: solvers stop at absolute
    tolerances, which would mean nothing for weights of size 1e-6 or 1e6.
    """

    inequalities: DensePart
    equalities: DensePart
    shape: tuple[int, int, int, int]  #: n, T, d, dq
    unit: float

    @property
    def size(self) -> int:
        """Number of entries of W."""
        return self.shape[2] * self.shape[3]

    def duals(self, inequalities: np.ndarray, equalities: np.ndarray) -> np.ndarray:
        """Multipliers of the scaled rows as an array ``[n, T]`` for the original ones."""
        full = np.zeros(self.shape[:2])
        full[self.inequalities.place] = inequalities / self.inequalities.scale
        full[self.equalities.place] = equalities / self.equalities.scale
        return full

    def nothing(self, iterations: int = 0) -> OneSolution:
        """What a solver returns that gave up."""
        return np.full(self.shape[2:], np.nan), np.zeros(self.shape[:2]), iterations


OneSolution = tuple[np.ndarray, np.ndarray, int]
"""W [d, dq], duals [n, T] and iterations; NaN weights where the solver gave up."""


def dense_rows(problem: AttentionSVM) -> DenseRows:
    """The rows of a problem without a batch axis."""
    data = problem.data
    differences, queries = problem.differences().cpu().numpy(), data.queries.cpu().numpy()
    sides = problem.right_hand_side.cpu().numpy()

    def part(mask: torch.Tensor) -> DensePart:
        place = np.nonzero(mask.cpu().numpy())
        rows = np.einsum("kd,kq->kdq", differences[place], queries[place[0]]).reshape(len(place[0]), data.d * data.dq)
        length = np.linalg.norm(rows, axis=1)
        length[length == 0] = 1.0
        return DensePart(rows / length[:, None], sides[place] / length, place, length)

    parts = [part(problem.inequalities), part(problem.equalities)]
    unit = float(max(np.abs(one.right_hand_side).max(initial=0.0) for one in parts)) or 1.0
    inequalities, equalities = (replace(one, right_hand_side=one.right_hand_side / unit) for one in parts)
    return DenseRows(inequalities, equalities, (data.n, data.T, data.d, data.dq), unit)


def loop(problem: AttentionSVM, solve_one: Callable[[DenseRows], OneSolution], workers: int | None) -> RawSolution:
    """Solve a batch one by one; what is left of a large one after some seconds goes to worker processes."""
    count = problem.batch_shape[0]
    rows = (dense_rows(problem[element]) for element in range(count))
    results: list[OneSolution] = []
    began = time.perf_counter()
    alone = workers == 1 or count < _MANY
    with _blas().limit(limits=1, user_api="blas"):  # with small matrices its threads spend their time waiting
        while len(results) < count and (alone or time.perf_counter() - began < _PATIENCE):
            results.append(_in_full(solve_one, next(rows)))
    if len(results) < count:
        from joblib import Parallel, delayed

        results += Parallel(n_jobs=workers or -1, batch_size="auto")(delayed(_in_full)(solve_one, one) for one in rows)
    weights, duals, iterations = zip(*results, strict=True)
    tensors = [torch.from_numpy(np.stack(parts)) for parts in (weights, duals)]
    return RawSolution(*(one.to(problem.data.device) for one in (*tensors, torch.tensor(iterations))))


def _in_full(solve_one: Callable[[DenseRows], OneSolution], rows: DenseRows) -> OneSolution:
    weights, duals, iterations = solve_one(rows)
    return weights * rows.unit, duals, iterations


@cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
