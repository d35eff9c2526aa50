"""[TaSVM, generalized SVM] distances to the three predictions, acceptance of each protocol, and the scatter."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attsvm.experiments import ExperimentResult
from attsvm.experiments.multi_token import PROTOCOLS, share_accepted, used
from attsvm.plots.curves import label_ends
from attsvm.plots.style import INK, PALETTE, new_figure

_SERIES = (
    ("distance_generalized", r"$W_{fin}+C\,W_{svm}$", PALETTE[0]),
    ("distance_svm", r"$W_{svm}$", PALETTE[1]),
    ("distance_one_token", "one token", PALETTE[2]),
)
_TITLES = {"paper": "Paper's protocol", "public constant": "With the public 1e-9", "decaying": "Decaying steps"}


def draw_multi_token(result: ExperimentResult) -> Mapping[str, Figure]:
    """Above: the three protocols. Below: what each loses, and distance against the largest masked probability."""
    figure = new_figure(10.6, 6.4, layout="constrained")
    above, below = figure.subplots(2, 3)
    for axes, protocol in zip(above, PROTOCOLS, strict=True):
        _draw_distances(axes, result, protocol)
    above[0].set_ylabel("1 - cosine to the trained $W$")
    _draw_shares(below[0], result)
    for axes, protocol in zip(below[1:], ("paper", "decaying"), strict=True):
        _draw_scatter(axes, result, protocol)
    return {"multi-token": figure}


def _draw_distances(axes: Axes, result: ExperimentResult, protocol: str) -> None:
    dimensions = result.configuration["dimensions"]
    ends = []
    for column, name, colour in _SERIES:
        found = [used(result, column, d, protocol) for d in dimensions]
        there = [place for place, values in enumerate(found) if len(values)]
        x = [dimensions[place] for place in there]
        middle = np.array([np.nanmedian(found[place]) for place in there])
        low, high = np.array([np.nanquantile(found[place], (0.25, 0.75)) for place in there]).T
        axes.fill_between(x, low, high, color=colour, alpha=0.14, linewidth=0)
        axes.plot(x, middle, color=colour, marker="o", markersize=3.5)
        mean = [np.nanmean(found[place]) for place in there]
        axes.plot(x, mean, color=colour, linestyle=":", linewidth=1.2, marker="_", markersize=7)
        ends.append((name, float(middle[-1]), colour))
    axes.set(yscale="log", xlabel="dimension $d$", ylim=(2e-4, 0.6), title=_TITLES[protocol])
    axes.set_xticks(dimensions)
    if protocol == PROTOCOLS[0]:
        words = "solid: median, quartiles\ndotted: mean"
        axes.text(0.03, 0.03, words, transform=axes.transAxes, fontsize=7.5, color=INK)
    label_ends(axes, ends, least=0.08)


def _draw_shares(axes: Axes, result: ExperimentResult) -> None:
    dimensions = result.configuration["dimensions"]
    ends = []
    for place, protocol in enumerate(PROTOCOLS):
        shares = [share_accepted(result, d, protocol) for d in dimensions]
        axes.plot(dimensions, shares, color=PALETTE[3 + place], marker="o", markersize=3.5)
        ends.append((protocol, shares[-1], PALETTE[3 + place]))
    axes.set(xlabel="dimension $d$", ylabel="share of draws accepted", ylim=(0, 1), title="What is kept")
    axes.set_xticks(dimensions)
    label_ends(axes, ends, least=0.08)


def _draw_scatter(axes: Axes, result: ExperimentResult, protocol: str) -> None:
    for place, d in enumerate(result.configuration["dimensions"]):
        masked = np.clip(used(result, "largest_masked", d, protocol), 1e-30, None)
        distance = np.clip(used(result, "distance_generalized", d, protocol), 1e-12, None)
        axes.plot(masked, distance, ".", color=PALETTE[place], markersize=3, alpha=0.5, label=f"$d={d}$")
    axes.set(xscale="log", yscale="log", xlabel="largest masked probability", title=_TITLES[protocol])
    axes.set_ylabel(r"1 - cosine to $W_{fin}+C\,W_{svm}$")
    axes.legend(fontsize=8, markerscale=3, handletextpad=0.2, loc="lower right")
