"""What optimizers do to K and Q: growth, weight decay, heads in one matrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from attsvm.experiments.factor_laws import RULES
from attsvm.experiments.fused_heads import STORED
from attsvm.plots.curves import Curves, series
from attsvm.plots.style import FAINT, HAIRLINE, INK, KQ_LINE, NAIVE_LINE, W_LINE, colour_of, marker_of, picture
from attsvm.sweep.result import SweepResult

_NAMES = {"gradient each": "gradient, each", "gradient joint": "gradient, joint"}


@picture("logit-growth", size=(10.6, 3.9), panels=(1, 2))
def logit_growth(result: SweepResult, panels: Any) -> None:
    """Left: the gap of Muon, with its law, with decay, and with constant steps. Right: gaps over their laws."""
    left, right = map(Curves, panels)

    def found(rule: str, kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Steps, gaps, laws."""
        (steps, gaps), (_, laws) = (
            series(result, name, ("dataset", "step"), rule=rule, steps=kind) for name in ("gap", "law")
        )
        return steps, gaps, laws

    for place, (kind, name, line) in enumerate((
        ("falling", "steps $\\propto t^{-1/2}$", W_LINE), ("constant", "constant", KQ_LINE),
        ("decayed", "with decay", NAIVE_LINE),
    )):  # fmt: skip
        steps, gaps, laws = found("Muon", kind)
        left.band(name, steps, np.where(gaps > 0, gaps, np.nan), colour_of(place), line=line)
        left.axes.plot(steps, np.median(laws, 0), color=FAINT, linewidth=1, zorder=0)
    right.axes.axhspan(0.95, 1.05, color=HAIRLINE, alpha=0.6, linewidth=0)
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
        marks: dict[str, Any] = {"marker": marker_of(place), "linestyle": "none"}
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
    for (row, column), value in np.ndenumerate(table):
        colour, weight = "white" if value > 0.8 else INK, "bold" if row == column else "normal"
        axes.text(column, row, f"{value:.3f}", ha="center", va="center", color=colour, fontweight=weight)
    axes.set_xticks(range(2), ["fused norm", "per-head norm"])
    axes.set_yticks(range(2), STORED)
    axes.set(title="Margin efficiency")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
