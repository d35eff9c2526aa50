"""The spectral norm: the geometry of orthogonalised descent (Muon)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.norms._linalg import singular_values, thin_svd
from attsvm.norms.base import Norm


@dataclass(frozen=True)
class Spectral(Norm):
    """||W||_2 = sigma_1(W), the largest singular value; dual to the nuclear norm, unitarily invariant.

    Its steepest direction is the polar factor U V^T of G = U diag(sigma) V^T on the numerical range: singular values up
    to max(d, dq) eps sigma_1 are round-off, their directions arbitrary, and they count as 0. Projection clips singular
    values at the radius.

    >>> import torch
    >>> W = torch.diag(torch.tensor([3.0, -4.0, 0.0]))
    >>> Spectral().value(W), Spectral().dual_value(W)
    (tensor(4.), tensor(7.))
    >>> Spectral().steepest(W).diagonal()
    tensor([ 1., -1.,  0.])
    """

    name = "spectral"
    unitarily_invariant = True

    @property
    def dual(self) -> Norm:
        """The nuclear norm."""
        from attsvm.norms.nuclear import Nuclear

        return Nuclear()

    def _value(self, matrix: Float[Tensor, "*batch d dq"]) -> Float[Tensor, "*batch"]:
        return singular_values(matrix)[..., 0]

    def _steepest(self, gradient: Float[Tensor, "*batch d dq"]) -> Float[Tensor, "*batch d dq"]:
        left, sizes, right = thin_svd(gradient)
        negligible = max(gradient.shape[-2:]) * torch.finfo(gradient.dtype).eps * sizes[..., :1]
        return left * (sizes > negligible).to(left.dtype)[..., None, :] @ right

    def _project(
        self, matrix: Float[Tensor, "*batch d dq"], radius: Float[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch d dq"]:
        left, sizes, right = thin_svd(matrix)
        return left * sizes.minimum(radius[..., None])[..., None, :] @ right
