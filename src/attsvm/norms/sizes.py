"""Norms of sizes: the largest, or the sum, of the |entries| of W, the lengths of its rows or columns, or its singular
values.

A class says what the sizes are (`Entries`, `Rows`, `Columns`, `SingularValues`), another which norm of them is taken
(`Largest`, `Sum`); a norm of the library derives from one of each. Sizes are ``[*batch, k]`` and never negative.
The geometries of sign descent (largest entry), greedy coordinate descent (sum of entries) and steps that normalize
every row or column (largest length) need no more, and stand below.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor

from attsvm.norms.base import Norm


class SizeNorm(Norm):
    """N(W) as a norm of the sizes of W."""

    partner: ClassVar[type[Norm]]

    @property
    def dual(self) -> Norm:
        return self.partner(**{field.name: getattr(self, field.name) for field in fields(self)})

    @abstractmethod
    def _sizes(self, matrix: Tensor) -> Tensor:
        """The sizes of W."""

    @abstractmethod
    def _resized(self, matrix: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        """W with the sizes that `change` makes of its own; where a size is 0 it stays 0."""

    @abstractmethod
    def _of_sizes(self, sizes: Tensor) -> Tensor:
        """N of them."""

    @abstractmethod
    def _steepest_sizes(self, sizes: Tensor) -> Tensor:
        """Those of a steepest direction."""

    @abstractmethod
    def _project_sizes(self, sizes: Tensor, radius: Tensor) -> Tensor:
        """The nearest ones of norm `radius`."""

    def _value(self, matrix: Tensor) -> Tensor:
        return self._of_sizes(self._sizes(matrix))

    def _steepest(self, gradient: Tensor) -> Tensor:
        return self._resized(gradient, self._steepest_sizes)

    def _project(self, matrix: Tensor, radius: Tensor) -> Tensor:
        return self._resized(matrix, lambda sizes: self._project_sizes(sizes, radius))


def make_dual(one: type[SizeNorm], other: type[SizeNorm]) -> None:
    """State that two norms with the same fields are dual to each other."""
    one.partner, other.partner = other, one


class Largest(SizeNorm):
    """The largest size: a steepest direction has every size 1, projection clips."""

    def _of_sizes(self, sizes: Tensor) -> Tensor:
        return sizes.amax(-1)

    def _steepest_sizes(self, sizes: Tensor) -> Tensor:
        return (sizes > 0).to(sizes.dtype)

    def _project_sizes(self, sizes: Tensor, radius: Tensor) -> Tensor:
        return sizes.minimum(radius[..., None])


class Sum(SizeNorm):
    """The sum of sizes: a steepest direction has size 1 at the first of the largest, the prox soft-thresholds."""

    def _of_sizes(self, sizes: Tensor) -> Tensor:
        return sizes.sum(-1)

    def _steepest_sizes(self, sizes: Tensor) -> Tensor:
        return torch.zeros_like(sizes).scatter(-1, sizes.argmax(-1, keepdim=True), 1.0) * (sizes > 0)

    def _project_sizes(self, sizes: Tensor, radius: Tensor) -> Tensor:
        return project_onto_simplex(sizes, radius)


class Entries(SizeNorm):
    """Sizes are the |entries|."""

    def _sizes(self, matrix: Tensor) -> Tensor:
        return matrix.abs().flatten(-2)

    def _resized(self, matrix: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        return matrix.sign() * change(self._sizes(matrix)).reshape(matrix.shape)


class Rows(SizeNorm):
    """Sizes are the lengths of rows, each brought to entries near 1 first: one may be far shorter than another."""

    def _split(self, matrix: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of length 1, or zero, and the lengths."""
        largest = matrix.abs().amax(-1, keepdim=True)
        rows = matrix / largest.masked_fill(largest == 0, 1.0)
        lengths: Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
        return rows / lengths.clamp(min=1), (lengths * largest)[..., 0]

    def _sizes(self, matrix: Tensor) -> Tensor:
        return self._split(matrix)[1]

    def _resized(self, matrix: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        rows, lengths = self._split(matrix)
        return rows * change(lengths)[..., None]


class Columns(Rows):
    """Sizes are the lengths of columns."""

    def _sizes(self, matrix: Tensor) -> Tensor:
        return super()._sizes(matrix.mT)

    def _resized(self, matrix: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        return super()._resized(matrix.mT, change).mT


class SingularValues(SizeNorm):
    """Sizes are the singular values, largest first.

    Those up to max(d, dq) eps sigma_1 are round-off, their directions arbitrary: they count as 0 where W is changed.
    """

    unitarily_invariant = True

    def _sizes(self, matrix: Tensor) -> Tensor:
        return torch.linalg.svdvals(matrix)

    def _resized(self, matrix: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        left, sizes, right = torch.linalg.svd(matrix, full_matrices=False)
        negligible = max(matrix.shape[-2:]) * torch.finfo(sizes.dtype).eps * sizes[..., :1]
        return left * change(sizes * (sizes > negligible))[..., None, :] @ right


@dataclass(frozen=True)
class MaxEntry(Largest, Entries):
    """max_ij |w_ij|; dual to the sum of |entries|, not unitarily invariant.

    Its steepest direction is sign(G) (0 at 0), its projection clips entries.

    >>> W = torch.tensor([[3.0, -4.0], [0.0, 1.0]])
    >>> MaxEntry().value(W), MaxEntry().dual_value(W)
    (tensor(4.), tensor(8.))
    >>> MaxEntry().project(W, 2.0)
    tensor([[ 2., -2.],
            [ 0.,  1.]])
    """

    name = "max entry"


@dataclass(frozen=True)
class SumEntry(Sum, Entries):
    """sum_ij |w_ij|; dual to the largest |entry|, not unitarily invariant.

    Its steepest direction is the sign of the largest |entry| at that entry, the first one in row order where several
    are largest; its prox is soft-thresholding.

    >>> W = torch.tensor([[3.0, -4.0], [0.0, 1.0]])
    >>> SumEntry().value(W), SumEntry().dual_value(W)
    (tensor(8.), tensor(4.))
    >>> SumEntry().prox(W, 2.0)
    tensor([[ 1., -2.],
            [ 0.,  0.]])
    """

    name = "sum of entries"


@dataclass(frozen=True)
class LargestRow(Largest, Rows):
    """max_i ||w_i||_2 over rows; dual to `SumOfRows`. Its steepest direction gives every row length 1 (0 at 0).

    >>> W = torch.tensor([[3.0, -4.0], [0.0, 1.0]])
    >>> LargestRow().value(W), LargestRow().dual_value(W)
    (tensor(5.), tensor(6.))
    """

    name = "largest row"


@dataclass(frozen=True)
class SumOfRows(Sum, Rows):
    """sum_i ||w_i||_2 over rows; dual to `LargestRow`. Its steepest direction is the first of the longest rows."""

    name = "sum of rows"


@dataclass(frozen=True)
class LargestColumn(Largest, Columns):
    """max_j ||W_:j||_2 over the columns of W; see `LargestRow`."""

    name = "largest column"


@dataclass(frozen=True)
class SumOfColumns(Sum, Columns):
    """sum_j ||W_:j||_2 over the columns of W; see `SumOfRows`."""

    name = "sum of columns"


make_dual(MaxEntry, SumEntry)
make_dual(LargestRow, SumOfRows)
make_dual(LargestColumn, SumOfColumns)


def project_onto_simplex(values: Tensor, radius: Tensor) -> Tensor:
    """The nearest point to `values` ``[*batch, k]`` with entries >= 0 and sum `radius` ``[*batch]``.

    It is max(values - threshold, 0). Shifting the largest entry to 0 first keeps the threshold accurate relative to the
    radius, however small: an entry that stays positive lies within one radius of the largest.
    """
    shifted = values - values.amax(-1, keepdim=True)
    ordered = shifted.sort(dim=-1, descending=True).values
    count = torch.arange(1, values.shape[-1] + 1, dtype=values.dtype, device=values.device)
    thresholds = (ordered.cumsum(-1) - radius[..., None]) / count
    kept = (ordered > thresholds).sum(-1, keepdim=True).clamp(min=1)
    return (shifted - thresholds.gather(-1, kept - 1)).clamp(min=0)
