"""Solving: choose a solver, run it, and let the certificate decide what came of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attsvm.attention.linear_maps import logits
from attsvm.data.checks import check_kind
from attsvm.data.machine import TINY, one_thread
from attsvm.norms import Entrywise, Frobenius, Norm, Spectral, SpectralOfRank
from attsvm.svm.certificate import Certificate, certificate_of, certify, signed
from attsvm.svm.infeasibility import proves_infeasible
from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solution import SUPPORT_TOLERANCE, Status, SVMSolution
from attsvm.svm.solvers.active_set.solver import ActiveSet
from attsvm.svm.solvers.base import ProgressReport, RawSolution, RowList, Solver
from attsvm.svm.solvers.batched.solver import BatchedFrobenius
from attsvm.svm.solvers.block_descent.solver import BlockDescent
from attsvm.svm.solvers.dense.conic import Conic
from attsvm.svm.solvers.dense.linear_program import ColumnGeneration, LinearProgram
from attsvm.svm.solvers.interior.solver import InteriorPoint
from attsvm.svm.solvers.large_interior import LargeInteriorPoint
from attsvm.svm.solvers.nuclear.solver import NuclearInteriorPoint

RAY_TOLERANCE = 1e-10


def solve(
    problem: AttentionSVM,
    norm: Norm | None = None,
    *,
    solver: Solver | None = None,
    initial: SVMSolution | Tensor | None = None,
    progress: ProgressReport = None,
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
    check_kind(problem, AttentionSVM, "problem", "an AttentionSVM(data, selected)")
    check_kind(solver, Solver | None, "solver", "a solver such as Cvxpy() or None")
    check_kind(norm, Norm, "norm", "a norm such as Frobenius() or Nuclear()")
    check_kind(initial, SVMSolution | Tensor | None, "initial", "a solution or a tensor of duals")
    flat = problem.flatten()
    chosen = choose_solver(solver, flat, norm, warm=initial is not None)
    with one_thread(flat.rows.numel() * (flat.data.d + flat.data.dq) <= TINY):
        start = _start(initial, problem, flat)
        raw = chosen.solve(flat, norm, start, progress) if len(flat.rows) else _of_none(flat)
        judged = _judge(flat, norm, raw, chosen.accuracy)
        _ask_others(flat, norm, judged, chosen)
        _settle_rays(flat, norm, judged, chosen.accuracy)
        return _assemble(problem, norm, chosen, raw, judged, began)


def _of_none(flat: AttentionSVM) -> RawSolution:
    """The solutions of no problems at all."""
    weights = flat.right_hand_side.new_zeros(0, flat.data.d, flat.data.dq)
    return RawSolution(weights, flat.right_hand_side, torch.zeros(0, dtype=torch.long))


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
    """Weights with their margins and duals in norm form (a ray where infeasible), what they prove, and the status."""

    weights: Tensor
    margins: Tensor
    duals: Tensor
    certificate: Certificate
    codes: Tensor

    def where(self, status: Status) -> Tensor:
        """The elements of this status."""
        return torch.nonzero(self.codes == status.code).flatten()

    def take(self, where: Tensor, found: _Judged, better: Tensor) -> None:
        """Put the elements `better` of `found` at their places `where`."""
        for name in ("weights", "margins", "duals", "codes"):
            getattr(self, name)[where[better]] = getattr(found, name)[better]
        for name, value in vars(self.certificate).items():
            value[where[better]] = getattr(found.certificate, name)[better]


def _judge(flat: AttentionSVM, norm: Norm, raw: RawSolution, accuracy: float) -> _Judged:
    """Bring the raw pair into norm form, stretch W to feasibility where allowed, and certify it."""
    # Where no row asks for anything the solution is exactly 0, whatever came.
    asked = flat.asking.any(-1).any(-1)[:, None, None]
    weights = torch.where(torch.isfinite(raw.weights) & asked, raw.weights, 0.0)
    duals = torch.where(torch.isfinite(raw.duals) & asked & flat.rows, raw.duals, 0.0)
    combined = flat.combine(signed(flat, duals))
    size = norm.dual_value(combined)
    size = torch.where(size > 0, size, 1.0)[:, None, None]
    margins = flat.margins(weights)
    ratio = flat.smallest_ratio(margins)
    stretch = torch.where(flat.scalable & (ratio > 0) & (ratio < 1), 1 / ratio, 1.0)[:, None, None]
    weights, margins, duals, combined = weights * stretch, margins * stretch, duals / size, combined / size
    certificate = certificate_of(flat, norm, weights, duals, margins, combined)
    # The certificate says what is a ray, not the solver; it reads negative multipliers as 0, and so must everyone else.
    solved = certificate.proves_optimal(accuracy)
    rays = certificate.holds_ray(RAY_TOLERANCE) & ~solved
    if bool(rays.any()):
        lam = signed(flat, duals)
        reward = (lam * flat.right_hand_side).sum((-1, -2))
        duals = torch.where(rays[:, None, None], lam / reward[:, None, None], duals)
        certificate = certify(flat, norm, weights, duals)
        solved, rays = certificate.proves_optimal(accuracy), certificate.holds_ray(RAY_TOLERANCE)
    codes = torch.where(rays, Status.NUMERICALLY_INFEASIBLE.code, Status.NOT_CONVERGED.code)  # until `_settle_rays`
    empty = ~flat.rows.any(-1).any(-1)
    left = torch.nonzero(~solved & ~empty).flatten()
    if left.numel():
        codes[left[_separates(flat[left], weights[left], margins[left])]] = Status.SEPARABLE.code
    codes[solved] = Status.SOLVED.code
    codes[empty] = Status.NO_ROWS.code
    return _Judged(weights, margins, duals, certificate, codes)


def _separates(flat: AttentionSVM, weights: Tensor, margins: Tensor) -> Tensor:
    """Where the weights, scaled up where that is allowed, certainly separate: margins beyond their own round-off.

    A computed margin is off by at most 2 (d + dq + 3) units of round-off of ``(|x_r| + |x_t|)^T |W| |z|``. Rows with
    b > 0 must have a margin above this error; rows with b = 0 and equalities can be met only up to it, which is all
    that float64 can say of them. Where scaling W is no way to meet a row, every row must be met as it is.
    """
    sides = flat.right_hand_side
    absolute = replace(flat.data, tokens=flat.data.tokens.abs(), queries=flat.data.queries.abs())
    sizes = logits(absolute, weights.abs()).masked_fill(~flat.data.real, 0.0)
    sizes = sizes + sizes.gather(-1, flat.reference.unsqueeze(-1))
    error = 2 * (flat.data.d + flat.data.dq + 3) * 2.0**-52 * sizes
    enough = torch.where(flat.scalable[:, None, None] & (sides > 0), margins > error, margins >= sides - error)
    met = torch.where(flat.equalities, (margins - sides).abs() <= error, enough) | ~flat.rows
    return met.all(-1).all(-1) & torch.isfinite(weights).all(-1).all(-1)


def _ask_others(flat: AttentionSVM, norm: Norm, judged: _Judged, solver: Solver) -> None:
    """Ask a Frobenius solver where nothing is known: whether a selection is separable does not depend on the norm.

    Block descent looks for rays itself, as far as its limits on rounds and time allow: it is not followed by a search
    that knows no limits. Where the interior point for batches stopped early on a problem that has a solution, HiGHS or
    Clarabel goes on.
    """
    where = judged.where(Status.NOT_CONVERGED)
    if where.numel() and not isinstance(solver, BlockDescent):
        part = flat[where]
        raw = feasibility_solver(part).solve(part, Frobenius(), None, None)
        found = _judge(part, norm, raw, solver.accuracy)
        judged.take(where, found, found.codes != Status.NOT_CONVERGED.code)
    where = judged.where(Status.SEPARABLE)
    if where.numel() and isinstance(solver, InteriorPoint):
        part = flat[where]
        one_by_one = LinearProgram() if LinearProgram().refusal(part, norm) is None else Conic()
        found = _judge(part, norm, one_by_one.solve(part, norm, None, None), solver.accuracy)
        closer = found.certificate.relative_gap < judged.certificate.relative_gap[where]
        judged.take(where, found, closer & (found.codes != Status.NOT_CONVERGED.code))


def _settle_rays(flat: AttentionSVM, norm: Norm, judged: _Judged, accuracy: float) -> None:
    """Decide for each ray whether it proves infeasibility; where it does not, whether its residual separates after all.

    A ray that leaves M = sum_k lam_k A_k has in M the best direction it knows: at the optimum of the Frobenius norm W
    is a multiple of M. What is left is numerically infeasible, with a bound that allows for the round-off of M.
    """
    where = judged.where(Status.NUMERICALLY_INFEASIBLE)
    if where.numel():
        proved = proves_infeasible(flat[where], judged.duals[where])
        judged.codes[where[proved]] = Status.INFEASIBLE.code
        where = where[~proved]
    if where.numel() == 0:
        return
    part, rays = flat[where], judged.duals[where]
    lam = rays.flatten(1)
    places = lam.abs().topk(int((lam != 0).sum(1).max())).indices
    candidates = [RowList.of(part, places).combine(lam.gather(1, places))]
    if not isinstance(norm, Frobenius):
        candidates.append(feasibility_solver(part).solve(part, Frobenius(), None, None).weights)
    for weights in candidates:
        found = _judge(part, norm, RawSolution(weights, rays, torch.zeros_like(where)), accuracy)
        judged.take(where, found, (found.codes == Status.SOLVED.code) | (found.codes == Status.SEPARABLE.code))
    left = judged.codes[where] == Status.NUMERICALLY_INFEASIBLE.code
    judged.certificate.dual_value[where[left]] = _bound(part[left], norm, rays[left])


def _bound(flat: AttentionSVM, norm: Norm, rays: Tensor) -> Tensor:
    """The norm below which a ray excludes every W, whatever round-off did to M.

    M is a sum of n T products of three numbers: in the Frobenius norm its error is at most 2 (n T + 8) units of
    round-off of ``sum |lam| (|x_r| + |x_t|) |z|``, and every dual norm is at most sqrt(d dq) times the Frobenius norm.
    """
    data = flat.data
    lam = signed(flat, rays).masked_fill(flat.vanishing, 0.0)
    tokens = torch.linalg.vector_norm(data.input_tokens, dim=-1)
    sizes = tokens + tokens.gather(-1, flat.reference.unsqueeze(-1))
    sizes = sizes * torch.linalg.vector_norm(data.queries, dim=-1, keepdim=True)
    error = 2 * (data.n * data.T + 8) * 2.0**-52 * (lam.abs() * sizes).sum((-1, -2))
    size = norm.dual_value(flat.combine(lam)) * (1 + 1e-9) + error * (data.d * data.dq) ** 0.5
    return (lam * flat.right_hand_side).sum((-1, -2)) * (1 - 1e-9) / size


def _assemble(
    problem: AttentionSVM, norm: Norm, solver: Solver, raw: RawSolution, judged: _Judged, began: float
) -> SVMSolution:
    codes, flat = judged.codes, problem.flatten()
    barred = ((codes == Status.INFEASIBLE.code) | (codes == Status.NUMERICALLY_INFEASIBLE.code))[:, None, None]
    solved = (codes == Status.SOLVED.code) | (codes == Status.NO_ROWS.code)
    margins = judged.margins.masked_fill(barred, torch.nan)
    slack = (margins - flat.right_hand_side).masked_fill(~flat.inequalities, torch.nan)
    representative = -(judged.duals * flat.equalities).sum(-1, keepdim=True)
    unique = isinstance(norm, (Frobenius, Entrywise)) | (judged.certificate.primal_value == 0)  # only W = 0 has norm 0
    unique = solved & (unique if raw.unique is None else unique | raw.unique)

    def shaped(value: Tensor) -> Tensor:
        return value.reshape((*problem.batch_shape, *value.shape[1:]))

    return SVMSolution(
        weights=shaped(judged.weights.masked_fill(barred, torch.nan)),
        duals=shaped(judged.duals.scatter_add(-1, flat.reference.unsqueeze(-1), representative)),
        codes=shaped(codes),
        margins=shaped(margins),
        support=shaped(slack <= SUPPORT_TOLERANCE),
        ambiguous=shaped(((slack > SUPPORT_TOLERANCE / 10) & (slack <= SUPPORT_TOLERANCE * 10)).sum((-1, -2))),
        unique=shaped(unique),
        certificate=Certificate(**{name: shaped(value) for name, value in vars(judged.certificate).items()}),
        norm=norm,
        solver=type(solver).__name__,
        iterations=shaped(raw.iterations),
        seconds=time.perf_counter() - began,
        tolerance=solver.accuracy,
    )


# The exact solvers keep a Gram matrix of all rows; beyond this many, block descent is faster and needs no such matrix.
_LARGE = 1_500
# Rows for each entry of W from which a GPU factors systems in W faster than a CPU descends on the rows.
_HEAVY = 4
# A few small problems are solved in PyTorch before the compiled kernels, faster for each problem, would have loaded.
_FEW = 16
_SMALL = 200


def choose_solver(solver: Solver | None, problem: AttentionSVM, norm: Norm, warm: bool = False) -> Solver:
    """The solver asked for, or the first that suits the problem; `warm` where there are duals to start from."""
    if solver is not None:
        if (refusal := solver.refusal(problem, norm)) is not None:
            raise ValueError(f"{type(solver).__name__} cannot solve this problem: {refusal}")
        return solver
    if isinstance(norm, Frobenius):
        return feasibility_solver(problem, warm)
    several = (problem.batch_shape[0] >= _FEW or isinstance(norm, Spectral)) and problem.most_rows <= _LARGE
    at_once = (InteriorPoint(),) if several or isinstance(norm, SpectralOfRank) else ()
    for known in (NuclearInteriorPoint(), *at_once, ColumnGeneration(), LinearProgram(), Conic()):
        if known.refusal(problem, norm) is None:
            return known
    raise ValueError(f"no solver knows the norm {norm!r} for W of {problem.data.d} x {problem.data.dq}; pass solver=")


def feasibility_solver(problem: AttentionSVM, warm: bool = False) -> Solver:
    """The Frobenius solver for this size and device; it also decides whether a selection is separable at all."""
    rows = problem.most_rows
    on_gpu = problem.data.device.type == "cuda"
    if rows > _LARGE:
        heavy = rows > _HEAVY * problem.data.d * problem.data.dq
        gpu = LargeInteriorPoint()
        return gpu if on_gpu and heavy and gpu.refusal(problem, Frobenius()) is None else BlockDescent()
    if on_gpu or (problem.batch_shape[0] < _FEW and rows <= _SMALL and not warm):
        return BatchedFrobenius()
    return ActiveSet()
