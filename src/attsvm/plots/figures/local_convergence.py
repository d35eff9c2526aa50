"""[TaSVM, local convergence] probability, cosines along the paper's run, and what the public ridge does."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from attsvm.experiments import ExperimentResult
from attsvm.plots.curves import KQ_LINE, W_LINE, band, label_ends, series
from attsvm.plots.style import PALETTE, new_figure

_FROBENIUS, _NUCLEAR = PALETTE[0], PALETTE[1]


def draw_local_convergence(result: ExperimentResult) -> Mapping[str, Figure]:
    """Three panels: attention on the selected token, cosines to both SVMs, 1 - cosine of the long runs."""
    figure = new_figure(10.6, 3.5, layout="constrained")
    first, second, third = figure.subplots(1, 3)

    for kind, line, colour in (("W", W_LINE, PALETTE[2]), ("KQ", KQ_LINE, PALETTE[3])):
        steps, values = _curves(result, "mean_probability", kind)
        band(first, steps, values, colour=colour, line=line)
    first.set(xlabel="step", ylabel="attention on the selected token", ylim=(0, 1.02), title="Attention saturates")
    label_ends(first, [("$W$", 1.0, PALETTE[2]), ("$KQ^{\\mathsf{T}}$", 0.9, PALETTE[3])])

    ends = []
    for kind, line in (("W", W_LINE), ("KQ", KQ_LINE)):
        for norm, colour in (("frobenius", _FROBENIUS), ("nuclear", _NUCLEAR)):
            steps, values = _curves(result, f"cosine_{norm}", kind)
            middle = band(second, steps, values, colour=colour, line=line, centre="mean")
            name = "$W$" if kind == "W" else "$KQ^{\\mathsf{T}}$"
            ends.append((f"{name}, {'Frobenius' if norm == 'frobenius' else 'nuclear'}", float(middle[-1]), colour))
    second.set(xlabel="step", ylabel="cosine to the SVM", ylim=(0.4, 1.01), title="Each finds its own SVM")
    label_ends(second, ends, least=0.07)

    ends = []
    runs = (
        ("W", 0.0, "frobenius", W_LINE, _FROBENIUS, "$W$"),
        ("KQ", 0.0, "nuclear", KQ_LINE, _NUCLEAR, "$KQ^{\\mathsf{T}}$"),
        ("KQ", _ridge(result), "nuclear", (0, (1.2, 1.4)), PALETTE[3], "$KQ^{\\mathsf{T}}$, ridge"),
    )
    for kind, ridge, norm, line, colour, name in runs:
        steps, values = _curves(result, f"cosine_{norm}", kind, run="long", ridge=ridge)
        keep = steps > 0
        middle = band(third, steps[keep], 1 - values[:, keep], colour=colour, line=line)
        ends.append((name, float(middle[-1]), colour))
    third.set(xscale="log", yscale="log", xlabel="step", ylabel="1 - cosine to its own SVM", title="Followed further")
    label_ends(third, ends, least=0.07)
    return {"local-convergence": figure}


def _ridge(result: ExperimentResult) -> float:
    return float(result.tables["history"]["ridge"].to_numpy().max())


def _curves(
    result: ExperimentResult, column: str, kind: str, run: str = "paper", ridge: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Recorded steps, and the column as ``[data sets, steps]``."""
    return series(result, column, ["dataset"], parameterization=kind, run=run, ridge=ridge)
