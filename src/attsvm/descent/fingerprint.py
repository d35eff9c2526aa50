"""Short digests of data, prediction heads and starts, by which a run can be told from one of another problem."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from attsvm.attention import Head
from attsvm.data import TokenDataset

K = TypeVar("K")


def data_digest(data: TokenDataset) -> str:
    """Of tokens, queries, labels, values and mask; the same in float32 and float64 where the numbers are the same.

    The axes of the batch do not count, nor does the data's own head vector: a prediction head has its own digest.
    """
    flat = data.flatten()
    values = None if flat.values is flat.tokens else flat.values
    return _digest((flat.tokens, flat.queries, flat.labels, values, flat.mask))


def head_digest(head: Head) -> str:
    """Of the kind of a prediction head and its tensors; one set for all data sets equals as many copies of it."""
    found: list[Tensor] = []

    def note(tensor: Tensor, axes: int) -> Tensor:
        lead = tensor.reshape(-1, *tensor.shape[tensor.ndim - axes :])
        same = bool((lead == lead[:1]).all())
        found.append(lead[0] if same else lead)
        return tensor

    head.map(note)
    return f"{type(head).__name__} {_digest(found)}"


def start_digest(parameters: Mapping[str, Tensor]) -> str:
    """Of the attention parameters ``[starts, batch, ...]`` before the first step."""
    return _digest(value for name, value in sorted(parameters.items()) if not name.startswith("head"))


def same_setting(before: object, now: object) -> bool:
    """Whether two entries of what a run says about itself mean the same.

    A constant step size is written as an object or as its number, as it was given, and both take the same steps.

    >>> same_setting("GradientDescent(step_size=Constant(size=0.1))", "GradientDescent(step_size=0.1)")
    True
    """
    if isinstance(before, str) and isinstance(now, str):
        return _CONSTANT.sub(r"\1", before) == _CONSTANT.sub(r"\1", now)
    return before == now


def setting_object(text: str, kind: type[K], argument: str) -> K:
    """The object that a run's entry describes, from its classes' names and plain values alone; a ValueError that asks
    for `argument` if that cannot be.

    >>> from attsvm.descent import Optimizer
    >>> setting_object("NormalizedGradientDescent(step_size=InverseSqrt(size=0.3))", Optimizer, "optimizer=").schedule
    InverseSqrt(size=0.3)
    """
    from attsvm import attention, descent, norms

    def made(node: ast.expr) -> Any:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found = [vars(room)[node.func.id] for room in (attention, descent, norms) if node.func.id in vars(room)]
            if found and isinstance(found[0], type) and is_dataclass(found[0]):
                taken = {each.name for each in fields(found[0]) if each.init}
                given = {str(each.arg): made(each.value) for each in node.keywords if each.arg in taken}
                return found[0](*map(made, node.args), **given)
        return ast.literal_eval(node)

    try:
        result = made(ast.parse(text, mode="eval").body)
        if isinstance(result, kind):
            return result
    except (SyntaxError, TypeError, ValueError):
        pass
    raise ValueError(f"the run was made with {text}, which cannot be made again from this; pass {argument}")


_CONSTANT = re.compile(r"\bConstant\(size=([^()]+)\)")
_LARGE = 2**22  # numbers of a tensor from which on they are summed where they are, instead of hashed on the CPU
_SUMMED = "~"


def same_digest(before: str, now: str) -> bool:
    """Whether two digests belong to the same numbers; True where an earlier version made one of them in another way."""
    return before == now or before.endswith(_SUMMED) != now.endswith(_SUMMED)


def _digest(tensors: Iterable[Tensor | None]) -> str:
    made, summed = hashlib.blake2b(digest_size=16), ""
    for tensor in tensors:
        if tensor is None:
            made.update(b"none")
            continue
        made.update(repr(tuple(tensor.shape)).encode())
        if tensor.numel() >= _LARGE:
            made.update(repr(_sums(tensor.detach())).encode())
            summed = _SUMMED
        else:
            kind = np.uint8 if tensor.dtype.is_floating_point is False else np.float64
            made.update(np.ascontiguousarray(tensor.detach().cpu().numpy(), dtype=kind).data)
    return made.hexdigest() + summed


def _sums(tensor: Tensor) -> tuple[int, int]:
    """Two sums modulo 2^64 over numbers mixed with their places: the same bits on every device, in any order."""
    flat, first, second = tensor.reshape(-1), 0, 0
    size = min(_LARGE, 2**15) if flat.device.type == "cpu" else _LARGE  # what stays in the cache of a processor
    for start in range(0, len(flat), size):
        part = flat[start : start + size]
        bits = part.double().view(torch.int64) if part.is_floating_point() else part.to(torch.int64)
        place = torch.arange(start + 1, start + len(part) + 1, device=part.device)
        mixed = _mixed(bits + place * -0x61C8864680B583EB)  # 2^64 / golden ratio, as signed
        first, second = first + int(mixed.sum()), second + int(_mixed(mixed ^ place).sum())
    return first % 2**64, second % 2**64


def _mixed(bits: Tensor) -> Tensor:
    """A bijection of 64 bits that spreads every bit over the word."""
    for factor in (0x2545F4914F6CDD1D, 0x5851F42D4C957F2D):
        bits = bits * factor
        bits = bits ^ (bits >> 32 & 0xFFFFFFFF)
    return bits
