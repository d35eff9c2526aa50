"""What changes with a parameter (radius of a ball, opening of a cone, penalty of a head) and with the optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from attsvm.experiments.cones import KINDS
from attsvm.experiments.factor_laws import RULES
from attsvm.experiments.fused_heads import STORED
from attsvm.experiments.geometry import GEOMETRIES
from attsvm.experiments.regularization import PATHS
from attsvm.plots import style
from attsvm.plots.curves import Curves, series
from attsvm.plots.style import FAINT, INK, KQ_LINE, NAIVE_LINE, PALETTE, W_LINE, colour_of, new_figure, picture
from attsvm.sweep.result import SweepResult

_FLOOR = 1e-12
_NAMES = {"gradient each": "gradient, each", "gradient joint": "gradient, joint"}


@picture("regularization-path", size=(12.0, 3.3), panels=(1, len(PATHS)))
def regularization(result: SweepResult, panels: Any) -> None:
    """[both papers] A panel for each path: its median and quartiles; descent against the norm of its iterates."""
    titles = ("$W$, Frobenius ball", "$(K,Q)$ ball", "$(v,p)$, tight", "$(v,p)$, relaxed", "ReLU head")
    for axes, name, title in zip(panels, PATHS, titles, strict=True):
        for source, colour, line in (("path", PALETTE[0], W_LINE), ("descent", PALETTE[1], KQ_LINE)):
            Curves(axes).between("", colour, *_distances(result, name, source), linestyle=line)
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
    quartiles = np.array([np.quantile(np.clip(distance[each], _FLOOR, None), (0.25, 0.5, 0.75)) for each in own])
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
            curves.between(f"$\\|W(0)\\|={radius:g}$", colour, openings, low, share, high, marker="o", markersize=3)
        axes.set_title(f"{title} ({there} data sets)", fontsize=10.5)
        curves.label(0.08, xscale="log", xlabel=r"opening $1-\cos(W(0), W_{mm})$", ylim=(-0.03, 1.05))
    panels[0].set_ylabel("share of starts that return")


@picture("quadratic-head", size=(7.6, 3.4), panels=(1, 2))
def quadratic_head(result: SweepResult, panels: Any) -> None:
    """[TaSVM] Left: mean number of tokens kept. Right: mean probabilities by rank. Lines predicted, marks trained."""
    left, right = panels
    penalties, T = np.array(result.configuration["penalties"]), result.configuration["T"]
    inputs = result.configuration["n"] * result.configuration["datasets"]
    for column, look in (("predicted_kept", "-"), ("kept", "o")):
        counts = [result.column("tokens", column, penalty=each).sum() / inputs for each in penalties]
        left.plot(penalties, counts, look, color=PALETTE[0], markersize=5, fillstyle="none")
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
    norms, rows = list(setup.norms()), setup.rows()
    figure = new_figure(10.4 if len(norms) < 7 else 12.4, 1.4 + 0.4 * len(rows), layout="constrained")
    blues = LinearSegmentedColormap.from_list("attsvm", ["#FFFFFF", "#BFD9EA", PALETTE[0]])
    names = [name.replace("(K, Q)", "$(K,Q)$").replace("W ", "$W$ ") for name in rows]
    titles = {"cosine": "Cosine to the max-margin solution", "efficiency": "Margin efficiency"}
    for axes, (column, title) in zip(figure.subplots(1, 2, sharey=True), titles.items(), strict=True):
        table = setup.means(result, column)
        axes.imshow(table, cmap=blues, vmin=max(0.0, float(np.nanmin(table))), vmax=1.0, aspect="auto")
        labels = [_SHORT.get(norm, norm) for norm in norms]
        _write_table(axes, table, names, labels, np.nanargmax(table, 1), 0.85, fontsize=9)
        for place, row in enumerate(rows.values()):
            if row.match in norms:
                corner = (norms.index(row.match) - 0.47, place - 0.46)
                axes.add_patch(Rectangle(corner, 0.94, 0.92, fill=False, edgecolor=PALETTE[1], linewidth=2))
        axes.set(xlabel="norm of the SVM", title=title)
    return {result.id: figure}


_SHORT = {
    "l_1.1": r"$\ell_{1.1}$", "l_1.75": r"$\ell_{1.75}$", "l_3": r"$\ell_3$", "gamma_2": r"$\gamma_2$",
    "max entry": "max\nentry", "spectral, m = 2": "spectral,\n$m = 2$",
}  # fmt: skip


def _write_table(
    axes: Axes, table: np.ndarray, rows: Sequence[str], columns: Sequence[str], bold: Any, dark: float, **look: Any
) -> None:
    """Numbers on a heat map, in white above `dark`; `bold` is the column of each row whose number stands out."""
    for (row, column), value in np.ndenumerate(table):
        weight, colour = "bold" if bold[row] == column else "normal", "white" if value > dark else INK
        axes.text(column, row, f"{value:.3f}", ha="center", va="center", fontweight=weight, color=colour, **look)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


@picture("logit-growth", size=(10.6, 3.9), panels=(1, 2))
def logit_growth(result: SweepResult, panels: Any) -> None:
    """Left: the gap of Muon, with its law, with decay, and with constant steps. Right: gaps over their laws."""
    left, right = map(Curves, panels)

    def found(rule: str, kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Steps, gaps, laws."""
        steps, gaps = series(result, "gap", ("dataset", "step"), rule=rule, steps=kind)
        return steps, gaps, series(result, "law", ("dataset", "step"), rule=rule, steps=kind)[1]

    for place, (kind, name, line) in enumerate((
        ("falling", "steps $\\propto t^{-1/2}$", W_LINE), ("constant", "constant", KQ_LINE),
        ("decayed", "with decay", NAIVE_LINE),
    )):  # fmt: skip
        steps, gaps, laws = found("Muon", kind)
        left.band(name, steps, np.where(gaps > 0, gaps, np.nan), colour_of(place), line=line)
        left.axes.plot(steps, np.median(laws, 0), color=FAINT, linewidth=1, zorder=0)
    right.axes.axhspan(0.95, 1.05, color=style.HAIRLINE, alpha=0.6, linewidth=0)
    for place, rule in enumerate(RULES):
        steps, gaps, laws = found(rule, "falling")
        right.line(_NAMES.get(rule, rule), steps, np.median(gaps / laws, 0), colour_of(place))
    left.axes.set(xscale="log", yscale="log", ylim=(0.1, None), title="Gap under Muon, and its law (grey)")
    right.axes.set(xscale="log", ylim=(0, 1.25), title="Gap over its law, median")
    for curves in (left, right):
        curves.axes.margins(x=0)
        curves.label(xlabel="step")


@picture("weight-decay", size=(10.6, 3.9), panels=(1, 2))
def weight_decay(result: SweepResult, panels: Any) -> None:
    """Left: median risk where training ends, on the path of its ball. Right: how far from stationary."""
    left, right = map(Curves, panels)
    radii = np.unique(result.column("points", "radius"))
    for place, rule in enumerate(RULES):
        risk, path_risk, gap = (
            np.stack([result.column("points", name, rule=rule, radius=radius) for radius in radii])
            for name in ("risk", "path_risk", "gap")
        )
        colour, name, gap = colour_of(place), _NAMES.get(rule, rule), np.maximum(gap, 1e-16)
        marks: dict[str, Any] = {"marker": style.marker_of(place), "linestyle": "none"}
        left.line(name, radii, np.median(risk, 1), colour, **marks)
        left.axes.plot(radii, np.median(path_risk, 1), color=colour, linewidth=1)
        right.line(name, radii, np.median(gap, 1), colour)
        right.axes.plot(radii, gap.max(1), color=colour, **marks)
    left.axes.set(xlabel="$R$ that the decay names", title="Risk after training, and on the path (line)")
    right.axes.set(yscale="log", xlabel="$R$", title="Frank-Wolfe gap, median and largest")
    for curves in (left, right):
        curves.axes.set(xscale="log")
        curves.axes.set_xticks(radii, [f"{radius:g}" for radius in radii], minor=False)
        curves.axes.minorticks_off()
        curves.label()


@picture("fused-heads", size=(11.4, 3.7), panels=(1, 3), width_ratios=[1, 1, 0.8])
def fused_heads(result: SweepResult, panels: Any) -> None:
    """Two panels with the gaps of the heads of one data set, and the efficiency of each way in each norm."""
    *gaps, axes = panels
    end = {"step": result.configuration["steps"], "head": 0}
    price, datasets = (result.column("history", name, stored="fused", **end) for name in ("price", "dataset"))
    for panel, stored in zip(gaps, STORED, strict=True):
        for head in range(result.configuration["heads"]):
            where = {"stored": stored, "dataset": datasets[int(np.nanargmax(price))], "head": head}
            steps, gap, law = (result.column("history", name, **where) for name in ("step", "gap", "law"))
            colour = colour_of(head)
            panel.plot(steps, np.where(gap > 0, gap, np.nan), color=colour, label=f"head {head + 1}")
            panel.plot(steps, law, color=colour if stored != "fused" else FAINT, linewidth=1, linestyle=KQ_LINE)
        panel.set(xscale="log", yscale="log", xlabel="step", title=f"Gaps, Muon {stored}")
        panel.legend(loc="upper left")
    top = max(panel.get_ylim()[1] for panel in gaps)
    for panel in gaps:
        panel.set_ylim(0.1, top)
    columns = ("efficiency_fused", "efficiency_per_head")
    table = np.array(
        [[result.column("history", name, stored=stored, **end).mean() for name in columns] for stored in STORED]
    )
    axes.imshow(table, cmap="Blues", vmin=0, vmax=1.3, aspect="auto")
    _write_table(axes, table, STORED, ["fused norm", "per-head norm"], range(2), 0.8)
    axes.set(title="Margin efficiency")
