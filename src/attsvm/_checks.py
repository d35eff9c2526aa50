"""Turning what users pass into tensors, with one clear sentence when it does not fit."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

ArrayLike = Tensor | np.ndarray
ArrayOrList = Tensor | np.ndarray | list[Any]


def as_tensor(value: object, name: str) -> Tensor:
    """`value` as a tensor; tensors and NumPy arrays share memory where torch allows it."""
    if isinstance(value, Tensor):
        if value.layout != torch.strided:
            raise ValueError(f"{name} must be a dense tensor; got layout {str(value.layout).removeprefix('torch.')}")
        return value.detach()
    try:
        array = np.asarray(value)
        if array.dtype == object:
            raise TypeError("its entries have no common numeric type")
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        if not array.flags.writeable or any(stride < 0 for stride in array.strides):
            array = array.copy()
        return torch.from_numpy(array)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{name} must be a tensor or an array of numbers; got {type(value).__name__} ({error})"
        ) from None


def as_floating(value: object, name: str) -> Tensor:
    """`value` as a float32 or float64 tensor."""
    tensor = as_tensor(value, name)
    if tensor.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"{name} must be float32 or float64; got {str(tensor.dtype).removeprefix('torch.')}")
    return tensor


def place(where: Sequence[int], axes: Sequence[str]) -> str:
    """A position in words; `axes` name the trailing axes, those before them count elements of a batch.

    >>> place([2, 0, 3, 1], ("input", "token"))
    'element (2, 0), input 3, token 1'
    """
    leading = tuple(where[: len(where) - len(axes)])
    parts = [f"element {leading if len(leading) > 1 else leading[0]}"] if leading else []
    return ", ".join(parts + [f"{axis} {index}" for axis, index in zip(axes, where[len(leading) :], strict=True)])


def check_finite(tensor: Tensor, name: str, axes: Sequence[str]) -> None:
    """Raise with the first position of a NaN or an infinity; `axes` name the trailing axes."""
    bad = ~torch.isfinite(tensor)
    if not bool(bad.any()):
        return
    where = torch.nonzero(bad)[0].tolist()
    at = f" at {place(where, axes)}" if where else ""
    raise ValueError(f"{name} must be finite; got {float(tensor[tuple(where)])}{at}")


def check_shape(tensor: Tensor, name: str, shape: Sequence[int], meaning: str) -> None:
    """Raise unless `tensor` has exactly this shape; `meaning` names its axes."""
    if tuple(tensor.shape) != tuple(shape):
        raise ValueError(f"{name} must have shape {list(shape)} ({meaning}); got {list(tensor.shape)}")


def check_positive(value: float, name: str) -> None:
    """Raise unless `value` is a finite positive number."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool) or not 0 < value < float("inf"):
        raise ValueError(f"{name} must be a positive finite number; got {value!r}")


def check_count(value: object, name: str) -> int:
    """`value` as a plain int, raising unless it is a whole number of at least 1."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a positive integer; got {value!r}")
    return int(value)
