"""Pictures of stored results; nothing is computed here, nothing is shown on a screen."""

from attsvm.plots.style import PALETTE, house_style
from attsvm.plots.trajectories import plot_trajectory_2d

__all__ = ["PALETTE", "house_style", "plot_trajectory_2d"]
