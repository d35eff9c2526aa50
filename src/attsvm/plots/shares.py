"""Error bars of shares."""

from __future__ import annotations

import numpy as np


def wilson(successes: np.ndarray | int, total: np.ndarray | int, z: float = 1.96) -> tuple[np.ndarray, np.ndarray]:
    """The Wilson interval of a share, by default at 95 %; it stays inside [0, 1] and is not empty at either end.

    >>> low, high = wilson(0, 100)
    >>> float(low), round(float(high), 3)
    (0.0, 0.037)
    """
    count, share = np.asarray(total, dtype=float), np.asarray(successes) / np.asarray(total)
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return np.clip(middle - half, 0, 1), np.clip(middle + half, 0, 1)
