"""Paths in the plane: from their start to the norm where training ended, named at their ends."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from attsvm.plots.plane import DecadePlane
from attsvm.plots.style import INK


@dataclass(frozen=True)
class Path:
    """One path ``[records, 2]``: its points, its name, what the legend says of it, and its look."""

    points: np.ndarray
    name: str
    key: str
    colour: str = INK
    dashes: tuple[float, ...] | None = None


def draw_paths(
    axes: Axes, plane: DecadePlane, paths: Sequence[Path], *, width: float = 2.0, starts: bool = False
) -> None:
    """Every path with an arrow at its end, and a ring at its start where `starts` are shown."""
    for path in paths:
        shown = plane.shown(_refined(path.points))
        (line,) = axes.plot(shown[:, 0], shown[:, 1], color=path.colour, linewidth=width, zorder=3, gid="path")
        if path.dashes is not None:
            line.set_dashes(path.dashes)
        if starts:
            axes.plot(
                *shown[0], marker="o", markersize=2.4 * width, markerfacecolor="white", markeredgecolor=path.colour,
                markeredgewidth=0.6 * width, zorder=4, gid="start",
            )  # fmt: skip
        before = shown[np.linalg.norm(shown - shown[-1], axis=-1) > 0.05 * plane.radius]
        if len(before):
            axes.annotate("", xy=tuple(shown[-1]), xytext=tuple(before[-1]), zorder=4, arrowprops={
                "arrowstyle": "-|>,head_width=0.28,head_length=0.55", "color": path.colour,
                "mutation_scale": 7 * width, "linewidth": 0, "shrinkA": 0, "shrinkB": 0,
            })  # fmt: skip


def name_paths(axes: Axes, plane: DecadePlane, paths: Sequence[Path], *, size: float = 11.5) -> None:
    """Each path's name at its end; paths that end together share one label."""
    groups: list[tuple[np.ndarray, list[str], set[str]]] = []
    for path in paths:
        if not path.name:
            continue
        end = plane.shown(path.points[-1])
        near = [group for group in groups if np.linalg.norm(group[0] - end) < 0.12 * plane.radius]
        if not near:
            groups.append((end, [path.name], {path.colour}))
            continue
        near[0][2].add(path.colour)
        if path.name not in near[0][1]:
            near[0][1].append(path.name)
    for end, names, colours in groups:
        outward = end / (float(np.linalg.norm(end)) or 1.0)
        axes.annotate(
            ", ".join(names), xy=tuple(end), xytext=tuple(0.8 * size * outward), textcoords="offset points",
            ha="left" if outward[0] > 0.5 else "right" if outward[0] < -0.5 else "center",
            va="bottom" if outward[1] > 0.3 else "top" if outward[1] < -0.3 else "center",
            color=next(iter(colours)) if len(colours) == 1 else INK, fontsize=size, zorder=7, gid="path name",
        )  # fmt: skip


def path_keys(paths: Sequence[Path]) -> list[Line2D]:
    """An entry of the legend for each kind of path."""
    keys = []
    for key, dashes in dict.fromkeys((path.key, path.dashes) for path in paths if path.key):
        line = Line2D([], [], color=INK, label=key)
        if dashes is not None:
            line.set_dashes(dashes)
        keys.append(line)
    return keys


def _refined(points: np.ndarray) -> np.ndarray:
    """More points on each segment, which the logarithmic scale bends."""
    share = np.linspace(0, 1, 8, endpoint=False)[:, None]
    between = [first + share * (second - first) for first, second in itertools.pairwise(points)]
    return np.concatenate([*between, points[-1:]])
