"""Curves with uncertainty, labelled where they end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from attsvm.plots.style import W_LINE, LineStyle
from attsvm.sweep.result import SweepResult


class Curves:
    """Curves in one panel, each named right of it at the height where it ends; an empty name is not shown."""

    def __init__(self, axes: Axes) -> None:
        self.axes = axes
        self._ends: list[tuple[str, float, str]] = []

    def name(self, name: str, height: float, colour: str) -> None:
        """Put a name at this height, in data units."""
        self._ends += [(name, float(height), colour)] if name else []

    def line(self, name: str, x: Any, y: Any, colour: str, **look: Any) -> None:
        """A curve through points."""
        self.axes.plot(x, y, color=colour, **look)
        self.name(name, y[-1], colour)

    def band(self, name: str, x: np.ndarray, values: np.ndarray, colour: str, line: LineStyle = W_LINE) -> np.ndarray:
        """The median of `values` ``[runs, len(x)]`` over the runs, with a band from 10 to 90 %; returns the median."""
        middle: np.ndarray = np.nanmedian(values, axis=0)
        low, high = np.nanquantile(values, (0.1, 0.9), axis=0)
        self.between(name, colour, x, low, middle, high, linestyle=line)
        return middle

    def between(self, name: str, colour: str, x: Any, low: Any, middle: Any, high: Any, **look: Any) -> None:
        """A curve through the points `middle`, with a band from `low` to `high`."""
        self.axes.fill_between(x, low, high, color=colour, alpha=0.14, linewidth=0)
        self.line(name, x, middle, colour, **look)

    def shares(self, name: str, x: Sequence[float], found: Sequence[np.ndarray], colour: str, **look: Any) -> None:
        """The share of true entries of every array against `x`, with Wilson intervals at 95 %."""
        counts, true = np.array([(len(each), np.sum(each)) for each in found], dtype=float).T
        share, (low, high) = true / counts, wilson(true, counts)
        bars = np.maximum(0, np.stack([share - low, high - share]))
        self.axes.errorbar(x, share, bars, color=colour, capsize=2, marker="o", markersize=3.5, **look)
        self.name(name, share[-1], colour)

    def label(self, least: float = 0.055, size: float = 8.5, **settings: Any) -> None:
        """Set the axes for good, then write the names, at least `least` of the axes' height apart."""
        axes = self.axes
        axes.set(**settings)
        transform, right = axes.transData + axes.transAxes.inverted(), axes.get_xlim()[1]
        ends = [(float(transform.transform((right, height))[1]), name, colour) for name, height, colour in self._ends]
        ends.sort(key=lambda end: end[0])
        apart = spread_apart([height for height, *_ in ends], least)
        for height, (_, name, colour) in zip(apart, ends, strict=True):
            axes.text(1.015, height, name, transform=axes.transAxes, color=colour, fontsize=size, va="center")


def spread_apart(heights: Sequence[float], least: float) -> list[float]:
    """Growing heights in [0, 1] moved as little as possible (least squares) so that neighbours are `least` apart.

    >>> [round(height, 3) for height in spread_apart([0.5, 0.5, 0.9], 0.1)]
    [0.45, 0.55, 0.9]
    """
    from scipy.optimize import isotonic_regression

    low, top = least * np.arange(len(heights)), least * (len(heights) - 1)  # packed from 0 upwards; the last
    found = low + isotonic_regression(np.clip(heights, 0.0, 1.0) - low).x
    return np.maximum(np.minimum(found, 1.0 - top + low), low - max(0.0, top - 1.0)).tolist()


def series(result: SweepResult, column: str, by: Sequence[str], **where: object) -> tuple[np.ndarray, np.ndarray]:
    """Recorded steps, and the column as ``[runs, steps]``: a run for every combination of the columns `by`, sorted."""
    steps = result.column("history", "step", **where)
    keys = [result.column("history", name, **where) for name in by]
    unique = np.unique(steps)
    order = np.lexsort((steps, *reversed(keys)))
    return unique, result.column("history", column, **where)[order].reshape(-1, len(unique))


def wilson(successes: np.ndarray | int, total: np.ndarray | int) -> tuple[np.ndarray, np.ndarray]:
    """The Wilson interval of a share at 95 %; it stays inside [0, 1] and is not empty at either end.

    >>> low, high = wilson(0, 100)
    >>> float(low), round(float(high), 3)
    (0.0, 0.037)
    """
    z, count, share = 1.96, np.asarray(total, dtype=float), np.asarray(successes) / np.asarray(total)
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return np.clip(middle - half, 0, 1), np.clip(middle + half, 0, 1)
