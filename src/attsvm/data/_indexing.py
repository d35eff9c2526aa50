"""Choosing elements of a batch, and inputs or tokens of each data set, with a clear sentence when there are none."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attsvm._checks import as_tensor, place


def batch_index(index: Any, batch_shape: tuple[int, ...], device: torch.device) -> Any:
    """`index` in a form that means the same on every field: it ends at the batch, never at the coordinates.

    Raises:
        IndexError: if it does not fit the batch.
    """
    items = index if isinstance(index, tuple) else (index,)
    items = tuple(as_tensor(item, "index") if isinstance(item, list) and item else item for item in items)
    if any(item is Ellipsis for item in items):
        rest = (slice(None),) * max(len(batch_shape) - sum(map(_axes_taken, items)), 0)
        at = next(k for k, item in enumerate(items) if item is Ellipsis)
        items = (*items[:at], *rest, *items[at + 1 :])
    basic = all(isinstance(item, (int, slice, type(None))) for item in items)
    probe = torch.empty(batch_shape, dtype=torch.bool, device="meta" if basic else device)
    try:
        _ = probe[items]
    except (IndexError, TypeError) as error:
        raise IndexError(f"index {index!r} does not fit the batch of shape {list(batch_shape)}: {error}") from None
    return items


def _axes_taken(item: Any) -> int:
    if item is None or item is Ellipsis:
        return 0
    if isinstance(item, (int, slice)):
        return 1
    array = as_tensor(item, "index")
    return array.ndim if array.dtype == torch.bool else 1


def checked_index(index: object, shape: tuple[int | None, ...], size: int, device: torch.device) -> Tensor:
    """`index` as int64 on `device`; its last axis may be free (None).

    Raises:
        ValueError: unless it holds integers in 0..size - 1 in this shape.
    """
    tensor = as_tensor(index, "index")
    if tensor.dtype not in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        raise ValueError(f"index must hold integers; got {str(tensor.dtype).removeprefix('torch.')}")
    same = len(tensor.shape) == len(shape) and all(
        expected in (None, got) for expected, got in zip(shape, tensor.shape, strict=True)
    )
    if not same or tensor.shape[-1] == 0:
        expected = ", ".join("k" if length is None else str(length) for length in shape)
        raise ValueError(f"index must have shape [{expected}] with at least one entry; got {list(tensor.shape)}")
    tensor = tensor.to(device, torch.int64)
    outside = (tensor < 0) | (tensor >= size)
    if bool(outside.any()):
        where = torch.nonzero(outside)[0].tolist()
        got = int(tensor[tuple(where)])
        raise ValueError(f"index must lie in 0..{size - 1}; got {got} at {place(where, ('position',))}")
    return tensor


def gather_inputs(tensor: Tensor, rows: Tensor) -> Tensor:
    """The `rows` ``[*batch, k]`` of `tensor` ``[*batch, n, ...]``: ``[*batch, k, ...]``."""
    wide = rows.reshape(*rows.shape, *[1] * (tensor.ndim - rows.ndim))
    return tensor.gather(rows.ndim - 1, wide.expand(*rows.shape, *tensor.shape[rows.ndim :]))
