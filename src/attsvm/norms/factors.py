"""The norm of W = K Q^T that belongs to steps in a norm on K and on Q."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.norms._linalg import singular_values, thin_svd
from attsvm.norms.base import Norm
from attsvm.norms.frobenius import Frobenius
from attsvm.norms.largest_row import LargestColumn, LargestRow
from attsvm.norms.max_entry import MaxEntry
from attsvm.norms.nuclear import Nuclear
from attsvm.norms.projective import Projective
from attsvm.norms.semidefinite import Gamma2
from attsvm.norms.spectral import Spectral


def factor_norm(norm: Norm, rank: int | None = None) -> Norm:
    """The norm of W = K Q^T whose max-margin problem belongs to steps in `norm` on K and on Q.

        inf { ||K|| ||Q|| : K Q^T = W },  K [d, rank], Q [dq, rank]

    | steps on K and on Q | norm of W |
    |---|---|
    | `Frobenius()`; `LargestColumn()`, up to the factor 1 / rank | `Nuclear()` |
    | `Spectral()` (Muon) | `Spectral()`; with a rank, the largest norm below the infimum, `SpectralOfRank(rank)` |
    | `LargestRow()` | `Gamma2()`, from a rank of at least that of W on |
    | `MaxEntry()` (sign) | `Projective()`, the limit of large ranks, up to the factor 1 / rank |

    That training tends to these problems is derived, not proved.

    Arguments:
        norm: of the steps.
        rank: columns of K and Q; None means at least the rank of W.

    Raises:
        ValueError: for other norms, of which none is known, and for a rank that is not a positive integer.

    >>> factor_norm(Frobenius()), factor_norm(Spectral()), factor_norm(Spectral(), rank=2), factor_norm(MaxEntry())
    (Nuclear(), Spectral(), SpectralOfRank(rank=2), Projective())
    """
    _checked_rank(1 if rank is None else rank)
    if isinstance(norm, (Frobenius, LargestColumn)):
        return Nuclear()
    if isinstance(norm, Spectral):
        return Spectral() if rank is None else SpectralOfRank(rank)
    if isinstance(norm, MaxEntry):
        return Projective()
    if isinstance(norm, LargestRow):
        return Gamma2()
    raise ValueError(
        f"no norm of K Q^T is known for steps in {norm!r}; Frobenius(), Spectral(), MaxEntry(), LargestRow() and"
        " LargestColumn() have one"
    )


def _checked_rank(rank: object) -> int:
    if isinstance(rank, bool) or not isinstance(rank, (int, float)) or rank != int(rank) or rank < 1:
        raise ValueError(f"rank must be a positive integer; got {rank!r}")
    return int(rank)


@dataclass(frozen=True)
class _OfRank(Norm):
    """A norm of the singular values that knows a rank."""

    rank: int
    unitarily_invariant = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "rank", _checked_rank(self.rank))


@dataclass(frozen=True)
class SpectralOfRank(_OfRank):
    """max(sigma_1, sum_i sigma_i / rank); dual to Ky Fan's norm, unitarily invariant.

    Its unit ball is the convex hull of the matrices of spectral norm 1 and at most this rank; where the rank of W is
    no larger it is the spectral norm.

    >>> import torch
    >>> W = torch.diag(torch.tensor([3.0, -2.0, 2.0]))
    >>> SpectralOfRank(2).value(W), SpectralOfRank(2).dual_value(W)
    (tensor(3.5000), tensor(5.))
    """

    @property
    def name(self) -> str:
        """What a person calls it."""
        return f"spectral of rank {self.rank}"

    @property
    def dual(self) -> Norm:
        """Ky Fan's norm."""
        return KyFan(self.rank)

    def _value(self, matrix: Float[Tensor, "*batch d dq"]) -> Float[Tensor, "*batch"]:
        sizes = singular_values(matrix)
        return torch.maximum(sizes[..., 0], sizes.sum(-1) / self.rank)

    def _steepest(self, gradient: Float[Tensor, "*batch d dq"]) -> Float[Tensor, "*batch d dq"]:
        left, sizes, right = thin_svd(gradient)
        first = min(self.rank, sizes.shape[-1])
        kept = (sizes > max(gradient.shape[-2:]) * torch.finfo(gradient.dtype).eps * sizes[..., :1]).to(left.dtype)
        return left[..., :first] * kept[..., None, :first] @ right[..., :first, :]

    def _project(
        self, matrix: Float[Tensor, "*batch d dq"], radius: Float[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch d dq"]:
        left, sizes, right = thin_svd(matrix)
        return left * _onto_capped(sizes, radius[..., None], self.rank)[..., None, :] @ right


@dataclass(frozen=True)
class KyFan(_OfRank):
    """The sum of the `rank` largest singular values; dual to `SpectralOfRank`, unitarily invariant.

    >>> import torch
    >>> KyFan(2).value(torch.diag(torch.tensor([3.0, -2.0, 1.0])))
    tensor(5.)
    """

    @property
    def name(self) -> str:
        """What a person calls it."""
        return f"Ky Fan {self.rank}"

    @property
    def dual(self) -> Norm:
        """The spectral norm at this rank."""
        return SpectralOfRank(self.rank)

    def _value(self, matrix: Float[Tensor, "*batch d dq"]) -> Float[Tensor, "*batch"]:
        return singular_values(matrix)[..., : self.rank].sum(-1)

    def _steepest(self, gradient: Float[Tensor, "*batch d dq"]) -> Float[Tensor, "*batch d dq"]:
        left, sizes, right = thin_svd(gradient)
        one = torch.zeros_like(sizes)
        one[..., 0] = sizes[..., 0].sign()
        kept = (sizes > max(gradient.shape[-2:]) * torch.finfo(gradient.dtype).eps * sizes[..., :1]).to(left.dtype)
        steep = sizes[..., :1] >= sizes.sum(-1, keepdim=True) / self.rank
        return left * torch.where(steep, one, kept / self.rank)[..., None, :] @ right

    def _project(
        self, matrix: Float[Tensor, "*batch d dq"], radius: Float[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch d dq"]:
        """sigma less its projection onto the dual ball, of the one size that leaves a norm of `radius`: bisection."""
        left, sizes, right = thin_svd(matrix)
        low = torch.zeros_like(sizes[..., :1])
        high = torch.maximum(sizes[..., :1], sizes.sum(-1, keepdim=True) / self.rank)
        for _ in range(100):
            middle = (low + high) / 2
            left_over = (sizes - _onto_capped(sizes, middle, self.rank))[..., : self.rank].sum(-1, keepdim=True)
            above = left_over > radius[..., None]
            low, high = torch.where(above, middle, low), torch.where(above, high, middle)
        return left * (sizes - _onto_capped(sizes, high, self.rank))[..., None, :] @ right


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
