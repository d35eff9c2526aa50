"""The sum of |entries|: the geometry of greedy coordinate descent."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.norms._linalg import project_onto_simplex
from attsvm.norms.base import Norm
from attsvm.norms.max_entry import MaxEntry


@dataclass(frozen=True)
class SumEntry(Norm):
    """sum_ij |w_ij|; dual to the largest |entry|, not unitarily invariant.

    Its steepest direction is the sign of the largest |entry| at that entry, the first one in row order where several
    are largest; its prox is soft-thresholding.

    >>> import torch
    >>> W = torch.tensor([[3.0, -4.0], [0.0, 1.0]])
    >>> SumEntry().value(W), SumEntry().dual_value(W)
    (tensor(8.), tensor(4.))
    >>> SumEntry().prox(W, 2.0)
    tensor([[ 1., -2.],
            [ 0.,  0.]])
    """

    name = "sum of entries"

    @property
    def dual(self) -> Norm:
        """The largest |entry|."""
        return MaxEntry()

    def _value(self, matrix: Float[Tensor, "*batch d dq"]) -> Float[Tensor, "*batch"]:
        return matrix.abs().sum(dim=(-2, -1))

    def _steepest(self, gradient: Float[Tensor, "*batch d dq"]) -> Float[Tensor, "*batch d dq"]:
        entries = gradient.flatten(-2)
        first = entries.abs().argmax(-1, keepdim=True)
        chosen = torch.zeros_like(entries).scatter(-1, first, entries.gather(-1, first).sign())
        return chosen.reshape(gradient.shape)

    def _project(
        self, matrix: Float[Tensor, "*batch d dq"], radius: Float[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch d dq"]:
        sizes = project_onto_simplex(matrix.abs().flatten(-2), radius)
        return matrix.sign() * sizes.reshape(matrix.shape)
