"""How far two lists of numbers are apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

TOLERANCE = 1e-9


def apart(mine: Sequence[object], theirs: Sequence[object]) -> float:
    """Largest difference, relative to the larger of 1 and the largest entry of `theirs`; inf where shapes differ."""
    first, second = np.asarray(mine, dtype=float), np.asarray(theirs, dtype=float)
    if first.shape != second.shape:
        return float("inf")
    if first.size == 0:
        return 0.0
    difference = float(np.abs(first - second).max() / max(1.0, np.abs(second).max()))
    return difference if np.isfinite(difference) else float("inf")
