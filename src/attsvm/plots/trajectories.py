"""Training seen in the plane of the tokens: the paths of W z_i, the rays they tend to, and the tokens they favour."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Patch

from attsvm.attention import optimal_token_set, token_scores
from attsvm.data import TokenDataset
from attsvm.descent import Run
from attsvm.plots.plane import DecadePlane
from attsvm.plots.rays import DASHES, Ray, draw_rays, ray_keys, rays_of
from attsvm.plots.style import DISC, FAINT, HAIRLINE, INK, colour_of, house_style, marker_of, new_figure, tinted
from attsvm.svm import SVMSolution

_SMALL, _LARGE = 34.0, 190.0


def plot_trajectory_2d(
    data: TokenDataset,
    runs: Mapping[str, Run] | Run,
    *,
    solutions: Sequence[SVMSolution] = (),
    head: object = None,
    title: str | None = None,
    caption: str | None = None,
    size: tuple[float, float] | None = None,
) -> Figure:
    """Tokens in the plane and the path of W z_i for every input and run.

    The logit of token x is its inner product with W z_i, so the path's direction tells which token wins: the one that
    lies farthest along it. Inside the disc that holds the tokens the scale is true; outside it angles are true and the
    distance from the origin is logarithmic, a ring for each power of ten, so that a path is seen from its start to the
    norm where training ended. Tokens have their input's colour and shape, larger and darker the higher they score;
    stars mark the optimal ones. Max-margin solutions are thin rays along W_mm z_i; the path of a run that tends to one
    bends onto its ray.

    Arguments:
        data: one data set with d = 2.
        runs: runs by the name of their matrix in the picture (mathematics without dollar signs, ``{"W": run}``):
            solid, dashed, dotted, dash-dotted in this order; or one run, which is called W. Each must have recorded its
            weights. Several starts of a run are drawn alike.
        solutions: thin lines, solid, dashed and so on in this order; rays of several inputs that coincide are drawn
            once, in grey.
        head: what scores the tokens; None means the data's own head. Without either, tokens are drawn alike.
        title, caption: text above and below; a caption is broken into lines that fit.
        size: width and height in inches; chosen to suit the picture if None.

    Returns:
        A figure of its own; save it with ``figure.savefig(path)``.

    Raises:
        ValueError: if the data are no single data set in the plane, or a run or a solution does not belong to them.

    >>> import attsvm
    >>> data = attsvm.data.example("two-inputs")
    >>> run = attsvm.fit(data, steps=20, record=1, initial="zeros", engine=attsvm.TorchEngine())
    >>> len(plot_trajectory_2d(data, run).axes)
    1
    """
    named = {"W": runs} if isinstance(runs, Run) else dict(runs)
    _check(data, named)
    rays = rays_of(data, solutions)
    with house_style():
        figure = new_figure(*(size or (8.4, 6.4)), layout="constrained")
        axes = figure.add_subplot(anchor="W")
        _draw(axes, data, head, named, rays)
        if size is None:
            (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
            figure.set_size_inches(3.4 + 5.6 * min(max((right - left) / (high - low), 0.6), 1.6), 6.4)
        if title is not None:
            figure.suptitle(title, x=0.02, ha="left", fontweight="bold", fontsize=13)
        if caption is not None:
            # Letters of this font are about half as wide as it is high.
            wide = int(figure.get_figwidth() * 72 / (9.5 * 0.56))
            lines = "\n".join(textwrap.fill(line, wide) for line in caption.splitlines())
            figure.supxlabel(lines, x=0.02, ha="left", fontsize=9.5, linespacing=1.45)
        figure.canvas.draw()  # settles the layout while the style is in force
    return figure


def _check(data: TokenDataset, runs: Mapping[str, Run]) -> None:
    if data.batch_shape:
        raise ValueError(f"data must be one data set; got a batch of {list(data.batch_shape)}, pick one with data[i]")
    if data.d != 2:
        raise ValueError(f"data must have tokens in the plane, d = 2; got d = {data.d}")
    if not runs:
        raise ValueError("runs must hold at least one run")
    for name, run in runs.items():
        weights = run.history.weights
        if weights is None or len(run.history) == 0:
            raise ValueError(f"run {name!r} has no recorded weights; train it with 'weights' in keep=")
        if tuple(weights.shape[-2:]) != (data.d, data.dq) or weights.ndim > 4:
            form = f"[records, {data.d}, {data.dq}] or [records, starts, {data.d}, {data.dq}]"
            raise ValueError(f"run {name!r} must have weights {form} to fit the data; got {list(weights.shape)}")


@dataclass(frozen=True)
class _Path:
    """One path W z_i ``[records, 2]``, with its name and look."""

    points: np.ndarray
    name: str
    colour: str
    dashes: tuple[float, ...] | None


def _draw(axes: Axes, data: TokenDataset, head: object, runs: Mapping[str, Run], rays: Sequence[Ray]) -> None:
    tokens = data.tokens.repeat_interleave(data.queries_per_sequence, dim=-3).cpu().numpy()
    real = np.ones(tokens.shape[:2], dtype=bool) if data.mask is None else data.mask.cpu().numpy()
    paths = _paths(data, runs)
    walked = np.concatenate([path.points for path in paths])
    plane = DecadePlane.around(tokens[real], walked)
    ends = np.array([path.points[-1] for path in paths])
    angle = _frame(axes, plane, np.concatenate([walked, *(ray.points(ends) for ray in rays)]))
    _rings(axes, plane, walked, angle)
    draw_rays(axes, plane, rays, ends)
    for path in paths:
        _draw_path(axes, plane, path)
    scored = head is not None or data.head is not None
    scores = token_scores(data, head).cpu().numpy() if scored else np.zeros(real.shape)
    best = optimal_token_set(data, head).cpu().numpy() if scored else np.zeros_like(real)
    _draw_tokens(axes, tokens, real, scores, best)
    _name_paths(axes, plane, paths)
    _legend(axes, data, runs, paths, rays, scored)


def _paths(data: TokenDataset, runs: Mapping[str, Run]) -> list[_Path]:
    queries = data.queries.cpu().numpy()
    shared = bool((queries == queries[:1]).all())  # prompts: every input follows the same path
    found = []
    for order, (name, run) in enumerate(runs.items()):
        assert run.history.weights is not None  # checked above
        weights = run.history.weights.cpu().numpy()
        weights = weights.reshape(len(weights), -1, data.d, data.dq)
        for start in range(weights.shape[1]):
            for i, query in enumerate(queries[:1] if shared else queries):
                index = "" if shared and data.dq == 1 else r"\,z" if shared else rf"\,z_{{{i}}}"
                colour = INK if shared and data.n > 1 else colour_of(i)
                dashes = DASHES[order % len(DASHES)]
                found.append(_Path(weights[:, start] @ query, f"${name}{index}$", colour, dashes))
    return found


def _frame(axes: Axes, plane: DecadePlane, walked: np.ndarray) -> float:
    """Set the view; return an angle at which ring labels are in view and far from the ends of the paths."""
    shown = plane.shown(walked)
    margin = 0.14 * plane.radius
    low = np.minimum(shown.min(0), -plane.radius) - margin
    high = np.maximum(shown.max(0), plane.radius) + margin
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal", xticks=[], yticks=[])
    axes.spines[:].set_visible(False)

    outermost = float(np.linalg.norm(shown, axis=-1).max())
    angles = np.linspace(-np.pi, np.pi, 72, endpoint=False)
    rim = outermost * np.stack([np.cos(angles), np.sin(angles)], -1)
    visible = ((rim > low + margin) & (rim < high - margin)).all(-1)
    outside = shown[np.linalg.norm(shown, axis=-1) > plane.radius]
    taken = np.arctan2(outside[:, 1], outside[:, 0])
    turn = np.abs((angles[:, None] - taken + np.pi) % (2 * np.pi) - np.pi).min(-1, initial=np.pi)
    return float(angles[np.argmax(np.where(visible, turn, -1.0))])


def _rings(axes: Axes, plane: DecadePlane, walked: np.ndarray, angle: float) -> None:
    """The disc of true scale, and a labelled ring for each power of ten beyond it."""
    axes.add_patch(Circle((0, 0), plane.radius, facecolor=DISC, edgecolor=HAIRLINE, linewidth=0.9, zorder=0))
    for power in plane.powers(float(np.linalg.norm(walked, axis=-1).max())):
        ring = plane.distance(10.0**power)
        axes.add_patch(Circle((0, 0), ring, fill=False, edgecolor=HAIRLINE, linewidth=0.7, zorder=0))
        axes.text(
            ring * np.cos(angle), ring * np.sin(angle), f"$10^{{{power}}}$", color=FAINT, fontsize=8.5, ha="center",
            va="center", zorder=1, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2}, gid="ring",
        )  # fmt: skip
    axes.plot([0], [0], marker="+", color=FAINT, markersize=8, markeredgewidth=1.1, zorder=1)


def _draw_path(axes: Axes, plane: DecadePlane, path: _Path) -> None:
    shown = plane.shown(_refined(path.points))
    (line,) = axes.plot(shown[:, 0], shown[:, 1], color=path.colour, zorder=3, gid="path")
    if path.dashes is not None:
        line.set_dashes(path.dashes)
    before = shown[np.linalg.norm(shown - shown[-1], axis=-1) > 0.05 * plane.radius]
    if len(before):
        axes.annotate("", xy=tuple(shown[-1]), xytext=tuple(before[-1]), zorder=4, arrowprops={
            "arrowstyle": "-|>,head_width=0.28,head_length=0.55", "color": path.colour, "mutation_scale": 14,
            "linewidth": 0, "shrinkA": 0, "shrinkB": 0,
        })  # fmt: skip


def _refined(points: np.ndarray) -> np.ndarray:
    """More points on each segment, which the logarithmic scale bends."""
    share = np.linspace(0, 1, 8, endpoint=False)[:, None]
    between = [first + share * (second - first) for first, second in itertools.pairwise(points)]
    return np.concatenate([*between, points[-1:]])


def _draw_tokens(axes: Axes, tokens: np.ndarray, real: np.ndarray, scores: np.ndarray, best: np.ndarray) -> None:
    low, high = scores[real].min(), scores[real].max()
    for i, t in np.argwhere(real):
        colour, star = colour_of(i), bool(best[i, t])
        height = (scores[i, t] - low) / (high - low) if high > low else 0.5
        x, y = tokens[i, t]
        axes.scatter(
            x, y, s=330 if star else _SMALL + (_LARGE - _SMALL) * height, marker="*" if star else marker_of(i),
            color=[colour if star else tinted(colour, 0.25 + 0.65 * height)], edgecolors=INK if star else colour,
            linewidths=0.9, zorder=6 if star else 5, gid="optimal token" if star else "token",
        )  # fmt: skip


def _name_paths(axes: Axes, plane: DecadePlane, paths: Sequence[_Path]) -> None:
    """Each path's name at its end; paths that end together share one label."""
    groups: list[tuple[np.ndarray, list[str], str]] = []
    for path in paths:
        end = plane.shown(path.points[-1])
        near = [group for group in groups if np.linalg.norm(group[0] - end) < 0.12 * plane.radius]
        if not near:
            groups.append((end, [path.name], path.colour))
        elif path.name not in near[0][1]:
            near[0][1].append(path.name)
    for end, names, colour in groups:
        outward = end / (float(np.linalg.norm(end)) or 1.0)
        axes.annotate(
            ", ".join(names), xy=tuple(end), xytext=tuple(9 * outward), textcoords="offset points",
            ha="left" if outward[0] > 0.5 else "right" if outward[0] < -0.5 else "center",
            va="bottom" if outward[1] > 0.3 else "top" if outward[1] < -0.3 else "center",
            color=colour if len(names) == 1 else INK, fontsize=11.5, zorder=7, gid="path name",
        )  # fmt: skip


def _legend(
    axes: Axes, data: TokenDataset, runs: Mapping[str, Run], paths: Sequence[_Path], rays: Sequence[Ray], scored: bool
) -> None:
    def point(
        marker: str, colour: str, label: str, size: float = 8.0, face: str | tuple[float, float, float] = ""
    ) -> Line2D:
        return Line2D(
            [], [], linestyle="", marker=marker, markersize=size, markeredgecolor=colour,
            markerfacecolor=face or colour, label=label,
        )  # fmt: skip

    keys: list[Artist] = [
        point(marker_of(i), colour_of(i), f"tokens of input {i}" if data.n <= 8 or i < 7 else "and so on")
        for i in range(min(data.n, 8))
    ]
    if scored:
        keys.append(point("*", INK, "optimal token of its input", 14, "white"))
        keys.append(point("o", FAINT, "low score", _SMALL**0.5, tinted(FAINT, 0.25)))
        keys.append(point("o", FAINT, "high score", _LARGE**0.5 * 0.85, tinted(FAINT, 0.9)))
    one = paths[0].name.removesuffix("$").removeprefix(f"${next(iter(runs))}")
    for order, name in enumerate(runs):
        dashes = DASHES[order % len(DASHES)]
        line = Line2D([], [], color=INK, label=f"path of ${name}{one.replace('_{0}', '_i')}$")
        if dashes is not None:
            line.set_dashes(dashes)
        keys.append(line)
    keys += ray_keys(rays)
    keys.append(Patch(facecolor=DISC, edgecolor=HAIRLINE, label="true scale; beyond it a ring\nfor each power of ten"))
    axes.legend(
        handles=keys, loc="center left", bbox_to_anchor=(1.03, 0.5), labelspacing=0.85, handlelength=2.4,
        borderaxespad=0,
    )  # fmt: skip
