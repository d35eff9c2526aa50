"""What makes a token data set valid: shapes that fit, finite numbers, one precision, one device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attsvm._checks import check_finite, check_shape, place

if TYPE_CHECKING:
    from attsvm.data.dataset import TokenDataset


def check_dataset(data: TokenDataset) -> None:
    """Raise ValueError unless every field of `data` fits the others."""
    check_axes(data.tokens)
    shared = data.queries_per_sequence
    if not isinstance(shared, int) or isinstance(shared, bool) or shared < 1:
        raise ValueError(f"queries_per_sequence must be a positive integer; got {shared!r}")
    batch, n = data.batch_shape, data.sequences * shared
    row = "input" if shared == 1 else "sequence"
    check_finite(data.tokens, "tokens", (row, "token", "coordinate"))

    if tuple(data.queries.shape[:-1]) != (*batch, n):
        raise ValueError(
            f"queries must have shape {_shape(*batch, n, 'dq')} (batch, n, dq) to fit tokens of shape"
            f" {list(data.tokens.shape)}; got {list(data.queries.shape)}"
        )
    if data.dq == 0:
        raise ValueError("queries must have at least one coordinate; got dq = 0")
    check_same_kind(data.queries, "queries", data.tokens)
    check_finite(data.queries, "queries", ("input", "coordinate"))

    _check_labels(data.labels, (*batch, n), data.device)
    if data.mask is not None:
        check_mask(data.mask, (*batch, n, data.T), "batch, n, T", data.device)
        hidden = ~data.mask.any(-1)
        if bool(hidden.any()):
            at = place(torch.nonzero(hidden)[0].tolist(), ("input",))
            raise ValueError(f"mask must leave a token in every input; it hides all of {at}")

    if data.values is not data.tokens:
        if data.values.shape[:-1] != data.tokens.shape[:-1] or data.dv == 0:
            expected = _shape(*data.tokens.shape[:-1], "dv")
            raise ValueError(f"values must have shape {expected} (batch, n, T, dv); got {list(data.values.shape)}")
        check_same_kind(data.values, "values", data.tokens)
        check_finite(data.values, "values", (row, "token", "coordinate"))
    if data.head is not None:
        check_shape(data.head, "head", (*batch, data.dv), "batch, dv")
        check_same_kind(data.head, "head", data.tokens)
        check_finite(data.head, "head", ("coordinate",))


def check_axes(tokens: Tensor) -> None:
    """Raise unless tokens are ``[*batch, n, T, d]`` with n, T and d at least 1."""
    if tokens.ndim < 3:
        raise ValueError(f"tokens must have shape [*batch, n, T, d]; got {list(tokens.shape)}")
    for size, name in zip(tokens.shape[-3:], ("input (n)", "token (T)", "coordinate (d)"), strict=True):
        if size == 0:
            raise ValueError(f"tokens must have at least one {name}; got shape {list(tokens.shape)}")


def check_same_kind(tensor: Tensor, name: str, tokens: Tensor) -> None:
    """Raise unless `tensor` has the tokens' precision and device."""
    if tensor.dtype != tokens.dtype:
        raise ValueError(
            f"{name} must be {str(tokens.dtype).removeprefix('torch.')}, like the tokens;"
            f" got {str(tensor.dtype).removeprefix('torch.')}"
        )
    check_device(tensor, name, tokens.device)


def check_device(tensor: Tensor, name: str, device: torch.device) -> None:
    """Raise unless `tensor` lives with the tokens."""
    if tensor.device != device:
        raise ValueError(f"{name} must be on {device}, like the tokens; got {tensor.device}")


def check_mask(mask: Tensor, shape: tuple[int, ...], meaning: str, device: torch.device) -> None:
    """Raise unless `mask` is boolean, of this shape and with the tokens."""
    if mask.dtype != torch.bool:
        kind = str(mask.dtype).removeprefix("torch.")
        raise ValueError(f"mask must be boolean (True marks a real token); got {kind}")
    check_shape(mask, "mask", shape, meaning)
    check_device(mask, "mask", device)


def _check_labels(labels: Tensor, shape: tuple[int, ...], device: torch.device) -> None:
    check_shape(labels, "labels", shape, "batch, n")
    check_device(labels, "labels", device)
    wrong = ~((labels == 1) | (labels == -1))
    if bool(wrong.any()):
        where = torch.nonzero(wrong)[0].tolist()
        raise ValueError(f"labels must be +1 or -1; got {labels[tuple(where)].item()} at {place(where, ('input',))}")


def _shape(*sizes: int | str) -> str:
    return f"[{', '.join(map(str, sizes))}]"
