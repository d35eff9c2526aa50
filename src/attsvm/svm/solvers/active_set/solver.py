"""Frobenius attention SVMs, exactly, on the CPU: the arrays of a batch, handed to the compiled loop.

    min 1/2 ||W||_F^2   s.t.   d_it^T W z_i >= b_it  (rows),   d_it^T W z_i = b_it  (equal)

Every problem goes through `gram` (fast), is refined and checked on its own rows, and, where the check fails, goes
through `rowspace` (robust).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attsvm.svm.solvers.active_set.kernel import solve_batch


@dataclass(frozen=True, eq=False)
class CompiledSolution:
    """Answers of a batch.

    Attributes:
        weights: ``[batch, d, dq]``; 0 where infeasible.
        duals: ``[batch, n, T]``; where infeasible a ray with b^T duals = 1 and sum_k duals_k A_k = 0.
        status: ``[batch]`` OPTIMAL, INFEASIBLE or UNSURE (weights and duals are then the best known).
        steps: ``[batch]`` entries and drops of rows.
    """

    weights: np.ndarray
    duals: np.ndarray
    status: np.ndarray
    steps: np.ndarray


def solve(
    differences: np.ndarray,
    rows: np.ndarray,
    queries: np.ndarray,
    values: np.ndarray,
    equal: np.ndarray,
    *,
    duals: np.ndarray | None = None,
    accuracy: float = 1e-10,
) -> CompiledSolution:
    """Solve a batch of problems, one after the other on this thread.

    The solver itself always goes to round-off. When ||W|| ||A_k|| / |b_k| passes about 1e15 * accuracy (a nearly
    infeasible problem, rows of very different size) float64 cannot hold margins that precisely and the status is
    UNSURE; a larger accuracy then accepts the answer.

    Arguments:
        differences: x_i,selected - x_it, ``[batch, n, T, d]``.
        rows: where there is an inequality row, ``[batch, n, T]``.
        queries: z_i, ``[batch, n, dq]``.
        values: right-hand sides b_it, ``[batch, n, T]``.
        equal: where there is an equality row (free multipliers), ``[batch, n, T]``.
        duals: a warm start, ``[batch, n, T]``.
        accuracy: relative gap, and violation relative to max |b|, up to which a problem counts as solved.
    """
    differences, queries, values = _plain(differences), _plain(queries), _plain(values)
    batch, n, length, d = differences.shape
    kinds = np.array(rows, dtype=np.int8, order="C")
    kinds[equal] = 2
    warm = np.zeros((1, n, length)) if duals is None else _plain(duals)  # one page of zeros serves every problem
    weights = np.zeros((batch, d, queries.shape[2]))
    multipliers = np.zeros((batch, n, length))
    status, steps = np.zeros(batch, np.int8), np.zeros(batch, np.int64)
    solve_batch(differences, kinds, queries, values, warm, accuracy, weights, multipliers, status, steps)
    return CompiledSolution(weights, multipliers, status, steps)


def _plain(array: np.ndarray) -> np.ndarray:
    """float64, C order, writeable: one compiled signature."""
    return np.require(array, np.float64, ["C", "W"])
