"""The largest and the sum of |entries|: the geometries of sign descent and of greedy coordinate descent."""

from __future__ import annotations

from dataclasses import dataclass

from attsvm.norms.sizes import Entries, Largest, Sum, make_dual


@dataclass(frozen=True)
class MaxEntry(Largest, Entries):
    """max_ij |w_ij|; dual to the sum of |entries|, not unitarily invariant.

    Its steepest direction is sign(G) (0 at 0), its projection clips entries.

    >>> import torch
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

    >>> import torch
    >>> W = torch.tensor([[3.0, -4.0], [0.0, 1.0]])
    >>> SumEntry().value(W), SumEntry().dual_value(W)
    (tensor(8.), tensor(4.))
    >>> SumEntry().prox(W, 2.0)
    tensor([[ 1., -2.],
            [ 0.,  0.]])
    """

    name = "sum of entries"


make_dual(MaxEntry, SumEntry)
