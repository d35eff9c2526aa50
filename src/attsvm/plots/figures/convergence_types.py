"""[TaSVM, over-parameterization] where runs end, as bars over d, and how often all tokens support the SVM."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from attsvm.experiments import ExperimentResult
from attsvm.experiments.convergence_types import TYPES
from attsvm.plots.curves import draw_shares, label_ends
from attsvm.plots.style import PALETTE, new_figure

_COLOURS = dict(zip(TYPES, (PALETTE[0], PALETTE[5], PALETTE[1], "#C9C9C9"), strict=True))


def draw_convergence_types(result: ExperimentResult) -> Mapping[str, Figure]:
    """Stacked bars for both starts, and the shares of global runs and of B1 with 95 % intervals."""
    dimensions = result.configuration["dimensions"]
    figure = new_figure(10.6, 3.7, layout="constrained")
    panels = figure.subplots(1, 3, width_ratios=(1, 1, 1.05))
    places = np.arange(len(dimensions))
    for axes, start in zip(panels[:2], ("zero", "random"), strict=True):
        bottom = np.zeros(len(dimensions))
        for kind in TYPES:
            share = np.array([(result.column("runs", "type", d=d, start=start) == kind).mean() for d in dimensions])
            axes.bar(places, share, 0.78, bottom=bottom, color=_COLOURS[kind], linewidth=0, label=kind)
            bottom += share
        axes.set_xticks(places, [str(d) for d in dimensions], rotation=60, fontsize=8)
        title = "$W(0) = 0$" if start == "zero" else "$W(0)$ random"
        axes.set(xlabel="dimension $d$", ylabel="share of runs", ylim=(0, 1), title=title)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=4, fontsize=8.5, handlelength=1.0)

    axes = panels[2]
    ends = []
    series = (
        ("global, $W(0)=0$", lambda d: result.column("runs", "type", d=d, start="zero") == TYPES[0], PALETTE[0]),
        ("B1, optimal SVM", lambda d: result.column("runs", "all_support", d=d, start="zero"), PALETTE[2]),
        ("B1, every SVM", lambda d: _asked(result, d), PALETTE[3]),
    )
    for name, found, colour in series:
        share = draw_shares(axes, dimensions, [found(d) for d in dimensions], colour=colour)
        ends.append((name, float(share[-1]), colour))
    axes.set(xscale="log", xlabel="dimension $d$", ylabel="share of data sets", ylim=(-0.03, 1.05))
    axes.set_title("All tokens support")
    axes.set_xticks([2, 10, 20, 84, 320], ["2", "10", "20", "84", "320"])
    axes.minorticks_off()
    label_ends(axes, ends, least=0.08)
    return {"convergence-types": figure}


def _asked(result: ExperimentResult, d: int) -> np.ndarray:
    found = result.column("runs", "all_support_everywhere", d=d, start="zero")
    return found[~np.isnan(found)]
