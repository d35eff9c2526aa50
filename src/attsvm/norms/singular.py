"""Norms of singular values: spectral and nuclear, the geometries of orthogonalised descent (Muon) and of training keys
and queries, those that know a rank, and those of rotary heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.data.checks import check_count
from attsvm.norms.sizes import Largest, SingularValues, SizeNorm, Sum, make_dual


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


@dataclass(frozen=True)
class _ByFrequency(SizeNorm):
    """The norms of rotary heads: over frequencies, of the complex matrices that turn keys against queries.

    W is the stack ``[A_1; B_1; ...; A_F; B_F]`` of the weights of lifted tokens ``[cos(theta_f Delta) x ; sin(theta_f
    Delta) x]_f``, and A_0 of the coordinates that are not turned below it where there are some. With M_f = A_f - i B_f,

        N(W) = sum_f ||M_f||_* + ||A_0||_*,        N°(W) = max(max_f ||M_f||_2, ||A_0||_2).

    Where every frequency has one pair of columns, M_f has rank one and N(W) is the least ||K||_F ||Q||_F over all
    factors: training K and Q favours this norm, which is sparse over frequencies (derived, not proved; the convex
    problem drops the ranks).

    Arguments:
        frequencies: F.
        unturned: whether the stack ends with the block A_0.

    Raises:
        ValueError: if there is no block, or W has another number of rows than blocks of equal height.
    """

    frequencies: int
    unturned: bool = False

    def __post_init__(self) -> None:
        check_count(self.frequencies, "frequencies", least=0)
        if self.blocks == 0:
            raise ValueError("frequencies must be at least 1 where nothing is unturned; got 0")

    @property
    def blocks(self) -> int:
        """The number of matrices that are stacked."""
        return 2 * self.frequencies + self.unturned

    def height(self, rows: int) -> int:
        """Rows of one block."""
        if rows % self.blocks:
            raise ValueError(f"W must stack {self.blocks} blocks of as many rows each; got {rows} rows")
        return rows // self.blocks

    def complex_parts(self, matrix: Float[Tensor, "*batch d dq"]) -> Tensor:
        """M_f of every frequency, and A_0, ``[*batch, blocks, D, E]``."""
        parts = matrix.unflatten(-2, (self.blocks, self.height(matrix.shape[-2])))
        turned = parts[..., : 2 * self.frequencies, :, :].unflatten(-3, (self.frequencies, 2))
        found = torch.complex(turned[..., 0, :, :], -turned[..., 1, :, :])
        still = parts[..., 2 * self.frequencies :, :, :]
        return torch.cat([found, torch.complex(still, torch.zeros_like(still))], -3)

    def stacked(self, parts: Tensor) -> Float[Tensor, "*batch d dq"]:
        """The stack of these complex matrices; of A_0 the real part."""
        turned = parts[..., : self.frequencies, :, :]
        pairs = torch.stack([turned.real, -turned.imag], -3).flatten(-4, -3)
        return torch.cat([pairs, parts[..., self.frequencies :, :, :].real], -3).flatten(-3, -2)

    def _sizes(self, matrix: Tensor) -> Tensor:
        return torch.linalg.svdvals(self.complex_parts(matrix)).flatten(-2)

    def _resized(self, matrix: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        left, sizes, right = torch.linalg.svd(self.complex_parts(matrix), full_matrices=False)
        negligible = max(matrix.shape[-2:]) * torch.finfo(sizes.dtype).eps * sizes.amax((-2, -1), keepdim=True)
        changed = change((sizes * (sizes > negligible)).flatten(-2)).view_as(sizes)
        return self.stacked(left * changed[..., None, :] @ right)


@dataclass(frozen=True)
class NuclearByFrequency(Sum, _ByFrequency):
    """sum_f ||A_f - i B_f||_* + ||A_0||_*, dual to `SpectralByFrequency`.

    Its steepest direction is the leading singular pair of the frequency whose largest singular value is largest.

    >>> W = torch.tensor([[3.0], [4.0], [0.0], [1.0]]).double()  # |3 - 4i| + |-i|
    >>> NuclearByFrequency(2).value(W), NuclearByFrequency(2).dual_value(W)
    (tensor(6., dtype=torch.float64), tensor(5., dtype=torch.float64))
    """

    name = "nuclear by frequency"


@dataclass(frozen=True)
class SpectralByFrequency(Largest, _ByFrequency):
    """max(max_f ||A_f - i B_f||_2, ||A_0||_2), dual to `NuclearByFrequency`: polar factors, clipped singular values."""

    name = "spectral by frequency"


make_dual(NuclearByFrequency, SpectralByFrequency)
