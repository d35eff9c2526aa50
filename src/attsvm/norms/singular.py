"""Norms of singular values: spectral and nuclear, the geometries of orthogonalised descent (Muon) and of training keys
and queries, and those that know a rank."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attsvm.data.checks import check_count
from attsvm.norms.sizes import Largest, SingularValues, Sum, make_dual


@dataclass(frozen=True)
class Spectral(Largest, SingularValues):
    """||W||_2 = sigma_1(W), the largest singular value; dual to the nuclear norm, unitarily invariant.

    Its steepest direction is the polar factor U V^T of G = U diag(sigma) V^T on the numerical range. Projection clips
    singular values at the radius.

    >>> W = torch.diag(torch.tensor([3.0, -4.0, 0.0]))
    >>> Spectral().value(W), Spectral().dual_value(W)
    (tensor(4.), tensor(7.))
    >>> Spectral().steepest(W).diagonal()
    tensor([ 1., -1.,  0.])
    """

    name = "spectral"


@dataclass(frozen=True)
class Nuclear(Sum, SingularValues):
    """||W||_* = sum_k sigma_k(W), the sum of singular values; dual to the spectral norm, unitarily invariant.

    Also min (||K||_F^2 + ||Q||_F^2) / 2 over K Q^T = W, which is why training (K, Q) favours it. Its steepest direction
    is the leading singular pair u_1 v_1^T of the gradient (one of them where sigma_1 is multiple).

    >>> W = torch.diag(torch.tensor([3.0, -4.0]))
    >>> Nuclear().value(W), Nuclear().dual_value(W)
    (tensor(7.), tensor(4.))
    >>> Nuclear().project(W, 1.0).diagonal() + 0.0
    tensor([ 0., -1.])
    """

    name = "nuclear"


@dataclass(frozen=True)
class _OfRank(SingularValues):
    rank: int

    def __post_init__(self) -> None:
        check_count(self.rank, "rank")


@dataclass(frozen=True)
class SpectralOfRank(_OfRank):
    """max(sigma_1, sum_i sigma_i / rank); dual to Ky Fan's norm, unitarily invariant.

    Its unit ball is the convex hull of the matrices of spectral norm 1 and at most this rank; where the rank of W is
    no larger it is the spectral norm.

    >>> W = torch.diag(torch.tensor([3.0, -2.0, 2.0]))
    >>> SpectralOfRank(2).value(W), SpectralOfRank(2).dual_value(W)
    (tensor(3.5000), tensor(5.))
    """

    @property
    def name(self) -> str:
        return f"spectral of rank {self.rank}"

    def _of_sizes(self, sizes: Tensor) -> Tensor:
        return torch.maximum(sizes[..., 0], sizes.sum(-1) / self.rank)

    def _steepest_sizes(self, sizes: Tensor) -> Tensor:
        first = torch.arange(sizes.shape[-1], device=sizes.device) < self.rank
        return ((sizes > 0) & first).to(sizes.dtype)

    def _project_sizes(self, sizes: Tensor, radius: Tensor) -> Tensor:
        return _onto_capped(sizes, radius[..., None], self.rank)


@dataclass(frozen=True)
class KyFan(_OfRank):
    """The sum of the `rank` largest singular values; dual to `SpectralOfRank`, unitarily invariant.

    >>> KyFan(2).value(torch.diag(torch.tensor([3.0, -2.0, 1.0])))
    tensor(5.)
    """

    @property
    def name(self) -> str:
        return f"Ky Fan {self.rank}"

    def _of_sizes(self, sizes: Tensor) -> Tensor:
        return sizes[..., : self.rank].sum(-1)

    def _steepest_sizes(self, sizes: Tensor) -> Tensor:
        first = torch.zeros_like(sizes)
        first[..., 0] = sizes[..., 0].sign()
        steep = sizes[..., :1] >= sizes.sum(-1, keepdim=True) / self.rank
        return torch.where(steep, first, (sizes > 0) / self.rank)

    def _project_sizes(self, sizes: Tensor, radius: Tensor) -> Tensor:
        """Sizes less their projection onto the dual ball, of the one size that leaves a norm of `radius`: bisection."""
        low = torch.zeros_like(sizes[..., :1])
        high = torch.maximum(sizes[..., :1], sizes.sum(-1, keepdim=True) / self.rank)
        for _ in range(100):
            middle = (low + high) / 2
            left_over = (sizes - _onto_capped(sizes, middle, self.rank))[..., : self.rank].sum(-1, keepdim=True)
            above = left_over > radius[..., None]
            low, high = torch.where(above, middle, low), torch.where(above, high, middle)
        return sizes - _onto_capped(sizes, high, self.rank)


make_dual(Spectral, Nuclear)
make_dual(SpectralOfRank, KyFan)


def _onto_capped(sizes: Tensor, cap: Tensor, rank: int) -> Tensor:
    """The nearest point to `sizes` >= 0 ``[*batch, k]`` with entries in [0, cap] and a sum of at most rank cap.

    It is clamp(sizes - theta, 0, cap), theta found exactly among the points where an entry meets 0 or cap.
    """
    cap = cap.expand(*sizes.shape[:-1], 1)
    ends = torch.cat([sizes, sizes - cap, torch.zeros_like(cap)], -1).clamp(min=0).sort(-1).values
    sums = (sizes[..., None, :] - ends[..., None]).clamp(min=0).minimum(cap[..., None]).sum(-1)
    within = (sums > rank * cap).sum(-1, keepdim=True).clamp(max=ends.shape[-1] - 1)  # the first end that is allowed
    before = (within - 1).clamp(min=0)
    (a, fa), (b, fb) = ((ends.gather(-1, at), sums.gather(-1, at)) for at in (before, within))
    share = torch.where(fa > fb, (fa - rank * cap) / (fa - fb), torch.ones_like(fa)).clamp(0, 1)
    theta = torch.where(within > 0, a + share * (b - a), torch.zeros_like(a))
    return (sizes - theta).clamp(min=0).minimum(cap)
