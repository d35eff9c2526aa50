"""What the tests of attsvm.data share."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from attsvm.data import TokenDataset

FIELDS = ("tokens", "queries", "labels", "mask", "values", "head")


def parts(*batch: int, n: int = 2, T: int = 4, d: int = 3, dq: int = 2, seed: int = 0) -> dict[str, Any]:
    """Valid arguments of TokenDataset, with every optional field and distinct numbers."""
    draw = np.random.default_rng(seed)
    mask = draw.random((*batch, n, T)) < 0.6
    mask[..., 0] = True
    return {
        "tokens": draw.standard_normal((*batch, n, T, d)),
        "queries": draw.standard_normal((*batch, n, dq)),
        "labels": np.where(draw.random((*batch, n)) < 0.5, -1.0, 1.0),
        "mask": mask,
        "values": draw.standard_normal((*batch, n, T, d + 1)),
        "head": draw.standard_normal((*batch, d + 1)),
    }


def make(*batch: int, **options: int) -> TokenDataset:
    return TokenDataset(**parts(*batch, **options))


def assert_same(left: TokenDataset, right: TokenDataset) -> None:
    """Bit for bit the same data."""
    assert left.queries_per_sequence == right.queries_per_sequence
    for name in FIELDS:
        a, b = getattr(left, name), getattr(right, name)
        assert (a is None) == (b is None), f"{name} is there on one side only"
        if a is not None:
            assert same_bits(a, b), f"{name} differs"
    assert (left.values is left.tokens) == (right.values is right.tokens), "values are stored on one side only"


def same_bits(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.device == b.device and bool(torch.equal(a, b))
