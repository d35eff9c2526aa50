"""What a solver is: tolerances and a method, never data; what it returns: a raw pair that the certificate judges."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor

from attsvm.norms import Norm
from attsvm.svm.problem import AttentionSVM

ProgressReport = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class RawSolution:
    """What a solver claims, for problems with one batch axis.

    Attributes:
        weights: ``[batch, d, dq]``.
        duals: norm form or any positive multiple of it; a ray where the solver found the problem infeasible.
        iterations: in the solver's unit.
        unique: True or False where known; None where the solver cannot tell.
    """

    weights: Float[Tensor, "batch d dq"]
    duals: Float[Tensor, "batch n T"]
    iterations: Int[Tensor, " batch"]
    unique: Bool[Tensor, " batch"] | None = None


class Solver(ABC):
    """A method for some norms.

    `accuracy` is the relative gap, and the violation, to which the certificate must hold for an answer to count as
    solved.
    """

    accuracy: float

    @abstractmethod
    def refusal(self, problem: AttentionSVM, norm: Norm) -> str | None:
        """Why this solver cannot solve these problems, as a clause; None if it can."""

    @abstractmethod
    def solve(
        self, problem: AttentionSVM, norm: Norm, initial: Tensor | None, progress: ProgressReport | None
    ) -> RawSolution:
        """Solve problems with one batch axis; `initial` are duals ``[batch, n, T]`` to start from."""


OPTIMAL, INFEASIBLE, UNSURE = 0, 1, 2

EPSILON = 2.0**-52
RAY = 1e-12  # accepted ||sum lam_k A_k|| / sum lam_k ||A_k|| of a ray
BOUND = 1e10  # a ray is believed when it proves ||W|| > BOUND, in units of the largest b_k / ||A_k||
