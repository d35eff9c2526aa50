"""The entrywise l_p norms: the geometry of l_p mirror descent."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from numbers import Real

import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.norms._power_ball import project_onto_power_ball
from attsvm.norms.base import Norm


@dataclass(frozen=True)
class Entrywise(Norm):
    """||W||_p = (sum_ij |w_ij|^p)^(1/p), 1 < p < inf; dual to the exponent q with 1/p + 1/q = 1.

    Its steepest direction is sign(G) |G|^(q-1) / ||G||_q^(q-1). Projection has no closed form: a safeguarded Newton
    method solves it to about 1e-14 of the radius, in float64 for either type. `unitarily_invariant` is False for every
    p, also for p = 2, where Frobenius() is the same norm and says so.

    Arguments:
        p: the exponent, strictly between 1 and infinity.

    Raises:
        ValueError: if p is no such number; the ends are SumEntry() (p = 1) and MaxEntry() (p = infinity).

    >>> import torch
    >>> W = torch.tensor([[3.0, 4.0], [5.0, 0.0]], dtype=torch.float64)
    >>> round(float(Entrywise(3).value(W)), 12)
    6.0
    >>> Entrywise(3), Entrywise(3).dual, Entrywise(3).name
    (Entrywise(p=3.0), Entrywise(p=1.5), 'l_3 entrywise')
    """

    p: float
    conjugate: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        p = _number(self.p)
        if p == 1:
            raise ValueError("p must be strictly between 1 and infinity; for p = 1 use SumEntry()")
        if p == math.inf:
            raise ValueError("p must be strictly between 1 and infinity; for p = infinity use MaxEntry()")
        if not p > 1:
            raise ValueError(f"p must be strictly between 1 and infinity; got {self.p!r}")
        if p / (p - 1) == 1:
            raise ValueError(f"p = {p} is infinite to working precision (p / (p - 1) = 1): use MaxEntry()")
        object.__setattr__(self, "p", p)
        object.__setattr__(self, "conjugate", p / (p - 1))

    @property
    def name(self) -> str:
        """What a person calls it."""
        return f"l_{self.p:g} entrywise"

    @property
    def dual(self) -> Entrywise:
        """The norm of the conjugate exponent, which remembers p: q / (q - 1) may miss it by a rounding."""
        dual = Entrywise(self.conjugate)
        object.__setattr__(dual, "conjugate", self.p)
        return dual

    def _value(self, matrix: Float[Tensor, "*batch d dq"]) -> Float[Tensor, "*batch"]:
        sizes, largest = _relative(matrix)
        length: Tensor = torch.linalg.vector_norm(sizes, ord=self.p, dim=(-2, -1))
        return largest[..., 0, 0] * length

    def _steepest(self, gradient: Float[Tensor, "*batch d dq"]) -> Float[Tensor, "*batch d dq"]:
        sizes, _ = _relative(gradient)
        powers = sizes ** (1 / (self.p - 1))
        length: Tensor = torch.linalg.vector_norm(powers, ord=self.p, dim=(-2, -1), keepdim=True)
        return gradient.sign() * powers / length.clamp(min=1)  # the largest power is 1, or all are zero

    def _project(
        self, matrix: Float[Tensor, "*batch d dq"], radius: Float[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch d dq"]:
        sizes = project_onto_power_ball(matrix.abs().flatten(-2), radius, self.p)
        return matrix.sign() * sizes.reshape(matrix.shape)


def _number(value: object) -> float:
    """`value` as a float; NaN if it is no real number."""
    return float(value) if not isinstance(value, bool) and isinstance(value, Real) else math.nan


def _relative(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """|entries| over the largest one, so that no power overflows, and the largest one (1 for a zero matrix)."""
    sizes = matrix.abs()
    largest = sizes.amax(dim=(-2, -1), keepdim=True).clamp(min=1)
    return sizes / largest, largest
