"""The largest entry: the geometry of sign descent."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.norms.base import Norm


@dataclass(frozen=True)
class MaxEntry(Norm):
    """max_ij |w_ij|; dual to the sum of |entries|, not unitarily invariant.

    Its steepest direction is sign(G) (0 at 0), its projection clips entries.

    >>> import torch
    >>> W = torch.tensor([[3.0, -4.0], [0.0, 1.0]])
    >>> MaxEntry().value(W), MaxEntry().dual_value(W)
    (tensor(4.), tensor(8.))
    >>> MaxEntry().project(W, 2.0)
    tensor([[ 2., -2.],
            [ 0.,  1.]])
    """

    name = "max entry"

    @property
    def dual(self) -> Norm:
        """The sum of |entries|."""
        from attsvm.norms.sum_entry import SumEntry

        return SumEntry()

    def _value(self, matrix: Float[Tensor, "*batch d dq"]) -> Float[Tensor, "*batch"]:
        return matrix.abs().amax(dim=(-2, -1))

    def _steepest(self, gradient: Float[Tensor, "*batch d dq"]) -> Float[Tensor, "*batch d dq"]:
        return gradient.sign()

    def _project(
        self, matrix: Float[Tensor, "*batch d dq"], radius: Float[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch d dq"]:
        bound = radius[..., None, None]
        return torch.clamp(matrix, -bound, bound)
