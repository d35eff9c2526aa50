"""[TaSVM, global convergence] favourable first gradients against d, and where the runs end."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from attsvm.experiments import ExperimentResult
from attsvm.plots.curves import draw_shares, label_ends
from attsvm.plots.style import PALETTE, new_figure


def draw_first_gradient(result: ExperimentResult) -> Mapping[str, Figure]:
    """Left: how often the first gradient is favourable. Right: how often the optimal selection is reached."""
    dimensions = result.configuration["dimensions"]
    figure = new_figure(7.6, 3.4, layout="constrained")
    left, right = figure.subplots(1, 2)
    favourable = {d: result.column("datasets", "favourable", d=d) for d in dimensions}
    groups = (
        (left, "favourable", PALETTE[0], "-", favourable),
        (right, "favourable", PALETTE[0], "-", {d: result.column("datasets", "small_optimal", d=d, favourable=True)
                                                for d in dimensions}),
        (right, "not favourable", PALETTE[1], (0, (4.0, 1.6)),
         {d: result.column("datasets", "small_optimal", d=d, favourable=False) for d in dimensions}),
    )  # fmt: skip
    ends: dict[object, list[tuple[str, float, str]]] = {left: [], right: []}
    for axes, name, colour, line, found in groups:
        enough = [d for d in dimensions if len(found[d]) >= 10]
        if not enough:
            continue
        share = draw_shares(axes, enough, [found[d] for d in enough], colour=colour, line=line)
        ends[axes].append((name, float(share[-1]), colour))
    for axes in (left, right):
        axes.set(xscale="log", xlabel="dimension $d$", ylim=(-0.03, 1.05))
        axes.set_xticks(dimensions, [str(d) for d in dimensions])
        axes.minorticks_off()
        label_ends(axes, ends[axes], least=0.08)
    left.set(ylabel="share of data sets", title="First gradient favourable")
    right.set(ylabel="share of runs from $W(0)=0$", title="Optimal selection reached")
    return {"first-gradient": figure}
