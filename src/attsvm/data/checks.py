"""Turning what users pass into tensors, with one clear sentence when it does not fit.

In this order: conversions, checks of one tensor or number, indices, and the fields of a whole data set.
"""

from __future__ import annotations

import numbers
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from attsvm.data.dataset import TokenDataset


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
        kind = type(value).__name__
        raise ValueError(f"{name} must be a tensor or an array of numbers; got {kind} ({error})") from None


def as_floating(value: object, name: str) -> Tensor:
    """`value` as a float32 or float64 tensor."""
    tensor = as_tensor(value, name)
    if tensor.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"{name} must be float32 or float64; got {type_name(tensor)}")
    return tensor


def as_finite(value: object, name: str, axes: Sequence[str]) -> Tensor:
    """`value` as a float32 or float64 tensor of finite numbers, whose trailing axes are `axes`."""
    tensor = as_floating(value, name)
    if tensor.ndim < len(axes):
        raise ValueError(f"{name} must have an axis for each {' and '.join(axes)}; got shape {list(tensor.shape)}")
    check_finite(tensor, name, axes)
    return tensor


def as_mask(value: object, name: str) -> Tensor:
    """`value` as a boolean tensor."""
    tensor = as_tensor(value, name)
    if tensor.dtype != torch.bool:
        raise ValueError(f"{name} must be a boolean mask; got {type_name(tensor)}")
    return tensor


def type_name(tensor: Tensor) -> str:
    """The type of the entries in the user's words: float64, not torch.float64."""
    return str(tensor.dtype).removeprefix("torch.")


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
    if not tensor.numel() or all(bool(torch.isfinite(end)) for end in torch.aminmax(tensor)):
        return
    where = torch.nonzero(~torch.isfinite(tensor))[0].tolist()
    at = f" at {place(where, axes)}" if where else ""  # a single number has no position
    raise ValueError(f"{name} must be finite; got {float(tensor[tuple(where)])}{at}")


def check_shape(tensor: Tensor, name: str, shape: Sequence[int | str], meaning: str) -> None:
    """Raise unless `tensor` has this shape, in which a name is any size of at least 1; `meaning` names its axes."""
    fits = [got > 0 if isinstance(want, str) else got == want for want, got in zip(shape, tensor.shape, strict=False)]
    if tensor.ndim != len(shape) or not all(fits):
        raise ValueError(f"{name} must have shape [{', '.join(map(str, shape))}] ({meaning}); got {list(tensor.shape)}")


def check_same_kind(tensor: Tensor, name: str, like: Tensor, whose: str = "the data") -> None:
    """Raise unless `tensor` has the precision and the device of `like`, a tensor of `whose`."""
    if tensor.dtype != like.dtype or tensor.device != like.device:
        wanted, got = (f"{type_name(each)} on {each.device}" for each in (like, tensor))
        raise ValueError(f"{name} must be {wanted}, like {whose}; got {got}")


def as_device(device: torch.device | str, name: str) -> torch.device:
    """The device of this name; a ValueError if the name means nothing to PyTorch, or this machine has no such one."""
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError):
        raise ValueError(f"{name} must be cpu, cuda or cuda:N; got {device!r}") from None
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        there = torch.cuda.device_count()
        counted = "no CUDA device" if there == 0 else f"{there} CUDA device{'s' if there > 1 else ''}"
        raise ValueError(f"{name} {found} is not there: PyTorch finds {counted} on this machine; use cpu")
    return found


def check_kind(value: object, kind: Any, name: str, expected: str) -> None:
    """Raise unless `value` is an instance of `kind`; `expected` says in words what was wanted."""
    if not isinstance(value, kind):
        said = repr(value)
        shown = said if len(said) <= 60 and "\n" not in said else type(value).__name__
        raise ValueError(f"{name} must be {expected}; got {shown}")


def check_number(value: object, name: str, expected: str, fits: Callable[[Any], bool]) -> None:
    """Raise unless `value` is a number that fits; `expected` says in words what was wanted."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool) or not fits(value):
        said = repr(value)
        raise ValueError(f"{name} must {expected}; got {said if len(said) <= 60 else said[:57] + '...'}")


def check_share(value: float, name: str) -> None:
    """Raise unless `value` is a number in [0, 1]."""
    check_number(value, name, "lie in [0, 1]", lambda number: 0 <= number <= 1)


def check_positive(value: float, name: str) -> None:
    """Raise unless `value` is a finite positive number."""
    check_number(value, name, "be a positive finite number", lambda number: 0 < number <= sys.float_info.max)


def check_not_negative(value: float, name: str) -> None:
    """Raise unless `value` is a finite number of at least 0."""
    check_number(value, name, "be finite and not negative", lambda number: 0 <= number <= sys.float_info.max)


def check_count(value: object, name: str, least: int = 1) -> int:
    """`value` as a plain int, raising unless it is a whole number of at least `least`."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < least:
        wanted = {0: "a non-negative integer", 1: "a positive integer"}.get(least, f"an integer of at least {least}")
        raise ValueError(f"{name} must be {wanted}; got {value!r}")
    return int(value)


def batch_index(index: Any, batch_shape: tuple[int, ...], device: torch.device) -> Any:
    """`index` in a form that means the same on every field: it ends at the batch, never at the coordinates."""
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


def checked_index(index: object, shape: tuple[int | str, ...], size: int, device: torch.device) -> Tensor:
    """`index` as int64 on `device`: integers in 0..size - 1 in this shape, in which a name is any size."""
    tensor = as_tensor(index, "index")
    if tensor.dtype not in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        raise ValueError(f"index must hold integers; got {type_name(tensor)}")
    check_shape(tensor, "index", shape, "batch, then at least one entry")
    tensor = tensor.to(device, torch.int64)
    where = _first((tensor < 0) | (tensor >= size))
    if where is not None:
        got = int(tensor[tuple(where)])
        raise ValueError(f"index must lie in 0..{size - 1}; got {got} at {place(where, ('position',))}")
    return tensor


def gather_inputs(tensor: Tensor, rows: Tensor) -> Tensor:
    """The `rows` ``[*batch, k]`` of `tensor` ``[*batch, n, ...]``: ``[*batch, k, ...]``."""
    wide = rows.reshape(*rows.shape, *[1] * (tensor.ndim - rows.ndim))
    return tensor.gather(rows.ndim - 1, wide.expand(*rows.shape, *tensor.shape[rows.ndim :]))


def check_dataset(data: TokenDataset) -> None:
    """Raise ValueError unless every field of `data` fits the others."""
    check_axes(data.tokens)
    shared = check_count(data.queries_per_sequence, "queries_per_sequence")
    batch, n = data.batch_shape, data.sequences * shared
    row = "input" if shared == 1 else "sequence"
    check_finite(data.tokens, "tokens", (row, "token", "coordinate"))

    check_shape(data.queries, "queries", (*batch, n, "dq"), f"batch, n, dq >= 1, for tokens {list(data.tokens.shape)}")
    check_same_kind(data.queries, "queries", data.tokens, "the tokens")
    check_finite(data.queries, "queries", ("input", "coordinate"))

    check_shape(data.labels, "labels", (*batch, n), "batch, n")
    _check_device(data.labels, "labels", data.device)
    where = _first((data.labels != 1) & (data.labels != -1))
    if where is not None:
        got = data.labels[tuple(where)].item()
        raise ValueError(f"labels must be +1 or -1; got {got} at {place(where, ('input',))}")
    if data.mask is not None:
        check_shape(data.mask, "mask", (*batch, n, data.T), "batch, n, T")
        _check_device(data.mask, "mask", data.device)
        if (hidden := _first(~data.mask.any(-1))) is not None:
            raise ValueError(f"mask must leave a token in every input; it hides all of {place(hidden, ('input',))}")

    if data.values is not data.tokens:
        check_shape(data.values, "values", (*data.tokens.shape[:-1], "dv"), "batch, n, T, dv")
        check_same_kind(data.values, "values", data.tokens, "the tokens")
        check_finite(data.values, "values", (row, "token", "coordinate"))
    if data.head is not None:
        check_shape(data.head, "head", (*batch, data.dv), "batch, dv")
        check_same_kind(data.head, "head", data.tokens, "the tokens")
        check_finite(data.head, "head", ("coordinate",))


def check_axes(tokens: Tensor) -> None:
    """Raise unless tokens are ``[*batch, n, T, d]`` with n, T and d at least 1."""
    if tokens.ndim < 3:
        raise ValueError(f"tokens must have shape [*batch, n, T, d]; got {list(tokens.shape)}")
    for size, name in zip(tokens.shape[-3:], ("input (n)", "token (T)", "coordinate (d)"), strict=True):
        if size == 0:
            raise ValueError(f"tokens must have at least one {name}; got shape {list(tokens.shape)}")


def as_prompt_weights(value: object, tokens: Tensor) -> Tensor:
    """`value` as a tensor ``[d, dv]`` or ``[*batch, d, dv]`` that fits `tokens` ``[*batch, n, T, dv]``."""
    weights = as_floating(value, "weights")
    batch = tokens.shape[:-3] if weights.ndim > 2 else ()
    check_shape(weights, "weights", (*batch, "d", tokens.shape[-1]), "d, dv, alone or for each element of the batch")
    check_same_kind(weights, "weights", tokens, "the tokens")
    check_finite(weights, "weights", ("row", "column"))
    return weights


def _first(wrong: Tensor) -> list[int] | None:
    """The first position where `wrong` is True; None if there is none."""
    return torch.nonzero(wrong)[0].tolist() if bool(wrong.any()) else None


def _check_device(tensor: Tensor, name: str, device: torch.device) -> None:
    if tensor.device != device:
        raise ValueError(f"{name} must be on {device}, like the tokens; got {tensor.device}")
