"""Short digests of data, prediction heads and starts, by which a run can be told from one of another problem."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

import numpy as np
from torch import Tensor

from attsvm.attention import Head
from attsvm.data import TokenDataset


def data_digest(data: TokenDataset) -> str:
    """Of tokens, queries, labels, values and mask; the same in float32 and float64 where the numbers are the same.

    The batch counts in row-major order, whatever its axes, and the data's own head vector does not count: the
    prediction head has a digest of its own.
    """
    flat = data.flatten()
    return _digest(
        (flat.tokens, flat.queries, flat.labels, None if flat.values is flat.tokens else flat.values, flat.mask)
    )


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


_CONSTANT = re.compile(r"\bConstant\(size=([^()]+)\)")


def _digest(tensors: Iterable[Tensor | None]) -> str:
    made = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        if tensor is None:
            made.update(b"none")
            continue
        kind = np.uint8 if tensor.dtype.is_floating_point is False else np.float64
        numbers = np.ascontiguousarray(tensor.detach().cpu().numpy(), dtype=kind)
        made.update(repr(numbers.shape).encode())
        made.update(numbers.data)
    return made.hexdigest()
