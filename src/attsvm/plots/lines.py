"""Separating lines: perpendicular to a ray, between the token that is kept and those that are dropped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from attsvm.plots.plane import DecadePlane
from attsvm.plots.style import INK, tinted

_WIDTH, _STRENGTH, _DASHES = 1.3, 0.6, (7.0, 2.0, 1.5, 2.0)


@dataclass(frozen=True)
class SeparatingLine:
    """The points x of the plane with ``normal^T x = offset``."""

    normal: np.ndarray
    offset: float
    colour: str = INK

    def chord(self, radius: float) -> np.ndarray | None:
        """The two points where the line meets the circle of this radius; None where it does not."""
        length = float(np.linalg.norm(self.normal))
        if length == 0:
            return None
        foot = self.normal * (self.offset / length**2)
        half = radius**2 - float(foot @ foot)
        if half <= 0:
            return None
        along = np.array([-self.normal[1], self.normal[0]]) / length * half**0.5
        return np.stack([foot - along, foot + along])


def draw_lines(axes: Axes, plane: DecadePlane, lines: Sequence[SeparatingLine]) -> None:
    """Each line as far as the disc of true scale reaches; beyond it a straight line would bend."""
    for line in lines:
        chord = line.chord(plane.radius)
        if chord is None:
            continue
        (drawn,) = axes.plot(
            chord[:, 0], chord[:, 1], color=tinted(line.colour, _STRENGTH), linewidth=_WIDTH, zorder=2, gid="separator"
        )
        drawn.set_dashes(_DASHES)


def line_key(lines: Sequence[SeparatingLine]) -> list[Line2D]:
    """The entry of the legend, if there are lines."""
    if not lines:
        return []
    key = Line2D([], [], color=tinted(INK, _STRENGTH), linewidth=_WIDTH, label="separating line")
    key.set_dashes(_DASHES)
    return [key]
