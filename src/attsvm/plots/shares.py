"""Shares with their error bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes


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


def draw_shares(
    axes: Axes, x: Sequence[float], found: Sequence[np.ndarray], *, colour: str, line: Any = "-"
) -> np.ndarray:
    """The share of true entries of every array against `x`, with Wilson intervals at 95 %.

    Returns:
        The shares.
    """
    counts = np.array([len(each) for each in found])
    true = np.array([np.sum(each) for each in found], dtype=float)
    share: np.ndarray = true / counts
    low, high = wilson(true, counts)
    bars = np.maximum(0, np.stack([share - low, high - share]))
    axes.errorbar(x, share, bars, color=colour, linestyle=line, marker="o", markersize=3.5, capsize=2)
    return share
