"""[TaSVM, separating lines] W and (K, Q) in planes of their own, each with the lines by which it separates."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.artist import Artist
from matplotlib.figure import Figure

from attsvm.experiments import ExperimentResult
from attsvm.plots.figures.plane_runs import NAMES, draw_all_datasets, scene
from attsvm.plots.style import new_figure


def draw_hyperplanes(result: ExperimentResult) -> Mapping[str, Figure]:
    """Two planes of the chosen data set, and all others beside them."""
    figure = new_figure(10.6, 4.6, layout="constrained")
    *planes, curves = figure.subplots(1, 3, width_ratios=(1, 1, 0.85))
    keys: dict[str, Artist] = {}
    for axes, kind in zip(planes, NAMES, strict=True):
        drawn = scene(result, (kind,), separated=True)
        drawn.draw(axes, scale=0.72)
        axes.set_anchor("N")
        axes.set_title(f"${NAMES[kind]}$", fontsize=10.5, pad=12)
        keys |= {str(key.get_label()): key for key in drawn.legend()}
    draw_all_datasets(curves, result)
    figure.legend(handles=list(keys.values()), loc="outside lower center", ncols=4, handlelength=2.4, fontsize=8.5)
    return {"hyperplanes": figure}
