"""What optimizers do to K and Q: growth, weight decay, heads in one matrix."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attsvm.experiments.factor_laws import RULES
from attsvm.experiments.fused_heads import STORED
from attsvm.plots.curves import band, label_ends, series
from attsvm.plots.style import FAINT, HAIRLINE, INK, KQ_LINE, NAIVE_LINE, W_LINE, colour_of, marker_of, new_figure
from attsvm.sweep.result import SweepResult

_NAMES = {"gradient each": "gradient, each", "gradient joint": "gradient, joint"}


def draw_logit_growth(result: SweepResult) -> Mapping[str, Figure]:
    """Left: the gap of Muon, with its law, with decay, and with constant steps. Right: gaps over their laws."""
    figure = new_figure(10.6, 3.9, layout="constrained")
    left, right = figure.subplots(1, 2)
    labels: list[tuple[str, float, str]] = []
    for kind, name, line in (("falling", "steps $\\propto t^{-1/2}$", W_LINE), ("constant", "constant", KQ_LINE),
                             ("decayed", "with decay", NAIVE_LINE)):  # fmt: skip
        steps, gaps = series(result, "gap", ("dataset", "step"), rule="Muon", steps=kind)
        _, laws = series(result, "law", ("dataset", "step"), rule="Muon", steps=kind)
        colour = colour_of(len(labels))
        middle = band(left, steps, np.where(gaps > 0, gaps, np.nan), colour=colour, line=line)
        left.plot(steps, np.median(laws, 0), color=FAINT, linewidth=1, zorder=0)
        labels.append((name, float(middle[-1]), colour))
    left.set(xscale="log", yscale="log", xlabel="step", title="Gap under Muon, and its law (grey)", ylim=(0.1, None))
    left.margins(x=0)
    label_ends(left, labels)
    ends = []
    right.axhspan(0.95, 1.05, color=HAIRLINE, alpha=0.6, linewidth=0)
    for place, rule in enumerate(RULES):
        steps, gaps = series(result, "gap", ("dataset", "step"), rule=rule, steps="falling")
        _, laws = series(result, "law", ("dataset", "step"), rule=rule, steps="falling")
        middle = np.median(gaps / laws, 0)
        right.plot(steps, middle, color=colour_of(place))
        ends.append((_NAMES.get(rule, rule), float(middle[-1]), colour_of(place)))
    right.set(xscale="log", xlabel="step", ylim=(0, 1.25), title="Gap over its law, median")
    right.margins(x=0)
    label_ends(right, ends)
    return {"logit-growth": figure}


def draw_weight_decay(result: SweepResult) -> Mapping[str, Figure]:
    """Left: median risk where training ends, on the path of its ball. Right: how far from stationary."""
    figure = new_figure(10.6, 3.9, layout="constrained")
    left, right = figure.subplots(1, 2)
    radii = np.unique(result.column("points", "radius"))
    risks, ends = [], []
    for place, rule in enumerate(RULES):
        found = {
            name: np.stack([result.column("points", name, rule=rule, radius=radius) for radius in radii])
            for name in ("risk", "path_risk", "gap")
        }
        look, name = {"color": colour_of(place), "marker": marker_of(place)}, _NAMES.get(rule, rule)
        left.plot(radii, np.median(found["risk"], 1), linestyle="none", **look)
        left.plot(radii, np.median(found["path_risk"], 1), color=colour_of(place), linewidth=1)
        risks.append((name, float(np.median(found["risk"], 1)[-1]), colour_of(place)))
        gap = np.maximum(found["gap"], 1e-16)
        right.plot(radii, np.median(gap, 1), color=colour_of(place))
        right.plot(radii, gap.max(1), linestyle="none", **look)
        ends.append((name, float(np.median(gap, 1)[-1]), colour_of(place)))
    left.set(xscale="log", xlabel="$R$ that the decay names", title="Risk after training, and on the path (line)")
    right.set(xscale="log", yscale="log", xlabel="$R$", title="Frank-Wolfe gap, median and largest")
    for axes, labels in ((left, risks), (right, ends)):
        axes.set_xticks(radii, [f"{radius:g}" for radius in radii], minor=False)
        axes.minorticks_off()
        label_ends(axes, labels)
    return {"weight-decay": figure}


def draw_fused_heads(result: SweepResult) -> Mapping[str, Figure]:
    """Two panels with the gaps of the heads of one data set, and the efficiency of each way in each norm."""
    heads, last = result.configuration["heads"], result.configuration["steps"]
    price = result.column("history", "price", stored="fused", step=last, head=0)
    chosen = result.column("history", "dataset", stored="fused", step=last, head=0)[int(np.nanargmax(price))]
    figure = new_figure(11.4, 3.7, layout="constrained")
    panels = figure.subplots(1, 3, gridspec_kw={"width_ratios": [1, 1, 0.8]})
    for axes, stored in zip(panels, STORED, strict=False):
        for head in range(heads):
            where = {"stored": stored, "dataset": chosen, "head": head}
            steps, gap, law = (result.column("history", name, **where) for name in ("step", "gap", "law"))
            axes.plot(steps, np.where(gap > 0, gap, np.nan), color=colour_of(head), label=f"head {head + 1}")
            axes.plot(steps, law, color=colour_of(head) if stored != "fused" else FAINT, linewidth=1, linestyle=KQ_LINE)
        axes.set(xscale="log", yscale="log", xlabel="step", title=f"Gaps, Muon {stored}")
        axes.legend(loc="upper left")
    top = max(axes.get_ylim()[1] for axes in panels[:2])
    for axes in panels[:2]:
        axes.set_ylim(0.1, top)
    _efficiencies(panels[2], result, last)
    return {"fused-heads": figure}


def _efficiencies(axes: Axes, result: SweepResult, last: int) -> None:
    columns = ("efficiency_fused", "efficiency_per_head")
    table = np.array([
        [result.column("history", name, stored=stored, step=last, head=0).mean() for name in columns]
        for stored in STORED
    ])  # fmt: skip
    axes.imshow(table, cmap="Blues", vmin=0, vmax=1.3, aspect="auto")
    for row in range(2):
        for column in range(2):
            value, weight = table[row, column], "bold" if row == column else "normal"
            colour = "white" if value > 0.8 else INK
            axes.text(column, row, f"{value:.3f}", ha="center", va="center", color=colour, fontweight=weight)
    axes.set_xticks(range(2), ["fused norm", "per-head norm"])
    axes.set_yticks(range(2), STORED)
    axes.set(title="Margin efficiency")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
