"""Next-token prediction: directions and finite parts while the norm grows, clashes by dimension."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attsvm.experiments.next_token import COSINE, DISTANCE
from attsvm.plots.curves import band, draw_shares, label_ends
from attsvm.plots.style import FAINT, HAIRLINE, KQ_LINE, NAIVE_LINE, PALETTE, W_LINE, new_figure
from attsvm.sweep.result import SweepResult

_RUNS = {
    "split": ("split", PALETTE[0], W_LINE),
    "summed first": ("summed\nfirst", PALETTE[1], KQ_LINE),
    "plain": ("plain", PALETTE[2], NAIVE_LINE),
}


def draw_random_samples(result: SweepResult) -> Mapping[str, Figure]:
    """Left: growth. Middle: directions outside S_fin. Right: distances inside, or the cosine of every data set."""
    figure = new_figure(10.6, 3.5, layout="constrained")
    panels = figure.subplots(1, 3)
    columns: tuple[tuple[str, str, str], ...] = (
        ("growth", r"$\Vert W_{\perp}\Vert\,/\,\Vert W_{svm}\Vert$", "Outside $S_{fin}$ it grows"),
        ("cosine", "1 - cosine to $W_{svm}$", "and turns to $W_{svm}$"),
    )
    cyclic = bool((result.column("runs", "finite_dimension") > 0).any())
    if cyclic:
        columns += (("finite_distance", "distance over $1+\\Vert W_{fin}\\Vert$", "Inside it tends to $W_{fin}$"),)
    for axes, (column, label, title) in zip(panels, columns, strict=False):
        _draw_runs(axes, result, column)
        axes.set(ylabel=label, title=title)
    bounds = {1: 1 - COSINE, 2: DISTANCE} if cyclic else {1: 1 - COSINE}
    for place, bound in bounds.items():
        panels[place].axhline(bound, color=FAINT, linewidth=0.9, linestyle=":")
    if not cyclic:
        _draw_shapes(panels[2], result)
    return {result.id: figure}


def _draw_runs(axes: Axes, result: SweepResult, column: str) -> None:
    """Medians over all data sets without a clash, with bands from 5 to 95 %."""
    steps, ends = np.unique(result.column("runs", "step")), []
    steps = steps[steps > 0]
    for gradient, (name, colour, line) in _RUNS.items():
        values = np.stack([
            result.column("runs", column, gradient=gradient, step=step, feasible=True) for step in steps
        ], 1)  # fmt: skip
        shown = np.clip(1 - values if column == "cosine" else values, 1e-16, None)
        middle = band(axes, steps, shown, colour=colour, line=line, quantiles=(0.05, 0.95))
        ends.append((name, float(middle[-1]), colour))
    axes.set(xscale="log", yscale="log", xlabel="step")
    label_ends(axes, ends, least=0.11)


def _draw_shapes(axes: Axes, result: SweepResult) -> None:
    """The split run's last 1 - cosine, every data set of every shape."""
    last, names = result.configuration["steps"], []
    for place, (K, d, n, T) in enumerate(result.configuration["shapes"]):
        found = result.column("runs", "cosine", gradient="split", step=last, K=K, d=d, n=n, T=T, feasible=True)
        spread = place + np.linspace(-0.32, 0.32, max(len(found), 1))[: len(found)]
        axes.plot(spread, np.sort(np.clip(1 - found, 1e-16, None)), ".", color=PALETTE[place], markersize=3)
        names.append(f"$K={K}$\n$d={d}$")
    axes.axhline(1 - COSINE, color=FAINT, linewidth=0.9, linestyle=":")
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.set(yscale="log", ylabel="1 - cosine to $W_{svm}$", title="All data sets, split")


def draw_text(result: SweepResult) -> Mapping[str, Figure]:
    """Left: how often nothing clashes. Middle: relations in the proofs. Right: trained against predicted answers."""
    figure = new_figure(10.6, 3.4, layout="constrained")
    shares, sizes, answers = figure.subplots(1, 3, width_ratios=(1, 1, 0.95))
    dimensions = result.configuration["dimensions"]
    size = int(result.column("texts", "K")[0])
    draw_shares(shares, dimensions, [result.column("texts", "feasible", d=d) for d in dimensions], colour=PALETTE[0])
    shares.axvline(size, color=FAINT, linewidth=0.9, linestyle=":")
    shares.text(size, 0.04, "$d=K$ ", color=FAINT, ha="right", fontsize=8.5)
    shares.set(xlabel="dimension $d$", ylabel="share of draws", ylim=(-0.03, 1.05), title="No relations clash")
    clash, d = result.column("texts", "clash", infeasible=True), result.column("texts", "d", infeasible=True)
    line = np.array([0, max(dimensions)])
    sizes.plot(line, line + 1, color=FAINT, linewidth=0.9, linestyle=":")
    sizes.plot(d, clash, "o", color=PALETTE[1], markersize=4.5, alpha=0.6, markeredgewidth=0)
    sizes.text(line[1], line[1] + 1, "$d+1$ ", color=FAINT, ha="right", va="bottom", fontsize=8.5)
    sizes.set(xlabel="dimension $d$", ylabel="relations in the proof", ylim=(0, None), title="Relations that clash")
    _, kinds, predicted, trained = result.arrays["answers"].T
    answers.plot([0, 1], [0, 1], color=HAIRLINE, linewidth=1, zorder=0)
    for kind, marker, colour, name in (
        (2, "^", HAIRLINE, "left open"), (1, "s", PALETTE[1], "by $W_{svm}$"), (0, "o", PALETTE[0], "by the graph"),
    ):  # fmt: skip
        own = kinds == kind
        answers.plot(
            predicted[own], trained[own], marker, color=colour, markersize=4.5, alpha=0.6, markeredgewidth=0, label=name
        )
    answers.set(xlabel="predicted probability", ylabel="attention after training", title="Answers to fresh windows")
    answers.legend(fontsize=8.5, handletextpad=0.2, loc="lower right", bbox_to_anchor=(1.0, 0.05))
    return {"next-token-text": figure}
