"""Conic programs: by Clarabel for the spectral norm and entrywise l_p norms, and by CVXPY.

CVXPY is there for users who want it, and as the independent reference of the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from attsvm.norms import Entrywise, Frobenius, MaxEntry, Norm, Nuclear, NuclearByFrequency, Spectral, SumEntry
from attsvm.norms.semidefinite import ConicProgram, Gamma2, Semidefinite, SpectralOfHeads, corner, triangle
from attsvm.norms.singular import SpectralOfRank
from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.base import ProgressReport, RawSolution, Solver
from attsvm.svm.solvers.dense.rows import DenseRows, OneSolution, loop


@dataclass(frozen=True)
class Conic(Solver):
    """Clarabel, called directly: power cones for `Entrywise`, semidefinite ones for `Spectral` and norms of factors.

    Arguments:
        tolerance: Clarabel's own, on gap and feasibility; tight, since a gap g leaves an error near sqrt(g) in the
            weights.
        workers: processes for a batch; None means all cores.
    """

    norms = (Entrywise, Spectral, SpectralOfRank, Gamma2, SpectralOfHeads, NuclearByFrequency)
    tolerance: float = 1e-12
    workers: int | None = None
    accuracy: float = 1e-07

    def solve(self, problem: AttentionSVM, norm: Norm, initial: Tensor | None, progress: ProgressReport) -> RawSolution:
        if isinstance(norm, Entrywise):
            build = partial(_entrywise, p=norm.p)
        elif isinstance(norm, NuclearByFrequency):
            build = partial(_by_frequency, norm=norm)
        elif isinstance(norm, Semidefinite):
            build = partial(_semidefinite, norm=norm)
        else:
            build = partial(_spectral, rank=norm.rank if isinstance(norm, SpectralOfRank) else None)
        return loop(problem, partial(_solve_one, build=build, tolerance=self.tolerance), self.workers)


def _start(rows: DenseRows, variables: int) -> ConicProgram:
    """The rows, shared by all norms: A w >= b in the positive cone, C w = c in the zero cone."""
    import clarabel
    import scipy.sparse as sp

    program = ConicProgram(np.zeros(variables))
    pad = variables - rows.size
    kinds = (rows.inequalities, -1.0, clarabel.NonnegativeConeT), (rows.equalities, 1.0, clarabel.ZeroConeT)
    for part, sign, cone in kinds:
        if len(part):
            matrix = sp.hstack([sp.csc_matrix(sign * part.matrix), sp.csc_matrix((len(part), pad))])
            program.add(matrix, sign * part.right_hand_side, cone(len(part)))
    return program


def _entrywise(rows: DenseRows, p: float) -> ConicProgram:
    """min t  s.t.  |w_j| <= r_j^(1/p) t^(1-1/p), sum r = t: power cones (r_j, t, w_j) with exponents (1/p, 1 - 1/p)."""
    import clarabel
    import scipy.sparse as sp

    size = rows.size
    program = _start(rows, 2 * size + 1)  # w, r, t
    program.cost[-1] = 1.0
    total = sp.csc_matrix(np.concatenate([np.zeros(size), np.ones(size), [-1.0]])[None])
    program.add(total, np.zeros(1), clarabel.ZeroConeT(1))
    entries = np.arange(size)
    lines = np.concatenate([3 * entries, 3 * entries + 1, 3 * entries + 2])
    columns = np.concatenate([size + entries, np.full(size, 2 * size), entries])
    cones = sp.csc_matrix((-np.ones(3 * size), (lines, columns)), shape=(3 * size, 2 * size + 1))
    program.add(cones, np.zeros(3 * size), *[clarabel.PowerConeT(1.0 / p)] * size)
    return program


def _semidefinite(rows: DenseRows, norm: Semidefinite) -> ConicProgram:
    """min t  s.t.  N(W) <= t, as the norm itself states it."""
    program = _start(rows, norm.variables(*rows.shape[2:]))
    program.cost[rows.size] = 1.0
    norm.add_ball(program, *rows.shape[2:])
    return program


def _by_frequency(rows: DenseRows, norm: NuclearByFrequency) -> ConicProgram:
    """min sum_f (tr P_f + tr Q_f) / 4  s.t.  [[P_f, S_f], [S_f^T, Q_f]] psd, S_f = [[A_f, B_f], [-B_f, A_f]].

    S_f has every singular value of M_f twice. For A_0 it is S = A_0, at half the price.
    """
    _, _, d, dq = rows.shape
    height = norm.height(d)
    sizes = [2] * norm.frequencies + [1] * norm.unturned
    orders = [(times * height, times * (height + dq)) for times in sizes]
    program = _start(rows, rows.size + sum(order * (order + 1) // 2 - m * (order - m) for m, order in orders))
    first, own = 0, rows.size  # the first row of W in this block, and its first variable
    for times, (m, order) in zip(sizes, orders, strict=True):
        row, column = corner(order, m)
        above, right = np.divmod(row, height), np.divmod(column, dq)
        sine = above[0] != right[0]
        more, diagonal = _sides(order, m, own)
        program.cost[more[diagonal]] = 0.5 / times
        sign = np.where(sine & (above[0] == 1), -1.0, 1.0)
        program.add_definite(order, m, (first + height * sine + above[1]) * dq + right[1], more, sign)
        first, own = first + times * height, own + len(more)
    return program


def _spectral(rows: DenseRows, rank: int | None) -> ConicProgram:
    """min t  s.t.  [[t I, W], [W^T, t I]] psd; with a rank also [[P, W], [W^T, Q]] psd, tr P + tr Q <= 2 rank t."""
    import clarabel

    _, _, d, dq = rows.shape
    size, order = rows.size, d + dq
    above, right = corner(order, d)
    more, diagonal = _sides(order, d, size + 1)
    program = _start(rows, size + 1 + (0 if rank is None else len(more)))
    program.cost[size] = 1.0
    program.add_definite(order, d, above * dq + right, np.where(diagonal, size, -1))
    if rank is not None:
        program.add_definite(order, d, above * dq + right, more)
        trace = np.zeros((1, len(program.cost)))
        trace[0, size], trace[0, more[diagonal]] = -2.0 * rank, 1.0
        program.add(trace, np.zeros(1), clarabel.NonnegativeConeT(1))
    return program


def _sides(order: int, m: int, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Variables from `first` on for the upper triangles of P and Q of a block, and which are on the diagonal."""
    row, column = triangle(order)
    own = (row >= m) | (column < m)
    return first + np.arange(own.sum()), (row == column)[own]


def _solve_one(rows: DenseRows, build: Callable[[DenseRows], ConicProgram], tolerance: float) -> OneSolution:
    import clarabel

    lower, equal = rows.inequalities, rows.equalities
    least = np.inf
    # A cone now and then stalls far from the solution; the same problem in another unit does not. The best try counts.
    for unit in (1.0, 0.3, 3.0, 0.1):
        a, c = (replace(part, right_hand_side=part.right_hand_side * unit) for part in (lower, equal))
        tried = build(replace(rows, inequalities=a, equalities=c)).solve(
            max_iter=200,
            min_terminate_step_length=1e-9,  # power cones now and then need one short step before they go on
            tol_gap_abs=tolerance,
            tol_gap_rel=tolerance,
            tol_feas=tolerance,
        )
        gap = abs(tried.obj_val - tried.obj_val_dual) / max(abs(tried.obj_val), 1e-300)
        error = np.nan_to_num(np.max([gap, tried.r_prim, tried.r_dual]), nan=1e300, posinf=1e300)
        if tried.status == clarabel.SolverStatus.PrimalInfeasible:
            error = 0.0
        if error < least or tried.status == clarabel.SolverStatus.Solved:
            least, result, size = error, tried, unit
        if tried.status == clarabel.SolverStatus.Solved:
            break
    x, z = np.array(result.x), np.array(result.z)
    duals = rows.duals(np.maximum(z[: len(lower)], 0.0), -z[len(lower) : len(lower) + len(equal)])
    return x[: rows.size].reshape(rows.shape[2:]) / size, duals, int(result.iterations)


@dataclass(frozen=True)
class Cvxpy(Solver):
    """Any norm through CVXPY, with the solver it is given (Clarabel unless told).

    Arguments:
        backend: CVXPY's name of the solver, such as "CLARABEL" or "SCS".
        options: handed to that solver.
        workers: processes for a batch; None means all cores.
    """

    backend: str = "CLARABEL"
    options: dict[str, Any] = field(default_factory=dict)
    workers: int | None = 1
    accuracy: float = 1e-06

    def refusal(self, problem: AttentionSVM, norm: Norm) -> str | None:
        try:
            import cvxpy  # noqa: F401
        except ImportError:
            return "CVXPY is not installed; pip install 'attsvm[reference]'"
        return None

    def solve(self, problem: AttentionSVM, norm: Norm, initial: Tensor | None, progress: ProgressReport) -> RawSolution:
        return loop(problem, lambda rows: self._solve_one(rows, norm), self.workers)

    def _solve_one(self, rows: DenseRows, norm: Norm) -> OneSolution:
        import cvxpy as cp

        weights = cp.Variable(rows.shape[2:])
        flat = cp.reshape(weights, (rows.size,), order="C")
        lower, equal = rows.inequalities, rows.equalities
        constraints = []
        if len(lower):
            constraints.append(lower.matrix @ flat >= lower.right_hand_side)
        if len(equal):
            constraints.append(equal.matrix @ flat == equal.right_hand_side)
        problem = cp.Problem(cp.Minimize(_objective(cp, norm, weights, flat)), constraints)
        try:
            problem.solve(solver=self.backend, **self.options)
        except cp.SolverError:
            return rows.nothing()
        if weights.value is None:
            return rows.nothing()
        multipliers = [np.asarray(constraint.dual_value) for constraint in constraints]
        lam = np.maximum(multipliers[0], 0.0) if len(lower) else np.zeros(0)
        nu = -multipliers[-1] if len(equal) else np.zeros(0)
        steps = problem.solver_stats.num_iters or 0
        return np.asarray(weights.value), rows.duals(lam, nu), int(steps)


def _objective(cp: Any, norm: Norm, weights: Any, flat: Any) -> Any:
    if isinstance(norm, Entrywise):
        return cp.pnorm(flat, norm.p)
    kinds: dict[type[Norm], Callable[[], Any]] = {
        Frobenius: lambda: cp.norm(flat, 2),
        Nuclear: lambda: cp.normNuc(weights),
        Spectral: lambda: cp.sigma_max(weights),
        MaxEntry: lambda: cp.norm(flat, "inf"),
        SumEntry: lambda: cp.norm(flat, 1),
    }
    if type(norm) not in kinds:
        raise ValueError(f"CVXPY has no expression for {norm!r} here; use a norm of attsvm.norms")
    return kinds[type(norm)]()
