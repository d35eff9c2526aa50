"""The nuclear norm: the bias of training keys and queries, W = K Q^T."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from attsvm.norms._linalg import project_onto_simplex, singular_values, thin_svd
from attsvm.norms.base import Norm
from attsvm.norms.spectral import Spectral


@dataclass(frozen=True)
class Nuclear(Norm):
    """||W||_* = sum_k sigma_k(W), the sum of singular values; dual to the spectral norm, unitarily invariant.

    Also min (||K||_F^2 + ||Q||_F^2) / 2 over K Q^T = W, which is why training (K, Q) favours it. Its steepest direction
    is the leading singular pair u_1 v_1^T of the gradient (one of them where sigma_1 is multiple).

    >>> import torch
    >>> W = torch.diag(torch.tensor([3.0, -4.0]))
    >>> Nuclear().value(W), Nuclear().dual_value(W)
    (tensor(7.), tensor(4.))
    >>> Nuclear().project(W, 1.0).diagonal() + 0.0
    tensor([ 0., -1.])
    """

    name = "nuclear"
    unitarily_invariant = True

    @property
    def dual(self) -> Norm:
        """The spectral norm."""
        return Spectral()

    def _value(self, matrix: Float[Tensor, "*batch d dq"]) -> Float[Tensor, "*batch"]:
        return singular_values(matrix).sum(-1)

    def _steepest(self, gradient: Float[Tensor, "*batch d dq"]) -> Float[Tensor, "*batch d dq"]:
        left, sizes, right = thin_svd(gradient)
        sign = sizes[..., None, :1].sign()  # 0 where the gradient is zero
        return left[..., :, :1] * sign * right[..., :1, :]

    def _project(
        self, matrix: Float[Tensor, "*batch d dq"], radius: Float[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch d dq"]:
        left, sizes, right = thin_svd(matrix)
        return left * project_onto_simplex(sizes, radius)[..., None, :] @ right
