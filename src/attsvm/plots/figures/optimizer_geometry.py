"""Which max-margin solution each optimizer turns to: two tables as heat maps, the matching entries framed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from attsvm.experiments import ExperimentResult
from attsvm.experiments.optimizer_geometry import MATCHES, NORMS, means
from attsvm.plots.style import INK, PALETTE, new_figure

_NAMES = {"l_1.1": r"$\ell_{1.1}$", "l_1.75": r"$\ell_{1.75}$", "l_3": r"$\ell_3$"}
_MAP = LinearSegmentedColormap.from_list("attsvm", ["#FFFFFF", "#BFD9EA", PALETTE[0]])


def draw_optimizer_geometry(result: ExperimentResult) -> Mapping[str, Figure]:
    """Left: mean cosine. Right: mean margin efficiency."""
    figure = new_figure(10.4, 4.2, layout="constrained")
    panels = figure.subplots(1, 2)
    _draw_table(panels[0], means(result, "cosine"), "Cosine to the max-margin solution")
    _draw_table(panels[1], means(result, "efficiency"), "Margin efficiency")
    return {"optimizer-geometry": figure}


def _draw_table(axes: Axes, table: np.ndarray, title: str) -> None:
    axes.imshow(table, cmap=_MAP, vmin=max(0.0, float(np.nanmin(table))), vmax=1.0, aspect="auto")
    labels = list(NORMS)
    for row, match in enumerate(MATCHES.values()):
        for column, label in enumerate(labels):
            own = label == match
            wins = int(np.nanargmax(table[row])) == column
            colour = "white" if table[row, column] > 0.85 else INK
            axes.text(column, row, f"{table[row, column]:.3f}", ha="center", va="center", fontsize=9,
                      fontweight="bold" if wins else "normal", color=colour)  # fmt: skip
            if own:
                axes.add_patch(Rectangle((column - 0.47, row - 0.46), 0.94, 0.92, fill=False, edgecolor=PALETTE[1],
                                         linewidth=2))  # fmt: skip
    axes.set_xticks(range(len(labels)), [_NAMES.get(label, label) for label in labels])
    axes.set_yticks(range(len(MATCHES)), list(MATCHES))
    axes.set(xlabel="norm of the SVM", title=title)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
