"""Which solver runs: by norm, size and device."""

from __future__ import annotations

from attsvm.norms import Entrywise, Frobenius, MaxEntry, Norm, Nuclear, Spectral, SumEntry
from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.active_set import ActiveSet, BatchedActiveSet
from attsvm.svm.solvers.base import Solver
from attsvm.svm.solvers.block_descent import BlockDescent
from attsvm.svm.solvers.conic import Conic
from attsvm.svm.solvers.linear_program import LinearProgram
from attsvm.svm.solvers.nuclear_interior_point import NuclearInteriorPoint

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
