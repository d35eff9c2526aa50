"""Named peers for the SVM benchmark: each solves one problem given as dense rows, or says why it cannot be imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Rows = tuple[np.ndarray, tuple[int, int]]
"""A [m, d dq] with unit right-hand sides, and (d, dq)."""

Solve = Callable[[np.ndarray, tuple[int, int]], np.ndarray]


def cvxpy_per_row(norm: str, solver: str | None = None, **options: Any) -> Solve:
    """CVXPY as the papers' notebooks use it: one constraint per row, default solver unless told."""
    import cvxpy as cp

    def solve(rows: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        weights = cp.Variable(shape)
        constraints = [cp.sum(cp.multiply(row.reshape(shape), weights)) >= 1 for row in rows]
        objective = cp.norm(weights, "fro") if norm == "Frobenius" else cp.normNuc(weights)
        cp.Problem(cp.Minimize(objective), constraints).solve(solver=solver, **options)
        return np.asarray(weights.value)

    return solve


def cvxpy_vectorised(norm: str, solver: str, **options: Any) -> Solve:
    """CVXPY with all rows in one constraint."""
    import cvxpy as cp

    def solve(rows: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        weights = cp.Variable(shape)
        objective = cp.norm(weights, "fro") if norm == "Frobenius" else cp.normNuc(weights)
        flat = cp.reshape(weights, (shape[0] * shape[1],), order="C")
        cp.Problem(cp.Minimize(objective), [rows @ flat >= 1]).solve(solver=solver, **options)
        return np.asarray(weights.value)

    return solve


def daqp() -> Solve:
    """DAQP in its own least-norm form."""
    import ctypes

    import daqp as library

    def solve(rows: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        count = len(rows)
        upper, lower = np.full(count, 1e30), np.ones(count)
        x, *_ = library.solve(None, None, rows, upper, lower, np.zeros(count, dtype=ctypes.c_int))
        return np.asarray(x).reshape(shape)

    return solve


def quadprog() -> Solve:
    """Goldfarb and Idnani's method."""
    import quadprog as library

    def solve(rows: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        size = shape[0] * shape[1]
        return library.solve_qp(np.eye(size), np.zeros(size), rows.T.copy(), np.ones(len(rows)))[0].reshape(shape)

    return solve


def piqp() -> Solve:
    """Proximal interior point, dense."""
    import piqp as library

    def solve(rows: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        size = shape[0] * shape[1]
        solver = library.DenseSolver()
        solver.settings.eps_abs = solver.settings.eps_rel = 1e-10
        solver.setup(np.eye(size), np.zeros(size), None, None, -rows, None, -np.ones(len(rows)), None, None)
        solver.solve()
        return np.asarray(solver.result.x).reshape(shape)

    return solve


def clarabel() -> Solve:
    """Clarabel without a modelling layer."""
    import clarabel as library
    import scipy.sparse as sp

    def solve(rows: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        size = shape[0] * shape[1]
        settings = library.DefaultSettings()
        settings.verbose = False
        cones = [library.NonnegativeConeT(len(rows))]
        solver = library.DefaultSolver(
            sp.identity(size, format="csc"), np.zeros(size), sp.csc_matrix(-rows), -np.ones(len(rows)), cones, settings
        )
        return np.asarray(solver.solve().x).reshape(shape)

    return solve


def cvxopt() -> Solve:
    """CVXOPT's coneqp."""
    import cvxopt as library

    library.solvers.options.update(show_progress=False, abstol=1e-10, reltol=1e-10, feastol=1e-10)

    def solve(rows: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        size = shape[0] * shape[1]
        matrix = library.matrix
        found = library.solvers.qp(
            matrix(np.eye(size)), matrix(np.zeros(size)), matrix(-rows), matrix(-np.ones(len(rows)))
        )
        return np.asarray(found["x"]).reshape(shape)

    return solve


def moreau_batch(rows: np.ndarray, shape: tuple[int, int], device: str = "cpu") -> np.ndarray:
    """Moreau, the batched conic solver: the whole batch ``[B, m, d dq]`` in one call."""
    import moreau as library

    batch, count, size = rows.shape
    cones = library.Cones(num_nonneg_cones=count)
    solver = library.CompiledSolver(
        n=size,
        m=count,
        P_row_offsets=np.arange(size + 1),
        P_col_indices=np.arange(size),
        A_row_offsets=np.arange(count + 1) * size,
        A_col_indices=np.tile(np.arange(size), count),
        cones=cones,
        settings=library.Settings(batch_size=batch, device=device),
    )
    solver.setup(np.ones((batch, size)), -rows.reshape(batch, -1))
    found = solver.solve(np.zeros((batch, size)), -np.ones((batch, count)))
    return np.asarray(found.x).reshape(batch, *shape)


def moreau_nuclear_batch(rows: np.ndarray, shape: tuple[int, int], device: str = "cpu") -> np.ndarray:
    """Moreau on the semidefinite form of the nuclear norm: min (tr P + tr Q)/2 s.t. [[P, W], [W^T, Q]] >= 0."""
    import moreau as library

    batch, count, size = rows.shape
    d, dq = shape
    order = d + dq
    triangle = order * (order + 1) // 2
    place = {(i, j): j * (j + 1) // 2 + i for j in range(order) for i in range(j + 1)}
    diagonal = np.array([place[j, j] for j in range(order)])
    entries = np.array([place[i, d + q] for i in range(d) for q in range(dq)])
    # x is the scaled triangle itself; rows read W = entry / sqrt 2.
    columns = np.concatenate([np.tile(np.sort(entries), count), np.arange(triangle)])
    order_of = np.argsort(entries)
    offsets = np.concatenate([np.arange(count + 1) * size, count * size + np.arange(1, triangle + 1)])
    solver = library.CompiledSolver(
        n=triangle,
        m=count + triangle,
        P_row_offsets=np.zeros(triangle + 1, int),
        P_col_indices=np.zeros(0, int),
        A_row_offsets=offsets,
        A_col_indices=columns,
        cones=library.Cones(num_nonneg_cones=count, psd_dims=[order]),
        settings=library.Settings(batch_size=batch, device=device),
    )
    values = np.concatenate(
        [-(rows / np.sqrt(2))[:, :, order_of].reshape(batch, -1), -np.ones((batch, triangle))], axis=1
    )
    solver.setup(np.zeros((batch, 0)), values)
    cost = np.zeros((batch, triangle))
    cost[:, diagonal] = 0.5
    sides = np.concatenate([-np.ones((batch, count)), np.zeros((batch, triangle))], axis=1)
    found = np.asarray(solver.solve(cost, sides).x)
    return (found[:, entries] / np.sqrt(2)).reshape(batch, d, dq)
