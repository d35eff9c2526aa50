"""Solving: choose a solver, run it, and let the certificate decide what came of it."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from attsvm.norms import Entrywise, Frobenius, MaxEntry, Norm, Nuclear, Spectral, SumEntry
from attsvm.svm.certificate import Certificate, certify
from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solution import CODES, SUPPORT_TOLERANCE, Status, SVMSolution
from attsvm.svm.solvers.active_set_class import ActiveSet, BatchedActiveSet
from attsvm.svm.solvers.base import ProgressReport, RawSolution, Solver
from attsvm.svm.solvers.block_descent_class import BlockDescent
from attsvm.svm.solvers.dense.conic import Conic
from attsvm.svm.solvers.dense.linear_program import LinearProgram
from attsvm.svm.solvers.nuclear.solver import NuclearInteriorPoint

RAY_TOLERANCE = 1e-10
_SOLVED, _INFEASIBLE, _NO_ROWS, _NOT_CONVERGED = (
    CODES.index(status) for status in (Status.SOLVED, Status.INFEASIBLE, Status.NO_ROWS, Status.NOT_CONVERGED)
)


def solve(
    problem: AttentionSVM,
    norm: Norm | None = None,
    *,
    solver: Solver | None = None,
    initial: SVMSolution | Tensor | None = None,
    progress: ProgressReport | None = None,
) -> SVMSolution:
    """The max-margin solution of every problem of a batch, with a proof of optimality or of infeasibility.

        min N(W)   s.t.   (x_i,selected - x_it)^T W z_i >= b_it

    Arguments:
        problem: ``[*batch]`` problems; a batch may mix feasible and infeasible ones.
        norm: N, `Frobenius()` by default.
        solver: chosen by norm, size and device if None (the documentation has the table).
        initial: a solution of a similar problem, or duals ``[*batch, n, T]``, to start from; used by `ActiveSet` and
            `BlockDescent`, the solvers of the Frobenius norm on the CPU.
        progress: called with a line of text now and then while a large problem is solved.

    Returns:
        An `SVMSolution`; each element has its own status.

    Raises:
        ValueError: if the solver asked for cannot solve this problem, or `initial` does not fit.

    >>> import torch
    >>> from attsvm.data import TokenDataset
    >>> data = TokenDataset(torch.tensor([[[2.0], [0.0]]], dtype=torch.float64), torch.ones(1, 1).double(), [1])
    >>> solve(AttentionSVM(data, selected=[0])).weights.item()
    0.5
    """
    began = time.perf_counter()
    norm = norm or Frobenius()
    if not isinstance(problem, AttentionSVM):
        raise ValueError(f"problem must be an AttentionSVM(data, selected); got {type(problem).__name__}")
    if solver is not None and not isinstance(solver, Solver):
        raise ValueError(f"solver must be a solver such as Cvxpy() or None; got {solver!r}")
    if not isinstance(norm, Norm):
        raise ValueError(f"norm must be a norm such as Frobenius() or Nuclear(); got {norm!r}")
    flat = problem.flatten()
    chosen = choose_solver(solver, flat, norm, warm=initial is not None)
    raw = chosen.solve(flat, norm, _start(initial, problem, flat), progress)
    weights, duals, codes, certificate = _judged(flat, norm, raw, chosen.accuracy)
    if bool((codes == _NOT_CONVERGED).any()):
        weights, duals, codes, certificate = _with_rays(flat, norm, weights, duals, codes, certificate, chosen.accuracy)
    return _assembled(problem, flat, norm, chosen, raw, weights, duals, codes, certificate, time.perf_counter() - began)


def _start(initial: SVMSolution | Tensor | None, problem: AttentionSVM, flat: AttentionSVM) -> Tensor | None:
    if initial is None:
        return None
    duals = initial.duals if isinstance(initial, SVMSolution) else initial
    shape = (*problem.reference.shape, problem.data.T)
    if tuple(duals.shape) != shape:
        raise ValueError(f"initial must hold duals of shape {list(shape)} (batch, n, T); got {list(duals.shape)}")
    if not bool(torch.isfinite(duals).all()):
        raise ValueError(f"initial must be finite; got {int((~torch.isfinite(duals)).sum())} duals that are not")
    folded = duals.to(problem.data.device, torch.float64).reshape(flat.values.shape)
    # Only rows carry multipliers; the representative's entry is minus the sum of the equality ones.
    return folded.masked_fill(~flat.rows, 0.0)


def _judged(
    flat: AttentionSVM, norm: Norm, raw: RawSolution, accuracy: float
) -> tuple[Tensor, Tensor, Tensor, Certificate]:
    """Bring the raw pair into norm form, stretch W to feasibility where allowed, and certify it."""
    empty = ~flat.rows.any(-1).any(-1)
    # Where no row asks for anything the solution is exactly 0, whatever came.
    asking = (flat.inequalities & (flat.values > 0)) | (flat.equalities & (flat.values != 0))
    asked = asking.any(-1).any(-1)[:, None, None]
    weights = torch.where(torch.isfinite(raw.weights) & asked, raw.weights, torch.zeros_like(raw.weights))
    duals = torch.where(torch.isfinite(raw.duals) & asked & flat.rows, raw.duals, torch.zeros_like(raw.duals))
    size = norm.dual_value(flat.combine(duals))
    duals = duals / torch.where(size > 0, size, torch.ones_like(size))[:, None, None]
    certificate = certify(flat, norm, weights, duals)
    stretch = torch.where(
        torch.isfinite(certificate.min_margin)
        & (certificate.min_margin > 0)
        & (certificate.min_margin < 1)
        & _scalable(flat),
        1 / certificate.min_margin,
        torch.ones_like(certificate.min_margin),
    )
    if bool((stretch != 1).any()):
        weights = weights * stretch[:, None, None]
        certificate = certify(flat, norm, weights, duals)
    # The certificate says what is a ray, not the solver; it reads negative multipliers as 0, and so must everyone else.
    rays = certificate.proves_infeasible(RAY_TOLERANCE) & ~certificate.proves_optimal(accuracy)
    if bool(rays.any()):
        lam = torch.where(flat.equalities, duals, duals.clamp(min=0.0))
        reward = (lam * flat.values).sum((-1, -2))
        duals = torch.where(rays[:, None, None], lam / reward[:, None, None], duals)
        certificate = certify(flat, norm, weights, duals)
    codes = torch.full(empty.shape, _NOT_CONVERGED, dtype=torch.int64, device=empty.device)
    codes[certificate.proves_optimal(accuracy)] = _SOLVED
    codes[rays] = _INFEASIBLE
    codes[empty] = _NO_ROWS
    return weights, duals, codes, certificate


def _scalable(flat: AttentionSVM) -> Tensor:
    fixed = (flat.equalities & (flat.values != 0)) | (flat.inequalities & (flat.values < 0))
    return ~fixed.any(-1).any(-1)


def _with_rays(
    flat: AttentionSVM,
    norm: Norm,
    weights: Tensor,
    duals: Tensor,
    codes: Tensor,
    certificate: Certificate,
    accuracy: float,
) -> tuple[Tensor, Tensor, Tensor, Certificate]:
    """Whether a selection is separable does not depend on the norm: ask the Frobenius solver for rays."""
    where = torch.nonzero(codes == _NOT_CONVERGED).flatten()
    part = flat[where]
    raw = feasibility_solver(part).solve(part, Frobenius(), None, None)
    rays = RawSolution(torch.zeros_like(weights[where]), raw.duals, raw.infeasible, raw.iterations)
    new_weights, new_duals, new_codes, _ = _judged(part, norm, rays, accuracy)
    proved = new_codes == _INFEASIBLE
    if not bool(proved.any()):
        return weights, duals, codes, certificate
    where = where[proved]
    weights[where], duals[where], codes[where] = new_weights[proved], new_duals[proved], new_codes[proved]
    return weights, duals, codes, certify(flat, norm, weights, duals)


def _assembled(
    problem: AttentionSVM,
    flat: AttentionSVM,
    norm: Norm,
    solver: Solver,
    raw: RawSolution,
    weights: Tensor,
    duals: Tensor,
    codes: Tensor,
    certificate: Certificate,
    seconds: float,
) -> SVMSolution:
    infeasible = codes == _INFEASIBLE
    margins = flat.margins(weights).masked_fill(infeasible[:, None, None], torch.nan)
    slack = margins - flat.values
    support = flat.inequalities & (slack <= SUPPORT_TOLERANCE)
    line = (slack > SUPPORT_TOLERANCE / 10) & (slack <= SUPPORT_TOLERANCE * 10)
    weights = weights.masked_fill(infeasible[:, None, None], torch.nan)
    representative = -(duals * flat.equalities).sum(-1, keepdim=True)
    shown = duals.scatter_add(-1, flat.reference.unsqueeze(-1), representative)
    if isinstance(norm, (Frobenius, Entrywise)):
        unique = ~infeasible
    else:
        unique = torch.zeros_like(infeasible) if raw.unique is None else raw.unique & ~infeasible
    shape = problem.batch_shape

    def shaped(value: Tensor) -> Tensor:
        return value.reshape((*shape, *value.shape[1:]))

    return SVMSolution(
        weights=shaped(weights),
        duals=shaped(shown),
        codes=shaped(codes),
        margins=shaped(margins),
        support=shaped(support),
        ambiguous=shaped((flat.inequalities & line).sum((-1, -2))),
        unique=shaped(unique),
        certificate=Certificate(**{name: shaped(value) for name, value in certificate.__dict__.items()}),
        norm=norm,
        solver=type(solver).__name__,
        iterations=shaped(raw.iterations),
        seconds=seconds,
        tolerance=solver.accuracy,
    )


# The exact solvers keep a Gram matrix of all rows; beyond this many, block descent is faster and needs no such matrix.
_LARGE = 1_500
# A few small problems are solved in PyTorch before the compiled kernels, faster a problem, would have loaded.
_FEW = 16
_SMALL = 200


def choose_solver(solver: Solver | None, problem: AttentionSVM, norm: Norm, warm: bool = False) -> Solver:
    """The solver asked for, or the one that suits the problem; `warm` where there are duals to start from.

    Raises:
        ValueError: if the solver asked for cannot solve it, or no solver knows the norm.
    """
    if solver is not None:
        refusal = solver.refusal(problem, norm)
        if refusal is not None:
            raise ValueError(f"{type(solver).__name__} cannot solve this problem: {refusal}")
        return solver
    if isinstance(norm, Frobenius):
        return feasibility_solver(problem, warm)
    if isinstance(norm, Nuclear):
        return NuclearInteriorPoint()
    if isinstance(norm, (MaxEntry, SumEntry)):
        return LinearProgram()
    if isinstance(norm, (Entrywise, Spectral)):
        return Conic()
    raise ValueError(f"no solver knows the norm {norm!r}; pass solver=")


def feasibility_solver(problem: AttentionSVM, warm: bool = False) -> Solver:
    """The Frobenius solver for this size and device; it also decides whether a selection is separable at all."""
    rows = int(problem.rows.flatten(1).sum(1).max()) if problem.batch_shape[0] else 0
    if rows > _LARGE:
        return BlockDescent()
    if problem.data.device.type == "cuda" or (problem.batch_shape[0] < _FEW and rows <= _SMALL and not warm):
        return BatchedActiveSet()
    return ActiveSet()
