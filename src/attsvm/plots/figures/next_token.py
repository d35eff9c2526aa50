"""Next-token prediction: directions and finite parts while the norm grows, clashes by dimension."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from attsvm.experiments.next_token import COSINE, DISTANCE
from attsvm.plots.curves import Curves
from attsvm.plots.style import FAINT, HAIRLINE, KQ_LINE, NAIVE_LINE, PALETTE, W_LINE, picture
from attsvm.sweep.result import SweepResult

_RUNS = {
    "split": ("split", PALETTE[0], W_LINE),
    "summed first": ("summed\nfirst", PALETTE[1], KQ_LINE),
    "plain": ("plain", PALETTE[2], NAIVE_LINE),
}
_DOTTED: dict[str, Any] = {"color": FAINT, "linewidth": 0.9, "linestyle": ":"}


@picture("next-token-acyclic", "next-token-cyclic", size=(10.6, 3.5), panels=(1, 3))
def random_samples(result: SweepResult, panels: Any) -> None:
    """Left: growth. Middle: directions outside S_fin. Right: distances inside, or the cosine of every data set."""
    growth, direction, last = panels
    _draw_runs(growth, result, "growth", r"$\Vert W_{\perp}\Vert\,/\,\Vert W_{svm}\Vert$", "Outside $S_{fin}$ it grows")
    _draw_runs(direction, result, "cosine", "1 - cosine to $W_{svm}$", "and turns to $W_{svm}$")
    direction.axhline(1 - COSINE, **_DOTTED)
    if bool((result.column("runs", "finite_dimension") > 0).any()):
        label, title = "distance over $1+\\Vert W_{fin}\\Vert$", "Inside it tends to $W_{fin}$"
        _draw_runs(last, result, "finite_distance", label, title)
        last.axhline(DISTANCE, **_DOTTED)
    else:
        _draw_shapes(last, result)


def _draw_runs(axes: Axes, result: SweepResult, column: str, label: str, title: str) -> None:
    """Medians over all data sets without a clash, with bands from 5 to 95 %."""
    steps, curves = np.unique(result.column("runs", "step")), Curves(axes)
    steps = steps[steps > 0]
    for gradient, (name, colour, line) in _RUNS.items():
        found = [result.column("runs", column, gradient=gradient, step=step, feasible=True) for step in steps]
        values = np.stack(found, 1)
        shown = np.clip(1 - values if column == "cosine" else values, 1e-16, None)
        low, middle, high = np.nanquantile(shown, (0.05, 0.5, 0.95), axis=0)
        curves.between(name, steps, low, high, middle, colour, linestyle=line)
    curves.label(0.11, xscale="log", yscale="log", xlabel="step", ylabel=label, title=title)


def _draw_shapes(axes: Axes, result: SweepResult) -> None:
    """The split run's last 1 - cosine, every data set of every shape."""
    last, names = result.configuration["steps"], []
    for place, (K, d, n, T) in enumerate(result.configuration["shapes"]):
        found = result.column("runs", "cosine", gradient="split", step=last, K=K, d=d, n=n, T=T, feasible=True)
        spread = place + np.linspace(-0.32, 0.32, max(len(found), 1))[: len(found)]
        axes.plot(spread, np.sort(np.clip(1 - found, 1e-16, None)), ".", color=PALETTE[place], markersize=3)
        names.append(f"$K={K}$\n$d={d}$")
    axes.axhline(1 - COSINE, **_DOTTED)
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.set(yscale="log", ylabel="1 - cosine to $W_{svm}$", title="All data sets, split")


@picture("next-token-text", size=(10.6, 3.4), panels=(1, 3), width_ratios=(1, 1, 0.95))
def text(result: SweepResult, panels: Any) -> None:
    """Left: how often nothing clashes. Middle: relations in the proofs. Right: trained against predicted answers."""
    shares, sizes, answers = panels
    dimensions, size = result.configuration["dimensions"], int(result.column("texts", "K")[0])
    feasible = [result.column("texts", "feasible", d=d) for d in dimensions]
    Curves(shares).shares("", dimensions, feasible, PALETTE[0])
    shares.axvline(size, **_DOTTED)
    shares.text(size, 0.04, "$d=K$ ", color=FAINT, ha="right", fontsize=8.5)
    shares.set(xlabel="dimension $d$", ylabel="share of draws", ylim=(-0.03, 1.05), title="No relations clash")
    clash, d = (result.column("texts", name, infeasible=True) for name in ("clash", "d"))
    line, dots = np.array([0, max(dimensions)]), {"markersize": 4.5, "alpha": 0.6, "markeredgewidth": 0}
    sizes.plot(line, line + 1, **_DOTTED)
    sizes.plot(d, clash, "o", color=PALETTE[1], **dots)
    sizes.text(line[1], line[1] + 1, "$d+1$ ", color=FAINT, ha="right", va="bottom", fontsize=8.5)
    sizes.set(xlabel="dimension $d$", ylabel="relations in the proof", ylim=(0, None), title="Relations that clash")
    _, kinds, predicted, trained = result.arrays["answers"].T
    answers.plot([0, 1], [0, 1], color=HAIRLINE, linewidth=1, zorder=0)
    for kind, marker, colour, name in (
        (2, "^", HAIRLINE, "left open"), (1, "s", PALETTE[1], "by $W_{svm}$"), (0, "o", PALETTE[0], "by the graph"),
    ):  # fmt: skip
        own = kinds == kind
        answers.plot(predicted[own], trained[own], marker, color=colour, label=name, **dots)
    answers.set(xlabel="predicted probability", ylabel="attention after training", title="Answers to fresh windows")
    answers.legend(fontsize=8.5, handletextpad=0.2, loc="lower right", bbox_to_anchor=(1.0, 0.05))
