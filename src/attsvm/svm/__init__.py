"""Attention SVMs: problem, solvers, solution, certificate."""

from attsvm.svm.certificate import Certificate, certify
from attsvm.svm.derived import LabelSVM, finite_component, label_svm, margin_efficiency
from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solution import SVMSolution
from attsvm.svm.solution_set import distance_to_solution_set
from attsvm.svm.solve import solve
from attsvm.svm.solvers.active_set import ActiveSet, BatchedActiveSet
from attsvm.svm.solvers.base import Solver
from attsvm.svm.solvers.block_descent import BlockDescent
from attsvm.svm.solvers.conic import Conic
from attsvm.svm.solvers.cvxpy import Cvxpy
from attsvm.svm.solvers.linear_program import LinearProgram
from attsvm.svm.solvers.nuclear_interior_point import NuclearInteriorPoint
from attsvm.svm.status import Status

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
    "BatchedActiveSet",
    "BlockDescent",
    "Conic",
    "Cvxpy",
    "LinearProgram",
    "NuclearInteriorPoint",
    "Solver",
]
