"""[TaSVM, local convergence; talk] share of starts that return, by opening and norm."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from attsvm.experiments import ExperimentResult
from attsvm.experiments.cones import KINDS
from attsvm.plots.curves import label_ends
from attsvm.plots.style import PALETTE, new_figure

_TITLES = {"global": "Optimal selection", "local": "Locally optimal", "not local": "Not locally optimal"}


def draw_cones(result: ExperimentResult) -> Mapping[str, Figure]:
    """One panel a kind of selection: share that returned against the opening, a curve for every norm."""
    figure = new_figure(10.6, 3.4, layout="constrained")
    openings, radii = result.configuration["openings"], result.configuration["radii"]
    panels = figure.subplots(1, len(KINDS), sharey=True)
    for axes, kind in zip(panels, KINDS, strict=True):
        ends = []
        there = len(np.unique(result.column("cells", "dataset", kind=kind)))
        for place, radius in enumerate(radii):
            found = [result.column("cells", "returned", kind=kind, opening=mu, radius=radius) for mu in openings]
            if not len(found[0]):
                continue
            share = np.array([np.nanmean(each) for each in found])
            error = np.array([1.96 * np.nanstd(each) / np.sqrt(len(each)) for each in found])
            axes.fill_between(openings, np.clip(share - error, 0, 1), np.clip(share + error, 0, 1),
                              color=PALETTE[place], alpha=0.14, linewidth=0)  # fmt: skip
            axes.plot(openings, share, color=PALETTE[place], marker="o", markersize=3)
            ends.append((f"$\\|W(0)\\|={radius:g}$", float(share[-1]), PALETTE[place]))
        axes.set(xscale="log", xlabel=r"opening $1-\cos(W(0), W_{mm})$", ylim=(-0.03, 1.05))
        axes.set_title(f"{_TITLES[kind]} ({there} data sets)", fontsize=10.5)
        label_ends(axes, ends, least=0.08)
    panels[0].set_ylabel("share of starts that return")
    return {"cones": figure}
