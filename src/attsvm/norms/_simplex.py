"""Euclidean projection onto the simplex, by sorting."""

from __future__ import annotations

import torch
from torch import Tensor


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
