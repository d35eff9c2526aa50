"""Solving: choose a solver, run it, and let the certificate decide what came of it."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from attsvm.norms import Entrywise, Frobenius, MaxEntry, Norm, Nuclear, Spectral, SumEntry
from attsvm.svm.certificate import Certificate, certify
from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solution import SUPPORT_TOLERANCE, Status, SVMSolution
from attsvm.svm.solvers.active_set.solver import ActiveSet
from attsvm.svm.solvers.base import ProgressReport, RawSolution, Solver, one_thread
from attsvm.svm.solvers.batched.solver import BatchedFrobenius
from attsvm.svm.solvers.block_descent.solver import BlockDescent
from attsvm.svm.solvers.dense.conic import Conic
from attsvm.svm.solvers.dense.linear_program import LinearProgram
from attsvm.svm.solvers.nuclear.solver import NuclearInteriorPoint

RAY_TOLERANCE = 1e-10
_TINY = 2**18  # numbers in all rows of a batch, up to which one thread is faster than several


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
    with one_thread(flat.rows.numel() * (flat.data.d + flat.data.dq) <= _TINY):
        raw = chosen.solve(flat, norm, _start(initial, problem, flat), progress)
        judged = _judge(flat, norm, raw, chosen.accuracy)
        _look_for_rays(flat, norm, judged, chosen)
        return _assemble(problem, flat, norm, chosen, raw, judged, began)


def _start(initial: SVMSolution | Tensor | None, problem: AttentionSVM, flat: AttentionSVM) -> Tensor | None:
    """The duals to start from, ``[batch, n, T]``."""
    if initial is None:
        return None
    duals = initial.duals if isinstance(initial, SVMSolution) else initial
    shape = (*problem.reference.shape, problem.data.T)
    if tuple(duals.shape) != shape:
        raise ValueError(f"initial must hold duals of shape {list(shape)} (batch, n, T); got {list(duals.shape)}")
    if not bool(torch.isfinite(duals).all()):
        raise ValueError(f"initial must be finite; got {int((~torch.isfinite(duals)).sum())} duals that are not")
    folded = duals.to(problem.data.device, torch.float64).reshape(flat.right_hand_side.shape)
    # Only rows carry multipliers; the representative's entry is minus the sum of the equality ones.
    return folded.masked_fill(~flat.rows, 0.0)


@dataclass(eq=False)
class _Judged:
    """Weights and duals in norm form (a ray where infeasible), what they prove, and the status that follows."""

    weights: Tensor
    duals: Tensor
    certificate: Certificate
    codes: Tensor


def _judge(flat: AttentionSVM, norm: Norm, raw: RawSolution, accuracy: float) -> _Judged:
    """Bring the raw pair into norm form, stretch W to feasibility where allowed, and certify it."""
    empty = ~flat.rows.any(-1).any(-1)
    # Where no row asks for anything the solution is exactly 0, whatever came.
    sides = flat.right_hand_side
    asked = ((flat.inequalities & (sides > 0)) | (flat.equalities & (sides != 0))).any(-1).any(-1)[:, None, None]
    weights = torch.where(torch.isfinite(raw.weights) & asked, raw.weights, torch.zeros_like(raw.weights))
    duals = torch.where(torch.isfinite(raw.duals) & asked & flat.rows, raw.duals, torch.zeros_like(raw.duals))
    size = norm.dual_value(flat.combine(duals))
    duals = duals / torch.where(size > 0, size, torch.ones_like(size))[:, None, None]
    certificate = certify(flat, norm, weights, duals)
    margin = certificate.min_margin
    short = torch.isfinite(margin) & (margin > 0) & (margin < 1) & flat.scalable
    if bool(short.any()):
        weights = weights * torch.where(short, 1 / margin, torch.ones_like(margin))[:, None, None]
        certificate = certify(flat, norm, weights, duals)
    # The certificate says what is a ray, not the solver; it reads negative multipliers as 0, and so must everyone else.
    rays = certificate.proves_infeasible(RAY_TOLERANCE) & ~certificate.proves_optimal(accuracy)
    if bool(rays.any()):
        lam = torch.where(flat.equalities, duals, duals.clamp(min=0.0))
        reward = (lam * sides).sum((-1, -2))
        duals = torch.where(rays[:, None, None], lam / reward[:, None, None], duals)
        certificate = certify(flat, norm, weights, duals)
    codes = torch.full(empty.shape, Status.NOT_CONVERGED.code, dtype=torch.int64, device=empty.device)
    codes[certificate.proves_optimal(accuracy)] = Status.SOLVED.code
    codes[rays] = Status.INFEASIBLE.code
    codes[empty] = Status.NO_ROWS.code
    return _Judged(weights, duals, certificate, codes)


def _look_for_rays(flat: AttentionSVM, norm: Norm, judged: _Judged, solver: Solver) -> None:
    """Ask a Frobenius solver for rays where nothing is proved: whether a selection is separable holds in every norm.

    Block descent looks for rays itself, as far as its limits on rounds and time allow: it is not followed by a search
    that knows no limits.
    """
    where = torch.nonzero(judged.codes == Status.NOT_CONVERGED.code).flatten()
    if where.numel() == 0 or isinstance(solver, BlockDescent):
        return
    part = flat[where]
    raw = feasibility_solver(part).solve(part, Frobenius(), None, None)
    rays = RawSolution(torch.zeros_like(judged.weights[where]), raw.duals, raw.iterations)
    found = _judge(part, norm, rays, solver.accuracy)
    proved = found.codes == Status.INFEASIBLE.code
    if bool(proved.any()):
        where = where[proved]
        for name in ("weights", "duals", "codes"):
            getattr(judged, name)[where] = getattr(found, name)[proved]
        judged.certificate = certify(flat, norm, judged.weights, judged.duals)


def _assemble(
    problem: AttentionSVM,
    flat: AttentionSVM,
    norm: Norm,
    solver: Solver,
    raw: RawSolution,
    judged: _Judged,
    began: float,
) -> SVMSolution:
    infeasible = judged.codes == Status.INFEASIBLE.code
    nowhere = infeasible[:, None, None]
    margins = flat.margins(judged.weights).masked_fill(nowhere, torch.nan)
    slack = margins - flat.right_hand_side
    line = (slack > SUPPORT_TOLERANCE / 10) & (slack <= SUPPORT_TOLERANCE * 10)
    representative = -(judged.duals * flat.equalities).sum(-1, keepdim=True)
    if isinstance(norm, (Frobenius, Entrywise)):
        unique = ~infeasible
    else:
        unique = torch.zeros_like(infeasible) if raw.unique is None else raw.unique & ~infeasible

    def shaped(value: Tensor) -> Tensor:
        return value.reshape((*problem.batch_shape, *value.shape[1:]))

    return SVMSolution(
        weights=shaped(judged.weights.masked_fill(nowhere, torch.nan)),
        duals=shaped(judged.duals.scatter_add(-1, flat.reference.unsqueeze(-1), representative)),
        codes=shaped(judged.codes),
        margins=shaped(margins),
        support=shaped(flat.inequalities & (slack <= SUPPORT_TOLERANCE)),
        ambiguous=shaped((flat.inequalities & line).sum((-1, -2))),
        unique=shaped(unique),
        certificate=Certificate(**{name: shaped(value) for name, value in judged.certificate.__dict__.items()}),
        norm=norm,
        solver=type(solver).__name__,
        iterations=shaped(raw.iterations),
        seconds=time.perf_counter() - began,
        tolerance=solver.accuracy,
    )


# The exact solvers keep a Gram matrix of all rows; beyond this many, block descent is faster and needs no such matrix.
_LARGE = 1_500
# A few small problems are solved in PyTorch before the compiled kernels, faster for each problem, would have loaded.
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
        return BatchedFrobenius()
    return ActiveSet()
