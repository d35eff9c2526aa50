"""Random next-token data."""

from __future__ import annotations

import numpy as np

from attsvm.next_token import NextTokenData, from_ids


def random_samples(
    seed: int, tokens: int = 6, d: int = 8, n: int = 30, window: int = 4, *, orthonormal: bool = False
) -> NextTokenData:
    """Windows drawn evenly with a label that is one of their tokens: cyclic for many samples, with repeats."""
    rng = np.random.default_rng(seed)
    table = rng.standard_normal((tokens, d))
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    if orthonormal:
        table = np.linalg.qr(rng.standard_normal((d, tokens)))[0].T
    windows = rng.integers(0, tokens, (n, window))
    return from_ids(windows, [int(rng.choice(row)) for row in windows], table)
