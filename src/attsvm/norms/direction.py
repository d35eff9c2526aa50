"""How far two matrices are from having the same direction."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.data.checks import ArrayLike
from attsvm.norms.base import as_matrix, split_scale


def direction_cosine(a: ArrayLike, b: ArrayLike) -> Float[Tensor, "*batch"]:
    """<A, B> / (||A||_F ||B||_F), the papers' correlation coefficient.

    Computed in float64 and free of overflow and underflow. For 1 - cosine near 0 use `direction_distance`.

    Arguments:
        a, b: ``[*batch, d, dq]``; leading axes broadcast, and one may be float32 where the other is float64.

    Returns:
        ``[*batch]`` in [-1, 1]; 0 where A or B is zero, which has no direction; NaN where an entry is NaN or infinite.

    Raises:
        ValueError: if either is not a floating matrix, or shapes or devices do not fit.

    >>> import torch
    >>> A = torch.tensor([[1.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    >>> float(direction_cosine(A, torch.tensor([[3.0, 0.0], [0.0, -4.0]], dtype=torch.float64)))
    0.6
    """
    first, second, dtype = _unit_pair(a, b)
    return (first * second).sum(dim=(-2, -1)).clamp(-1, 1).to(dtype)


def direction_distance(a: ArrayLike, b: ArrayLike) -> Float[Tensor, "*batch"]:
    """1 - cosine, computed without cancellation as ||A/||A|| - B/||B|| ||_F^2 / 2: it keeps falling below 1e-16.

    Each entry of the unit matrices is rounded once, so in float64 a distance is trustworthy down to about 1e-30. It
    takes what `direction_cosine` takes.

    Returns:
        ``[*batch]`` in [0, 2]; 1 where A or B is zero; NaN where an entry is NaN or infinite.

    >>> import torch
    >>> A, B = torch.tensor([[1.0, 0.0]]).double(), torch.tensor([[1.0, 2e-12]]).double()
    >>> f"{float(direction_distance(A, B)):.6g}"
    '2e-24'
    """
    first, second, dtype = _unit_pair(a, b)
    distance = (first - second).square().sum(dim=(-2, -1)) / 2
    zero = (first == 0).all(-1).all(-1) | (second == 0).all(-1).all(-1)
    return torch.where(zero & ~distance.isnan(), torch.ones_like(distance), distance).clamp(max=2).to(dtype)


def _unit_pair(a: ArrayLike, b: ArrayLike) -> tuple[Tensor, Tensor, torch.dtype]:
    """A/||A||_F and B/||B||_F in float64, zero where the matrix is, and the type of the answer."""
    first, second = as_matrix(a, "a"), as_matrix(b, "b")
    given = f"got {list(first.shape)} and {list(second.shape)}"
    if first.shape[-2:] != second.shape[-2:]:
        raise ValueError(f"a and b must agree in their last two axes (d, dq); {given}")
    try:
        np.broadcast_shapes(first.shape, second.shape)
    except ValueError:
        raise ValueError(f"the leading axes of a and b must broadcast; {given}") from None
    if first.device != second.device:
        raise ValueError(f"b must be on {first.device}, like a; got {second.device}")
    return _unit(first), _unit(second), torch.promote_types(first.dtype, second.dtype)


def _unit(matrix: Tensor) -> Tensor:
    scaled, scale = split_scale(matrix.double())
    length: Tensor = torch.linalg.vector_norm(scaled, dim=(-2, -1), keepdim=True)
    return torch.where(scale.isnan(), scale, scaled / length.clamp(min=1))
