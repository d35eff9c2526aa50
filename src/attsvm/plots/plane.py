"""A picture of the plane: tokens at true scale in a disc, and around it paths on rings for each power of ten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Patch

from attsvm.data import TokenDataset
from attsvm.plots.style import DISC, FAINT, HAIRLINE, INK, LINES, LineStyle, colour_of, marker_of, tinted
from attsvm.svm import SVMSolution

_SAME = 0.01  # rays closer than this angle, in radians, are drawn once
_NEAR = 0.2  # a path this close in angle follows the ray, which then ends where the path does
_RAY_WIDTH, _RAY_STRENGTH = 1.1, 0.75
_LINE_WIDTH, _LINE_STRENGTH, _LINE_STYLE = 1.3, 0.6, (0.0, (7.0, 2.0, 1.5, 2.0))
_SMALL, _LARGE, _STAR = 34.0, 190.0, 330.0
_MOST_KEYS = 8


@dataclass(frozen=True)
class DecadePlane:
    """True scale up to `radius`; beyond it angles stay true and each factor of ten takes about `decade`.

    A point at distance r > radius is shown at ``radius + c log(1 + (r - radius) / c)`` with ``c = decade / log 10``,
    which meets the disc without a kink.

    >>> plane = DecadePlane(radius=1.0, decade=0.5)
    >>> plane.shown(np.array([[0.6, 0.8], [0.3, 0.4]])).round(12).tolist()
    [[0.6, 0.8], [0.3, 0.4]]
    >>> round(float(plane.distance(1e9) - plane.distance(1e8)), 6)
    0.5
    """

    radius: float
    decade: float

    @classmethod
    def around(cls, tokens: np.ndarray, paths: np.ndarray) -> DecadePlane:
        """A disc that holds `tokens` ``[..., 2]``, and room for `paths` around it; short ones are not stretched."""
        reach = float(np.linalg.norm(tokens, axis=-1).max(initial=0.0))
        farthest = float(np.linalg.norm(paths, axis=-1).max(initial=0.0))
        radius = 1.12 * reach if reach > 0 else max(farthest, 1.0)
        decades = max(float(np.log10(max(farthest / radius, 1.0))), 1e-9)
        return cls(radius, min(0.5, 1.1 / decades) * radius)

    def distance(self, true: Any) -> Any:
        """How far from the origin points at distance `true` are shown, a number or an array."""
        scale = self.decade / np.log(10.0)
        return np.minimum(true, self.radius) + scale * np.log1p(np.maximum(true - self.radius, 0.0) / scale)

    def shown(self, points: np.ndarray) -> np.ndarray:
        """Where `points` ``[..., 2]`` are shown."""
        true = np.linalg.norm(points, axis=-1, keepdims=True)
        return np.asarray(points * (self.distance(true) / np.where(true > 0, true, 1.0)))

    def powers(self, farthest: float) -> range:
        """Exponents k of the rings 10^k between the disc and `farthest`."""
        # A ring closer than a third of a factor of ten to the disc would touch it.
        first = int(np.ceil(np.log10(self.radius) + 1 / 3))
        return range(first, int(np.floor(np.log10(max(farthest, self.radius)))) + 1)


@dataclass(frozen=True)
class Tokens:
    """Tokens in the plane, larger and darker the higher they score; stars mark the optimal ones."""

    places: np.ndarray  # ``[n, T, 2]``
    real: np.ndarray | None = None  # mask ``[n, T]``; None means that all are real
    scores: np.ndarray | None = None  # ``[n, T]``, or None where nothing scores them
    best: np.ndarray | None = None  # mask ``[n, T]`` of the optimal ones, or None

    @property
    def shown(self) -> np.ndarray:
        """Mask of the tokens to draw."""
        return np.ones(self.places.shape[:2], dtype=bool) if self.real is None else self.real


@dataclass(frozen=True)
class Path:
    """One path ``[records, 2]``: its points, its name, what the legend says of it, and its look."""

    points: np.ndarray
    name: str
    key: str
    colour: str = INK
    line: LineStyle = "-"


@dataclass(frozen=True)
class Ray:
    """The direction of W_mm z_i in the plane, with its name and look."""

    direction: np.ndarray
    name: str
    colour: str
    line: LineStyle

    def points(self, ends: np.ndarray) -> np.ndarray:
        """Its two ends, given those of the paths ``[paths, 2]``: as far as the path that follows it, or the longest."""
        lengths = np.linalg.norm(ends, axis=-1)
        cosines = (ends @ self.direction) / np.where(lengths > 0, lengths, 1.0)
        near = lengths[cosines > np.cos(_NEAR)]
        return np.stack([np.zeros(2), self.direction * (near if len(near) else lengths).max()])


def rays_along(
    vectors: np.ndarray, name: str, line: LineStyle = "-", colours: Sequence[str] | None = None
) -> list[Ray]:
    """A ray along each vector ``[inputs, 2]`` but zeros, in its input's colour; those that coincide are one, grey."""
    rays: list[Ray] = []
    for i, vector in enumerate(vectors):
        length = float(np.linalg.norm(vector))
        if near := [place for place, ray in enumerate(rays) if ray.direction @ vector > np.cos(_SAME) * length]:
            rays[near[0]] = replace(rays[near[0]], colour=INK)
        elif length > 0:
            rays.append(Ray(vector / length, name, colours[i] if colours else colour_of(i), line))
    return rays


def rays_of(data: TokenDataset, solutions: Sequence[SVMSolution]) -> list[Ray]:
    """Rays of every solution and input; a ValueError if a solution is of other data, or there is none."""
    found = []
    query = "" if data.dq == 1 else r"\,z_i"
    for order, solution in enumerate(solutions):
        if tuple(solution.weights.shape) != (data.d, data.dq):
            form, got = f"[{data.d}, {data.dq}]", list(solution.weights.shape)
            raise ValueError(f"solutions must have weights {form} to fit the data; solution {order} has {got}")
        if bool(solution.barred):
            raise ValueError(f"solution {order} has no ray to draw: {solution.sentences}")
        label = rf"ray of $W_\mathrm{{mm}}{query}$, {solution.norm.name}"
        vectors = (data.queries.to(solution.weights) @ solution.weights.mT).cpu().numpy()
        found += rays_along(vectors, label, LINES[order % len(LINES)])
    return found


@dataclass(frozen=True)
class SeparatingLine:
    """The points x of the plane with ``normal^T x = offset``."""

    normal: np.ndarray
    offset: float
    colour: str = INK

    def chord(self, radius: float) -> np.ndarray:
        """The points ``[points, 2]`` where the line meets the circle of this radius, two or none."""
        length = float(np.linalg.norm(self.normal))
        foot = self.normal * (self.offset / length**2) if length > 0 else np.full(2, np.inf)
        if (half := radius**2 - float(foot @ foot)) <= 0:
            return np.empty((0, 2))
        along = np.array([-self.normal[1], self.normal[0]]) / length * half**0.5
        return np.stack([foot - along, foot + along])


@dataclass(frozen=True)
class PlaneScene:
    """What is drawn into one plane."""

    tokens: Tokens  # at true scale, inside the disc
    paths: Sequence[Path]  # from their start to their end, far outside it on a logarithmic scale
    rays: Sequence[Ray] = ()  # thin lines from the origin
    lines: Sequence[SeparatingLine] = ()  # separating lines, inside the disc

    def draw(self, axes: Axes, *, scale: float = 1.0, starts: bool = False) -> None:
        """Draw everything; `scale` is for markers, lines and letters, and `starts` marks where paths begin."""
        walked = np.concatenate([path.points for path in self.paths])
        plane = DecadePlane.around(self.tokens.places[self.tokens.shown], walked)
        ends = np.array([path.points[-1] for path in self.paths])
        angle = _frame(axes, plane, np.concatenate([walked, *(ray.points(ends) for ray in self.rays)]))
        _draw_rings(axes, plane, walked, angle, 8.5 if scale >= 1 else 7.0)
        for line in self.lines:  # as far as the disc of true scale reaches; beyond it a straight line would bend
            chord, colour = line.chord(plane.radius), tinted(line.colour, _LINE_STRENGTH)
            axes.plot(*chord.T, linestyle=_LINE_STYLE, color=colour, linewidth=_LINE_WIDTH, zorder=2, gid="separator")
        for ray in self.rays:  # straight in this plane, whose angles are true, and thin below the paths
            shown, colour = plane.shown(ray.points(ends)), tinted(ray.colour, _RAY_STRENGTH)
            axes.plot(*shown.T, linestyle=ray.line, color=colour, linewidth=_RAY_WIDTH, zorder=2, gid="ray")
        _draw_paths(axes, plane, self.paths, width=2.0 * scale, starts=starts)
        _draw_tokens(axes, self.tokens, scale)
        _name_paths(axes, plane, self.paths, size=max(11.5 * scale, 8.0))

    def legend(self) -> list[Artist]:
        """The entries of its legend: inputs, scores, then one for each kind of path, ray and line."""
        tokens, inputs = self.tokens, len(self.tokens.places)
        names = ["tokens"] if inputs == 1 else [f"tokens of input {i}" for i in range(inputs)]
        names[_MOST_KEYS - 1 :] = ["and so on"] if inputs > _MOST_KEYS else names[_MOST_KEYS - 1 :]
        keys: list[Artist] = [_point(marker_of(i), colour_of(i), name) for i, name in enumerate(names)]
        if tokens.best is not None:
            keys.append(_point("*", INK, "optimal token of its input", 14, "white"))
        if tokens.scores is not None:
            keys.append(_point("o", FAINT, "low score", _SMALL**0.5, tinted(FAINT, 0.25)))
            keys.append(_point("o", FAINT, "high score", _LARGE**0.5 * 0.85, tinted(FAINT, 0.9)))
        strokes: list[tuple[str, LineStyle, float, float | None]] = [
            *((path.key, path.line, 1.0, None) for path in self.paths if path.key),
            *((ray.name, ray.line, _RAY_STRENGTH, _RAY_WIDTH) for ray in self.rays),
            *(("separating line", _LINE_STYLE, _LINE_STRENGTH, _LINE_WIDTH) for _ in self.lines),
        ]
        for label, line, strength, width in dict.fromkeys(strokes):
            keys.append(Line2D([], [], color=tinted(INK, strength), linewidth=width, linestyle=line, label=label))
        said = "true scale; beyond it a ring\nfor each power of ten"
        keys.append(Patch(facecolor=DISC, edgecolor=HAIRLINE, label=said))
        return keys


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


def _draw_rings(axes: Axes, plane: DecadePlane, walked: np.ndarray, angle: float, size: float) -> None:
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


def _draw_paths(axes: Axes, plane: DecadePlane, paths: Sequence[Path], *, width: float, starts: bool) -> None:
    """Every path with an arrow at its end, and a ring at its start where `starts` are shown."""
    for path in paths:
        # More points on each segment, which the logarithmic scale bends.
        between = np.linspace(path.points[:-1], path.points[1:], 8, endpoint=False, axis=1)
        shown = plane.shown(np.concatenate([between.reshape(-1, 2), path.points[-1:]]))
        axes.plot(*shown.T, linestyle=path.line, color=path.colour, linewidth=width, zorder=3, gid="path")
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


def _name_paths(axes: Axes, plane: DecadePlane, paths: Sequence[Path], *, size: float) -> None:
    """Each path's name at its end; paths that end together share one label."""
    groups: list[tuple[np.ndarray, list[Path]]] = []
    for path in (path for path in paths if path.name):
        end = plane.shown(path.points[-1])
        if near := [group for place, group in groups if np.linalg.norm(place - end) < 0.12 * plane.radius]:
            near[0].append(path)
        else:
            groups.append((end, [path]))
    for end, group in groups:
        outward, colours = end / (float(np.linalg.norm(end)) or 1.0), {path.colour for path in group}
        axes.annotate(
            ", ".join(dict.fromkeys(path.name for path in group)), xy=tuple(end), xytext=tuple(0.8 * size * outward),
            textcoords="offset points", ha="left" if outward[0] > 0.5 else "right" if outward[0] < -0.5 else "center",
            va="bottom" if outward[1] > 0.3 else "top" if outward[1] < -0.3 else "center",
            color=next(iter(colours)) if len(colours) == 1 else INK, fontsize=size, zorder=7, gid="path name",
        )  # fmt: skip


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
