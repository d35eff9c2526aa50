"""Attention SVMs: problem, solvers, solution, certificate."""

from attsvm.svm.certificate import Certificate, certify
from attsvm.svm.derived import LabelSVM, distance_to_solution_set, finite_component, label_svm, margin_efficiency
from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solution import Status, SVMSolution
from attsvm.svm.solve import solve
from attsvm.svm.solvers.active_set.solver import ActiveSet
from attsvm.svm.solvers.base import Solver
from attsvm.svm.solvers.batched.solver import BatchedFrobenius
from attsvm.svm.solvers.block_descent.solver import BlockDescent
from attsvm.svm.solvers.dense.conic import Conic, Cvxpy
from attsvm.svm.solvers.dense.linear_program import LinearProgram
from attsvm.svm.solvers.interior.solver import InteriorPoint
from attsvm.svm.solvers.large_interior import LargeInteriorPoint
from attsvm.svm.solvers.nuclear.solver import NuclearInteriorPoint

__all__ = [
    # problem and solution
    "AttentionSVM",
    "Certificate",
    "SVMSolution",
    "Status",
    "certify",
    "solve",
    # derived quantities
    "LabelSVM",
    "distance_to_solution_set",
    "finite_component",
    "label_svm",
    "margin_efficiency",
    # solvers
    "ActiveSet",
    "BatchedFrobenius",
    "BlockDescent",
    "Conic",
    "Cvxpy",
    "InteriorPoint",
    "LargeInteriorPoint",
    "LinearProgram",
    "NuclearInteriorPoint",
    "Solver",
]
