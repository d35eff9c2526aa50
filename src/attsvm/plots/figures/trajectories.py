"""[TaSVM, trajectories] W z_i solid, K Q^T z_i dashed, on their way to the Frobenius and the nuclear rays."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from attsvm.experiments import ExperimentResult
from attsvm.plots.figures.plane_runs import draw_all_datasets, scene
from attsvm.plots.style import new_figure


def draw_trajectories(result: ExperimentResult) -> Mapping[str, Figure]:
    """The plane of the chosen data set, and all others beside it."""
    figure = new_figure(10.2, 5.0, layout="constrained")
    plane, curves = figure.subplots(1, 2, width_ratios=(1.35, 1))
    drawn = scene(result, ("W", "KQ"))
    drawn.draw(plane, scale=0.85)
    plane.set_title("Each parameterization finds its own rays", fontsize=10.5, pad=16)
    draw_all_datasets(curves, result)
    figure.legend(handles=drawn.legend(), loc="outside lower center", ncols=4, handlelength=2.4, fontsize=8.5)
    return {"trajectories": figure}
