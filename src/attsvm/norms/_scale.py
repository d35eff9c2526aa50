"""Powers of two that keep squares, products and high powers inside the range of floating point."""

from __future__ import annotations

import torch
from torch import Tensor


def split_scale(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """`matrix` as scaled * scale, with scale ``[*batch, 1, 1]`` a power of two, so that no bit is lost.

    The largest |entry| of scaled lies in [1, 2), or the matrix is zero and scale is 1. An element that holds a NaN or
    an infinity gets scaled = 0 and scale = NaN: products with scale then say so, and no decomposition ever sees it.
    """
    largest = matrix.abs().amax(dim=(-2, -1), keepdim=True)
    mantissa = torch.frexp(largest).mantissa
    scale = torch.where(largest > 0, largest / (2 * mantissa), torch.ones_like(largest))
    scale = torch.where(largest.isfinite(), scale, torch.full_like(largest, torch.nan))
    return torch.where(largest.isfinite(), matrix / scale, torch.zeros_like(matrix)), scale
