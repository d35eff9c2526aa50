"""[MMTS, gradient against normalized gradient descent] softmax probability and norm along both runs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from attsvm.experiments import ExperimentResult
from attsvm.plots.curves import label_ends, series
from attsvm.plots.style import PALETTE, new_figure

_RULES = {"normalized": ("normalized,\nstep 0.1", PALETTE[1]), "gradient": ("gradient,\nstep 1", PALETTE[0])}
_FIGURE = 200


def draw_descent_vs_normalized(result: ExperimentResult) -> Mapping[str, Figure]:
    """Three panels: probability and norm to step 200 as in the paper, and 1 - probability to the end."""
    figure = new_figure(10.4, 3.4, layout="constrained")
    first, second, third = figure.subplots(1, 3)
    for axes, column, last in (
        (first, "probability", _FIGURE), (second, "norm", _FIGURE), (third, "missing", np.inf),
    ):  # fmt: skip
        ends = []
        for rule, (name, colour) in _RULES.items():
            steps, values = series(result, column, ["dataset"], rule=rule, start=0.0)
            keep = (steps <= last) & ((steps > 0) | (axes is not third))
            shown = values[:, keep]
            low, high = np.quantile(shown, (0.1, 0.9), axis=0)
            axes.fill_between(steps[keep], low, high, color=colour, alpha=0.16, linewidth=0)
            axes.plot(steps[keep], shown[0], color=colour, gid=rule)  # the picture's own data set
            ends.append((name, float(shown[0, -1]), colour))
        axes.set_xlabel("step")
        if axes is third:
            axes.set(yscale="log", xscale="log", yticks=[1, 1e-20, 1e-40, 1e-60])
        label_ends(axes, ends, least=0.13, size=8)
    first.set(ylabel="attention on the optimal tokens", ylim=(0, 1.03))
    second.set(ylabel=r"$\Vert p\Vert$")
    third.set(ylabel="1 - attention on the optimal tokens")
    titles = ("Softmax probability", "Norm of the prompt", "Followed further")
    for axes, title in zip((first, second, third), titles, strict=True):
        axes.set_title(title, fontsize=10.5, pad=10)
    return {"descent-vs-normalized": figure}
