"""A picture of the plane from arrays alone: tokens, paths, the rays they tend to, the lines that separate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Patch

from attsvm.plots.lines import SeparatingLine, draw_lines, line_key
from attsvm.plots.paths import Path, draw_paths, name_paths, path_keys
from attsvm.plots.plane import DecadePlane
from attsvm.plots.rays import Ray, draw_rays, ray_keys
from attsvm.plots.style import DISC, FAINT, HAIRLINE, INK, colour_of, marker_of, tinted

_SMALL, _LARGE, _STAR = 34.0, 190.0, 330.0
_MOST_KEYS = 8


@dataclass(frozen=True)
class Tokens:
    """Tokens in the plane, larger and darker the higher they score; stars mark the optimal ones.

    Arguments:
        places: ``[n, T, 2]``.
        real: mask ``[n, T]``; None means that all are real.
        scores: ``[n, T]``, or None where nothing scores them.
        best: mask ``[n, T]`` of the optimal ones, or None.
    """

    places: np.ndarray
    real: np.ndarray | None = None
    scores: np.ndarray | None = None
    best: np.ndarray | None = None

    @property
    def shown(self) -> np.ndarray:
        """Mask of the tokens to draw."""
        return np.ones(self.places.shape[:2], dtype=bool) if self.real is None else self.real


@dataclass(frozen=True)
class PlaneScene:
    """What is drawn into one plane.

    Arguments:
        tokens: at true scale, inside the disc.
        paths: from their start to their end, far outside it on a logarithmic scale.
        rays: thin lines from the origin.
        lines: separating lines, inside the disc.
    """

    tokens: Tokens
    paths: Sequence[Path]
    rays: Sequence[Ray] = ()
    lines: Sequence[SeparatingLine] = ()

    def draw(self, axes: Axes, *, scale: float = 1.0, starts: bool = False) -> None:
        """Draw everything; `scale` is for markers, lines and letters, and `starts` marks where paths begin."""
        walked = np.concatenate([path.points for path in self.paths])
        plane = DecadePlane.around(self.tokens.places[self.tokens.shown], walked)
        ends = np.array([path.points[-1] for path in self.paths])
        angle = _frame(axes, plane, np.concatenate([walked, *(ray.points(ends) for ray in self.rays)]))
        _rings(axes, plane, walked, angle, 8.5 if scale >= 1 else 7.0)
        draw_lines(axes, plane, self.lines)
        draw_rays(axes, plane, self.rays, ends)
        draw_paths(axes, plane, self.paths, width=2.0 * scale, starts=starts)
        _draw_tokens(axes, self.tokens, scale)
        name_paths(axes, plane, self.paths, size=max(11.5 * scale, 8.0))

    def legend(self) -> list[Artist]:
        """The entries of its legend."""
        tokens, inputs = self.tokens, len(self.tokens.places)
        keys: list[Artist] = [
            _point(marker_of(i), colour_of(i), "and so on" if i == _MOST_KEYS - 1 < inputs - 1 else _named(i, inputs))
            for i in range(min(inputs, _MOST_KEYS))
        ]
        if tokens.best is not None:
            keys.append(_point("*", INK, "optimal token of its input", 14, "white"))
        if tokens.scores is not None:
            keys.append(_point("o", FAINT, "low score", _SMALL**0.5, tinted(FAINT, 0.25)))
            keys.append(_point("o", FAINT, "high score", _LARGE**0.5 * 0.85, tinted(FAINT, 0.9)))
        keys += [*path_keys(self.paths), *ray_keys(self.rays), *line_key(self.lines)]
        said = "true scale; beyond it a ring\nfor each power of ten"
        keys.append(Patch(facecolor=DISC, edgecolor=HAIRLINE, label=said))
        return keys


def _named(i: int, inputs: int) -> str:
    return "tokens" if inputs == 1 else f"tokens of input {i}"


def _point(
    marker: str, colour: str, label: str, size: float = 8.0, face: str | tuple[float, float, float] = ""
) -> Line2D:
    return Line2D(
        [], [], linestyle="", marker=marker, markersize=size, markeredgecolor=colour, markerfacecolor=face or colour,
        label=label,
    )  # fmt: skip


def _frame(axes: Axes, plane: DecadePlane, walked: np.ndarray) -> float:
    """Set the view; return an angle at which ring labels are in view and far from the ends of the paths."""
    shown = plane.shown(walked)
    margin = 0.14 * plane.radius
    low = np.minimum(shown.min(0), -plane.radius) - margin
    high = np.maximum(shown.max(0), plane.radius) + margin
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal", xticks=[], yticks=[])
    axes.spines[:].set_visible(False)

    rings = plane.powers(float(np.linalg.norm(walked, axis=-1).max()))
    outermost = plane.distance(10.0 ** rings[-1]) if rings else plane.radius
    angles = np.linspace(-np.pi, np.pi, 72, endpoint=False)
    rim = outermost * np.stack([np.cos(angles), np.sin(angles)], -1)
    visible = ((rim > low + margin) & (rim < high - margin)).all(-1)
    outside = shown[np.linalg.norm(shown, axis=-1) > plane.radius]
    taken = np.arctan2(outside[:, 1], outside[:, 0])
    turn = np.abs((angles[:, None] - taken + np.pi) % (2 * np.pi) - np.pi).min(-1, initial=np.pi)
    return float(angles[np.argmax(np.where(visible, turn, -1.0))])


def _rings(axes: Axes, plane: DecadePlane, walked: np.ndarray, angle: float, size: float) -> None:
    """The disc of true scale, and a labelled ring for each power of ten beyond it."""
    axes.add_patch(Circle((0, 0), plane.radius, facecolor=DISC, edgecolor=HAIRLINE, linewidth=0.9, zorder=0))
    for power in plane.powers(float(np.linalg.norm(walked, axis=-1).max())):
        ring = plane.distance(10.0**power)
        axes.add_patch(Circle((0, 0), ring, fill=False, edgecolor=HAIRLINE, linewidth=0.7, zorder=0))
        axes.text(
            ring * np.cos(angle), ring * np.sin(angle), f"$10^{{{power}}}$", color=FAINT, fontsize=size, ha="center",
            va="center", zorder=1, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2}, gid="ring",
        )  # fmt: skip
    axes.plot([0], [0], marker="+", color=FAINT, markersize=8, markeredgewidth=1.1, zorder=1)


def _draw_tokens(axes: Axes, tokens: Tokens, scale: float) -> None:
    real = tokens.shown
    scores = np.zeros(real.shape) if tokens.scores is None else tokens.scores
    best = np.zeros_like(real) if tokens.best is None else tokens.best
    low, high = scores[real].min(), scores[real].max()
    for i, t in np.argwhere(real):
        colour, star = colour_of(i), bool(best[i, t])
        height = (scores[i, t] - low) / (high - low) if high > low else 0.5
        x, y = tokens.places[i, t]
        axes.scatter(
            x, y, s=scale**2 * (_STAR if star else _SMALL + (_LARGE - _SMALL) * height),
            marker="*" if star else marker_of(i), color=[colour if star else tinted(colour, 0.25 + 0.65 * height)],
            edgecolors=INK if star else colour, linewidths=0.9, zorder=6 if star else 5,
            gid="optimal token" if star else "token",
        )  # fmt: skip
