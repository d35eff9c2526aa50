"""[MMTS, several inputs] six starts and the lines that separate, and how near all data sets come to their ray."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from attsvm.experiments import ExperimentResult
from attsvm.plots.curves import NAIVE_LINE, W_LINE, band, label_ends, series
from attsvm.plots.scene import Path, PlaneScene, SeparatingLine, Tokens, rays_along
from attsvm.plots.style import INK, PALETTE, colour_of, new_figure


def draw_multi_input(result: ExperimentResult) -> Mapping[str, Figure]:
    """The plane of the first data set; 1 - cosine of all data sets and starts for both gradients."""
    figure = new_figure(9.4, 4.7, layout="constrained")
    plane, curves = figure.subplots(1, 2, width_ratios=(1.25, 1))
    scene = _scene(result)
    scene.draw(plane, scale=0.78, starts=True)
    plane.set_title("One direction for all inputs", fontsize=11, pad=12)

    ends = []
    for gradient, line, colour, name in (
        ("exact", W_LINE, PALETTE[0], "exact"),
        ("naive", NAIVE_LINE, PALETTE[1], "naive,\nfloat32"),
    ):
        steps, cosines = series(result, "cosine", ["dataset", "start"], gradient=gradient)
        middle = band(curves, steps[1:], 1 - cosines[:, 1:], colour=colour, line=line)
        ends.append((name, float(middle[-1]), colour))
    datasets = len(np.unique(result.column("history", "dataset")))
    curves.set(xscale="log", yscale="log", xlabel="step", ylabel="1 - cosine to the max-margin ray")
    title = "1 data set, six starts" if datasets == 1 else f"{datasets} data sets, six starts each"
    curves.set_title(title, fontsize=11, pad=12)
    label_ends(curves, ends)
    figure.legend(handles=scene.legend(), loc="outside lower center", ncols=4, handlelength=2.2, fontsize=8.5)
    return {"multi-input": figure}


def _scene(result: ExperimentResult) -> PlaneScene:
    arrays = result.arrays
    best = arrays["scores"] == arrays["scores"].max(-1, keepdims=True)
    paths = [Path(arrays["paths"][:, s], "$p$", "path of $p$", INK) for s in range(arrays["paths"].shape[1])]
    rays = rays_along(arrays["ray"][None], r"max-margin ray $p_\mathrm{mm}$", colours=[PALETTE[4]])
    lines = [SeparatingLine(arrays["ray"], float(offset), colour_of(i)) for i, offset in enumerate(arrays["offsets"])]
    return PlaneScene(Tokens(arrays["tokens"], scores=arrays["scores"], best=best), paths, rays, lines)
