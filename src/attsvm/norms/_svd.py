"""Singular values and thin decompositions of batches of matrices."""

from __future__ import annotations

import torch
from torch import Tensor


def singular_values(matrix: Tensor) -> Tensor:
    """``[*batch, min(d, dq)]``, largest first."""
    sizes: Tensor = torch.linalg.svdvals(matrix)
    return sizes


def thin_svd(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """U ``[*batch, d, k]``, sigma ``[*batch, k]`` and V^T ``[*batch, k, dq]``, k = min(d, dq)."""
    left, sizes, right = torch.linalg.svd(matrix, full_matrices=False)
    return left, sizes, right
