"""What changes with a parameter: the radius of a ball, the opening of a cone, the penalty of a head, the optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from attsvm.experiments.cones import KINDS
from attsvm.experiments.geometry import GEOMETRIES, Geometry
from attsvm.experiments.regularization import PATHS
from attsvm.plots.curves import Curves
from attsvm.plots.style import FAINT, INK, KQ_LINE, PALETTE, W_LINE, colour_of, new_figure, picture
from attsvm.sweep.result import SweepResult

_FLOOR = 1e-12


@picture("regularization-path", size=(12.0, 3.3), panels=(1, len(PATHS)))
def regularization(result: SweepResult, panels: Any) -> None:
    """[both papers] A panel for each path: its median and quartiles; descent against the norm of its iterates."""
    titles = ("$W$, Frobenius ball", "$(K,Q)$ ball", "$(v,p)$, tight", "$(v,p)$, relaxed", "ReLU head")
    for axes, name, title in zip(panels, PATHS, titles, strict=True):
        for source, colour, line in (("path", PALETTE[0], W_LINE), ("descent", PALETTE[1], KQ_LINE)):
            radius, low, middle, high = _distances(result, name, source)
            axes.fill_between(radius, low, high, color=colour, alpha=0.14, linewidth=0)
            axes.plot(radius, middle, color=colour, linestyle=line)
        axes.set(xscale="log", yscale="log", xlabel="$R$, or norm of the iterate", xlim=(1, None))
        axes.set_title(title, fontsize=10.5)
        _draw_rate(axes, result, name)
    panels[0].set_ylabel("1 - cosine (set distance for $(K,Q)$)")
    panels[0].text(0.05, 0.16, "path", color=PALETTE[0], transform=panels[0].transAxes)
    panels[0].text(0.05, 0.07, "gradient descent", color=PALETTE[1], transform=panels[0].transAxes)


def _draw_rate(axes: Axes, result: SweepResult, name: str) -> None:
    """A dotted line that falls as R^-1 for (K, Q) and as R^-2 otherwise, below the path's own curve."""
    exponent = -1 if name == "KQ" else -2
    radius, _, middle, _ = _distances(result, name, "path")
    anchor = float(np.interp(30.0, radius, middle))
    if anchor > _FLOOR * 10:
        reach = np.array([30.0, 1000.0])
        axes.plot(reach, 0.25 * anchor * (reach / 30.0) ** exponent, color=FAINT, linewidth=1, linestyle=":")
        below = 0.25 * anchor * 3.0**exponent / 2
        axes.text(90, below, f"$R^{{{exponent}}}$", color=FAINT, fontsize=8.5, ha="right", va="top")


def _distances(result: SweepResult, name: str, source: str) -> tuple[np.ndarray, ...]:
    """Median radius, and the quartiles of the distance, of every point."""
    points, radius, distance = (
        result.column("points", column, path=name, source=source) for column in ("point", "radius", "distance")
    )
    own = [points == each for each in np.unique(points)]
    shown = np.clip(distance, _FLOOR, None)
    quartiles = np.array([np.quantile(shown[each], (0.25, 0.5, 0.75)) for each in own])
    return np.array([np.median(radius[each]) for each in own]), *quartiles.T


@picture("cones", size=(10.6, 3.4), panels=(1, len(KINDS)), sharey=True)
def cones(result: SweepResult, panels: Any) -> None:
    """[TaSVM; talk] A panel for each kind of selection: share that returned by opening, a curve for every norm."""
    titles = ("Optimal selection", "Locally optimal", "Not locally optimal")
    openings, radii = result.configuration["openings"], result.configuration["radii"]
    for axes, kind, title in zip(panels, KINDS, titles, strict=True):
        curves = Curves(axes)
        there = len(np.unique(result.column("cells", "dataset", kind=kind)))
        for colour, radius in zip(PALETTE, radii, strict=False):
            found = [result.column("cells", "returned", kind=kind, opening=mu, radius=radius) for mu in openings]
            if not len(found[0]):
                continue
            share = np.array([np.nanmean(each) for each in found])
            error = np.array([1.96 * np.nanstd(each) / np.sqrt(len(each)) for each in found])
            low, high = np.clip((share - error, share + error), 0, 1)
            axes.fill_between(openings, low, high, color=colour, alpha=0.14, linewidth=0)
            curves.line(f"$\\|W(0)\\|={radius:g}$", openings, share, colour, marker="o", markersize=3)
        axes.set_title(f"{title} ({there} data sets)", fontsize=10.5)
        curves.label(0.08, xscale="log", xlabel=r"opening $1-\cos(W(0), W_{mm})$", ylim=(-0.03, 1.05))
    panels[0].set_ylabel("share of starts that return")


@picture("quadratic-head", size=(7.6, 3.4), panels=(1, 2))
def quadratic_head(result: SweepResult, panels: Any) -> None:
    """[TaSVM] Left: mean number of tokens kept. Right: mean probabilities by rank. Lines predicted, marks trained."""
    left, right = panels
    penalties, T = np.array(result.configuration["penalties"]), result.configuration["T"]
    inputs = result.configuration["n"] * result.configuration["datasets"]
    for column, style in (("predicted_kept", "-"), ("kept", "o")):
        counts = [result.column("tokens", column, penalty=each).sum() / inputs for each in penalties]
        left.plot(penalties, counts, style, color=PALETTE[0], markersize=5, fillstyle="none")
    left.set(xscale="log", xlabel=r"penalty $\lambda$", ylabel="tokens kept", title="More tokens are kept")
    left.set_ylim(0, T * 1.05)
    left.text(0.04, 0.95, "line: predicted\ncircles: trained", transform=left.transAxes, va="top", color=FAINT)
    curves = Curves(right)
    for place in range(T):
        predicted, trained = (
            [result.column("tokens", column, penalty=each, place=place).mean() for each in penalties]
            for column in ("predicted", "attention")
        )
        curves.line(f"rank {place + 1}", penalties, predicted, colour_of(place))
        right.plot(penalties, trained, "o", color=colour_of(place), markersize=5, fillstyle="none")
    curves.label(0.065, xscale="log", xlabel=r"penalty $\lambda$", ylabel="attention", ylim=(-0.02, 1.03),
                 title="Projection onto the simplex")  # fmt: skip


def geometry(result: SweepResult) -> Mapping[str, Figure]:
    """Two tables as heat maps, the matching entries framed. Left: mean cosine. Right: mean margin efficiency."""
    setup = GEOMETRIES[result.id].default
    figure = new_figure(10.4 if len(setup.norms()) < 7 else 12.4, 1.4 + 0.4 * len(setup.rows()), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    _draw_table(panels[0], setup.means(result, "cosine"), "Cosine to the max-margin solution", setup)
    _draw_table(panels[1], setup.means(result, "efficiency"), "Margin efficiency", setup)
    return {result.id: figure}


_SHORT = {
    "l_1.1": r"$\ell_{1.1}$", "l_1.75": r"$\ell_{1.75}$", "l_3": r"$\ell_3$", "gamma_2": r"$\gamma_2$",
    "max entry": "max\nentry", "spectral, m = 2": "spectral,\n$m = 2$",
}  # fmt: skip


def _draw_table(axes: Axes, table: np.ndarray, title: str, setup: Geometry) -> None:
    blues = LinearSegmentedColormap.from_list("attsvm", ["#FFFFFF", "#BFD9EA", PALETTE[0]])
    axes.imshow(table, cmap=blues, vmin=max(0.0, float(np.nanmin(table))), vmax=1.0, aspect="auto")
    labels, rows = list(setup.norms()), setup.rows()
    matches = [row.match for row in rows.values()]
    for (row, column), value in np.ndenumerate(table):
        weight = "bold" if int(np.nanargmax(table[row])) == column else "normal"
        colour = "white" if value > 0.85 else INK
        axes.text(column, row, f"{value:.3f}", ha="center", va="center", fontsize=9, fontweight=weight, color=colour)
        if labels[column] == matches[row]:
            corner = (column - 0.47, row - 0.46)
            axes.add_patch(Rectangle(corner, 0.94, 0.92, fill=False, edgecolor=PALETTE[1], linewidth=2))
    axes.set_xticks(range(len(labels)), [_SHORT.get(label, label) for label in labels])
    axes.set_yticks(range(len(rows)), [name.replace("(K, Q)", "$(K,Q)$").replace("W ", "$W$ ") for name in rows])
    axes.set(xlabel="norm of the SVM", title=title)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
