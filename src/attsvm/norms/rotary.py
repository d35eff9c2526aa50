"""The norms of rotary heads: over frequencies, of the complex matrices that turn keys against queries.

W is the stack ``[A_1; B_1; ...; A_F; B_F]`` of the weights of lifted tokens ``[cos(theta_f Delta) x ; sin(theta_f
Delta) x]_f``, and A_0 of the coordinates that are not turned below it where there are some. With M_f = A_f - i B_f,

    N(W) = sum_f ||M_f||_* + ||A_0||_*,        N°(W) = max(max_f ||M_f||_2, ||A_0||_2).

Where every frequency has one pair of columns, M_f has rank one and N(W) is the least ||K||_F ||Q||_F over all factors:
training K and Q favours this norm, which is sparse over frequencies (derived, not proved; the convex problem drops the
ranks). Values are those of singular values of M_f.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.data.checks import check_count
from attsvm.norms.sizes import Largest, SizeNorm, Sum, make_dual


@dataclass(frozen=True)
class _ByFrequency(SizeNorm):
    """What both norms share.

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
