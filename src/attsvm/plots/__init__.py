"""Pictures of stored results; nothing is computed here, nothing is shown on a screen."""

from attsvm.plots.priority_graph import plot_priority_graph
from attsvm.plots.runs import plot_attention, plot_cosines, plot_margins, plot_path
from attsvm.plots.style import PALETTE, house_style
from attsvm.plots.trajectories import plot_trajectory_2d

__all__ = [
    "PALETTE",
    "house_style",
    "plot_attention",
    "plot_cosines",
    "plot_margins",
    "plot_path",
    "plot_priority_graph",
    "plot_trajectory_2d",
]
