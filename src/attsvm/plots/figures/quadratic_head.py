"""[TaSVM, nonlinear heads] tokens kept and their probabilities against lambda, trained and predicted."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from attsvm.experiments import ExperimentResult
from attsvm.plots.curves import label_ends
from attsvm.plots.style import FAINT, PALETTE, new_figure


def draw_quadratic_head(result: ExperimentResult) -> Mapping[str, Figure]:
    """Left: mean number of tokens kept. Right: mean probabilities by rank. Lines predicted, marks trained."""
    penalties = np.array(result.configuration["penalties"])
    inputs = result.configuration["n"] * result.configuration["datasets"]
    figure = new_figure(7.6, 3.4, layout="constrained")
    left, right = figure.subplots(1, 2)
    for column, style in (("predicted_kept", "-"), ("kept", "o")):
        counts = [result.column("tokens", column, penalty=each).sum() / inputs for each in penalties]
        left.plot(penalties, counts, style, color=PALETTE[0], markersize=5, fillstyle="none")
    left.set(xscale="log", xlabel=r"penalty $\lambda$", ylabel="tokens kept", title="More tokens are kept")
    left.set_ylim(0, result.configuration["T"] * 1.05)
    left.text(0.04, 0.95, "line: predicted\ncircles: trained", transform=left.transAxes, va="top", color=FAINT)
    ends = []
    for place in range(result.configuration["T"]):
        means = {
            column: [result.column("tokens", column, penalty=each, place=place).mean() for each in penalties]
            for column in ("predicted", "attention")
        }
        colour = PALETTE[place % len(PALETTE)]
        right.plot(penalties, means["predicted"], color=colour)
        right.plot(penalties, means["attention"], "o", color=colour, markersize=5, fillstyle="none")
        ends.append((f"rank {place + 1}", float(means["predicted"][-1]), colour))
    right.set(xscale="log", xlabel=r"penalty $\lambda$", ylabel="attention", ylim=(-0.02, 1.03))
    right.set_title("Projection onto the simplex")
    label_ends(right, ends, least=0.065)
    return {"quadratic-head": figure}
