"""The longest row, which steps that normalize every row live in, its dual, the sum of lengths, and both for columns."""

from __future__ import annotations

from dataclasses import dataclass

from attsvm.norms.sizes import Columns, Largest, Rows, Sum, make_dual


@dataclass(frozen=True)
class LargestRow(Largest, Rows):
    """max_i ||w_i||_2 over rows; dual to `SumOfRows`. Its steepest direction gives every row length 1 (0 at 0).

    >>> import torch
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


make_dual(LargestRow, SumOfRows)
make_dual(LargestColumn, SumOfColumns)
