"""Linear algebra that norms share: scaling by powers of two, projection onto a simplex, singular values."""

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


def singular_values(matrix: Tensor) -> Tensor:
    """``[*batch, min(d, dq)]``, largest first."""
    sizes: Tensor = torch.linalg.svdvals(matrix)
    return sizes


def thin_svd(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """U ``[*batch, d, k]``, sigma ``[*batch, k]`` and V^T ``[*batch, k, dq]``, k = min(d, dq)."""
    left, sizes, right = torch.linalg.svd(matrix, full_matrices=False)
    return left, sizes, right
