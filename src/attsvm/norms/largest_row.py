"""The longest row, which steps that normalize every row live in, its dual, the sum of lengths, and both for columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.norms._linalg import project_onto_simplex
from attsvm.norms.base import Norm


@dataclass(frozen=True)
class LargestRow(Norm):
    """max_i ||w_i||_2 over rows; dual to `SumOfRows`. Its steepest direction gives every row length 1 (0 at 0).

    >>> import torch
    >>> W = torch.tensor([[3.0, -4.0], [0.0, 1.0]])
    >>> LargestRow().value(W), LargestRow().dual_value(W)
    (tensor(5.), tensor(6.))
    """

    name = "largest row"

    @property
    def dual(self) -> Norm:
        """The sum of the rows' lengths."""
        return SumOfRows()

    def _value(self, matrix: Float[Tensor, "*batch d dq"]) -> Float[Tensor, "*batch"]:
        return _lengths(matrix).amax(-1)

    def _steepest(self, gradient: Float[Tensor, "*batch d dq"]) -> Float[Tensor, "*batch d dq"]:
        return _resized(gradient, torch.ones_like(gradient[..., 0]))

    def _project(
        self, matrix: Float[Tensor, "*batch d dq"], radius: Float[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch d dq"]:
        return _resized(matrix, _lengths(matrix).minimum(radius[..., None]))


@dataclass(frozen=True)
class SumOfRows(Norm):
    """sum_i ||w_i||_2 over rows; dual to `LargestRow`. Its steepest direction is the first of the longest rows."""

    name = "sum of rows"

    @property
    def dual(self) -> Norm:
        """The longest row."""
        return LargestRow()

    def _value(self, matrix: Float[Tensor, "*batch d dq"]) -> Float[Tensor, "*batch"]:
        return _lengths(matrix).sum(-1)

    def _steepest(self, gradient: Float[Tensor, "*batch d dq"]) -> Float[Tensor, "*batch d dq"]:
        lengths = _lengths(gradient)
        first = torch.zeros_like(lengths).scatter(-1, lengths.argmax(-1, keepdim=True), 1.0)
        return _resized(gradient, first)

    def _project(
        self, matrix: Float[Tensor, "*batch d dq"], radius: Float[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch d dq"]:
        return _resized(matrix, project_onto_simplex(_lengths(matrix), radius))


@dataclass(frozen=True)
class _Transposed(Norm):
    """The norm `over` of the transposed matrix."""

    over: ClassVar[Norm] = LargestRow()

    def _value(self, matrix: Float[Tensor, "*batch d dq"]) -> Float[Tensor, "*batch"]:
        return self.over._value(matrix.mT)

    def _steepest(self, gradient: Float[Tensor, "*batch d dq"]) -> Float[Tensor, "*batch d dq"]:
        return self.over._steepest(gradient.mT).mT

    def _project(
        self, matrix: Float[Tensor, "*batch d dq"], radius: Float[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch d dq"]:
        return self.over._project(matrix.mT, radius).mT


@dataclass(frozen=True)
class LargestColumn(_Transposed):
    """max_j ||W_:j||_2 over the columns of W; see `LargestRow`."""

    name = "largest column"

    @property
    def dual(self) -> Norm:
        """The sum of the lengths of columns."""
        return SumOfColumns()


@dataclass(frozen=True)
class SumOfColumns(_Transposed):
    """sum_j ||W_:j||_2 over the columns of W; see `SumOfRows`."""

    name = "sum of columns"
    over = SumOfRows()

    @property
    def dual(self) -> Norm:
        """The largest column."""
        return LargestColumn()


def _lengths(matrix: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(matrix, dim=-1)
    return lengths


def _resized(matrix: Tensor, lengths: Tensor) -> Tensor:
    """The rows with other lengths ``[*batch, d]``; a row of zeros stays.

    Rows are brought to entries near 1 first, since a row may be far shorter than the longest.
    """
    largest = matrix.abs().amax(-1, keepdim=True)
    rows = matrix / largest.masked_fill(largest == 0, 1.0)
    own = _lengths(rows)
    return rows * (lengths / own.masked_fill(own == 0, 1.0))[..., None]
