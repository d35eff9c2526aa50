"""Fingerprints of what a result was made from."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from torch import Tensor

from attsvm.data import TokenDataset


def digest(parts: Sequence[Tensor | None]) -> str:
    """A fingerprint of some tensors: their types, shapes and bits."""
    total = hashlib.sha256()
    for part in parts:
        if part is None:
            total.update(b"none;")
            continue
        total.update(f"{part.dtype}{tuple(part.shape)};".encode())
        total.update(part.detach().cpu().contiguous().numpy().tobytes())
    return total.hexdigest()


def data_digest(data: TokenDataset) -> str:
    """A fingerprint of a data set without its head, the same on every device."""
    values = None if data.values is data.tokens else data.values
    return digest([data.tokens, data.queries, data.labels, data.mask, values])
