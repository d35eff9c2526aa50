"""[TaSVM, sequence output] distance to the SVM of the united constraints against steps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from attsvm.experiments import ExperimentResult
from attsvm.plots.curves import KQ_LINE, W_LINE, band, label_ends, series
from attsvm.plots.style import PALETTE, new_figure


def draw_causal(result: ExperimentResult) -> Mapping[str, Figure]:
    """Left: least attention over positions. Right: 1 - cosine of W to the Frobenius, of (K, Q) to the nuclear SVM."""
    figure = new_figure(7.6, 3.4, layout="constrained")
    left, right = figure.subplots(1, 2)
    attention, distance = [], []
    for kind, norm, line, colour in (("W", "frobenius", W_LINE, PALETTE[0]), ("KQ", "nuclear", KQ_LINE, PALETTE[1])):
        name = "$W$" if kind == "W" else "$KQ^{\\mathsf{T}}$"
        steps, least = _curves(result, "least_attention", kind)
        attention.append((name, float(band(left, steps, least, colour=colour, line=line)[-1]), colour))
        steps, cosine = _curves(result, f"cosine_{norm}", kind)
        distance.append((name, float(band(right, steps, 1 - cosine, colour=colour, line=line)[-1]), colour))
    left.set(
        xscale="log",
        xlabel="step",
        ylabel="least attention on a winner",
        ylim=(0, 1.03),
        title="Every prefix saturates",
    )
    right.set(xscale="log", yscale="log", xlabel="step", ylabel="1 - cosine to the united SVM", title="One $W$ for all")
    label_ends(left, attention, least=0.08)
    label_ends(right, distance, least=0.08)
    return {"causal": figure}


def _curves(result: ExperimentResult, column: str, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Recorded steps after the first, and the column of the separable runs as ``[data sets, steps]``."""
    steps, values = series(result, column, ["dataset"], parameterization=kind, separable=True)
    return steps[steps > 0], values[:, steps > 0]
