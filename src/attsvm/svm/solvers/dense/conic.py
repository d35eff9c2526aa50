"""Conic programs by Clarabel: spectral and entrywise norms (and the nuclear one, as a cross-check)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from attsvm.norms import Entrywise, Norm, Spectral
from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.base import ProgressReport, RawSolution, Solver
from attsvm.svm.solvers.dense.rows import DenseRows, OneSolution, loop


@dataclass(frozen=True)
class Conic(Solver):
    """Clarabel, called directly: power cones for `Entrywise`, a semidefinite cone for `Spectral`.

    Arguments:
        tolerance: Clarabel's own, on gap and feasibility; tight, since a gap g leaves an error near sqrt(g) in the
            weights.
        workers: processes for a batch; None means all cores.
        accuracy: relative gap to which the certificate must hold.
    """

    tolerance: float = 1e-12
    workers: int | None = None
    accuracy: float = 1e-07

    def refusal(self, problem: AttentionSVM, norm: Norm) -> str | None:
        return None if isinstance(norm, (Entrywise, Spectral)) else "it solves Entrywise and Spectral"

    def solve(
        self, problem: AttentionSVM, norm: Norm, initial: Tensor | None, progress: ProgressReport | None
    ) -> RawSolution:
        build = _spectral if isinstance(norm, Spectral) else partial(_entrywise, p=norm.p)  # type: ignore[attr-defined]
        return loop(problem, partial(_solve_one, build=build, tolerance=self.tolerance), self.workers)


@dataclass(eq=False)
class _Program:
    """min q^T x  s.t.  A x + s = b, s in a product of cones; w = first entries of x."""

    cost: np.ndarray
    blocks: list[sp.spmatrix] = field(default_factory=list)
    sides: list[np.ndarray] = field(default_factory=list)
    cones: list[object] = field(default_factory=list)

    def add(self, matrix: sp.spmatrix, side: np.ndarray, cone: object) -> None:
        self.blocks.append(matrix)
        self.sides.append(side)
        self.cones.append(cone)


def _start(rows: DenseRows, variables: int) -> _Program:
    """The rows, shared by all norms: A w >= b in the positive cone, C w = c in the zero cone."""
    import clarabel

    program = _Program(np.zeros(variables))
    pad = variables - rows.size
    if len(rows.asks):
        matrix = sp.hstack([sp.csc_matrix(-rows.inequality), sp.csc_matrix((len(rows.asks), pad))])
        program.add(matrix, -rows.asks, clarabel.NonnegativeConeT(len(rows.asks)))
    if len(rows.values):
        matrix = sp.hstack([sp.csc_matrix(rows.equality), sp.csc_matrix((len(rows.values), pad))])
        program.add(matrix, rows.values, clarabel.ZeroConeT(len(rows.values)))
    return program


def _entrywise(rows: DenseRows, p: float) -> _Program:
    """min t  s.t.  |w_j| <= r_j^(1/p) t^(1-1/p), sum r = t: power cones (r_j, t, w_j) with exponents (1/p, 1 - 1/p)."""
    import clarabel

    size = rows.size
    program = _start(rows, 2 * size + 1)  # w, r, t
    program.cost[-1] = 1.0
    total = sp.csc_matrix(np.concatenate([np.zeros(size), np.ones(size), [-1.0]])[None])
    program.add(total, np.zeros(1), clarabel.ZeroConeT(1))
    entries = np.arange(size)
    lines = np.concatenate([3 * entries, 3 * entries + 1, 3 * entries + 2])
    columns = np.concatenate([size + entries, np.full(size, 2 * size), entries])
    cones = sp.csc_matrix((-np.ones(3 * size), (lines, columns)), shape=(3 * size, 2 * size + 1))
    program.blocks.append(cones)
    program.sides.append(np.zeros(3 * size))
    program.cones += [clarabel.PowerConeT(1.0 / p)] * size
    return program


def _spectral(rows: DenseRows) -> _Program:
    """min t  s.t.  [[t I, W], [W^T, t I]] positive semidefinite."""
    import clarabel

    _, _, d, dq = rows.shape
    size, order = rows.size, d + dq
    program = _start(rows, size + 1)
    program.cost[-1] = 1.0
    lines, columns, entries = [], [], []
    for j in range(order):  # upper triangle, column by column, off-diagonal times sqrt 2
        lines.append(j * (j + 1) // 2 + j)
        columns.append(size)
        entries.append(-1.0)
    for i in range(d):
        for q in range(dq):
            j = d + q
            lines.append(j * (j + 1) // 2 + i)
            columns.append(i * dq + q)
            entries.append(-np.sqrt(2.0))
    triangle = order * (order + 1) // 2
    matrix = sp.csc_matrix((entries, (lines, columns)), shape=(triangle, size + 1))
    program.add(matrix, np.zeros(triangle), clarabel.PSDTriangleConeT(order))
    return program


def _solve_one(rows: DenseRows, build, tolerance: float) -> OneSolution:  # type: ignore[no-untyped-def]
    import clarabel

    d, dq = rows.shape[2:]
    # A power cone now and then stalls far from the solution; the same problem in another unit does not.
    for unit in (1.0, 0.3, 3.0, 0.1):
        program = build(replace(rows, asks=rows.asks * unit, values=rows.values * unit))
        result = _solved(program, tolerance)
        if result.status == clarabel.SolverStatus.Solved:
            break
    x, z = np.array(result.x), np.array(result.z)
    count, equal = len(rows.asks), len(rows.values)
    duals = rows.duals(np.maximum(z[:count], 0.0), -z[count : count + equal])
    return x[: rows.size].reshape(d, dq) / unit, duals, int(result.iterations)


def _solved(program: _Program, tolerance: float) -> Any:
    import clarabel

    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_iter = 200
    settings.min_terminate_step_length = 1e-9  # power cones now and then need one short step before they go on
    for name in ("tol_gap_abs", "tol_gap_rel", "tol_feas"):
        setattr(settings, name, tolerance)
    variables = len(program.cost)
    solver = clarabel.DefaultSolver(
        sp.csc_matrix((variables, variables)),
        program.cost,
        sp.vstack(program.blocks).tocsc(),
        np.concatenate(program.sides),
        program.cones,
        settings,
    )
    return solver.solve()
