"""[MMTS, losses] paths for every score C and loss, and C = 100 followed to the end."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from attsvm.experiments import ExperimentResult
from attsvm.plots.curves import NAIVE_LINE, label_ends, series
from attsvm.plots.scene import Path, PlaneScene, Tokens, rays_along
from attsvm.plots.style import FAINT, HAIRLINE, PALETTE, new_figure

_LOSSES = {"linear": r"linear loss, $-x$", "logistic": "logistic loss", "exponential": r"exponential loss, $e^{-x}$"}
_COLOURS = {"linear": PALETTE[0], "logistic": PALETTE[1], "exponential": PALETTE[2]}


def draw_loss_comparison(result: ExperimentResult) -> Mapping[str, Figure]:
    """A plane for each loss, and below them the cosine for the largest C, with the naive loop."""
    figure = new_figure(10.4, 6.4, layout="constrained")
    top, bottom = figure.subfigures(2, 1, squeeze=False)[:, 0]
    scores = result.configuration["scores"]
    colours = _score_colours(len(scores))
    for axes, (loss, title) in zip(top.subplots(1, 3), _LOSSES.items(), strict=True):
        scene = _scene(result, loss, colours)
        scene.draw(axes, scale=0.72)
        axes.set_anchor("N")
        axes.set_title(title, fontsize=10.5, pad=10)
    top.legend(handles=scene.legend(), loc="outside lower center", ncols=5, handlelength=2.2, fontsize=8.5)
    left, right = bottom.subplots(1, 2)
    _moderate(left, result, scores, colours)
    _largest(right, result, max(scores))
    return {"loss-comparison": figure}


def _score_colours(count: int) -> list[str]:
    return [to_hex(colour) for colour in mpl.colormaps["viridis"](np.linspace(0.88, 0.0, count))]


def _scene(result: ExperimentResult, loss: str, colours: list[str]) -> PlaneScene:
    points = result.arrays[f"{loss}_paths"]
    paths = [Path(points[:, c], "$p$", "path of $p$", colour) for c, colour in enumerate(colours)]
    ray = rays_along(result.arrays["rays"][:1], r"max-margin ray $p_\mathrm{mm} = (1, 0)$", colours=[PALETTE[4]])
    return PlaneScene(Tokens(result.arrays["tokens"]), paths, ray)


def _moderate(axes: Axes, result: ExperimentResult, scores: list[float], colours: list[str]) -> None:
    """The logistic loss for every C: 1 - cosine, which every C brings down in the end."""
    ends = []
    for score, colour in zip(scores, colours, strict=True):
        steps, cosines = series(result, "cosine", ["loss"], loss="logistic", gradient="exact", C=score)
        gap = np.maximum(1 - cosines[0, 1:], 1e-9)  # C = 1 and the first steps of C = 5 lie on the ray to round-off
        axes.plot(steps[1:], gap, color=colour, linewidth=1.5, gid="score")
        if score in (2.0, 3.0, 5.0, 10.0, 100.0):
            ends.append((f"$C = {score:.0f}$", float(gap[-1]), colour))
    axes.axvline(1000, color=HAIRLINE, linewidth=0.9, zorder=0)
    axes.set(xscale="log", yscale="log", xlabel="step", ylabel="1 - cosine to (1, 0)", ylim=(3e-9, 1))
    axes.text(1000, 0.55, "the paper ends here ", color=FAINT, fontsize=8, va="bottom", ha="right")
    axes.set_title("Logistic loss: every C turns back", fontsize=10.5)
    label_ends(axes, ends)


def _largest(axes: Axes, result: ExperimentResult, score: float) -> None:
    """The largest C: where logistic and exponential loss agree, the exponential one lies thin on the other."""
    for (loss, colour), width in zip(_COLOURS.items(), (1.7, 3.0, 1.3), strict=True):
        for gradient, line in (("exact", "-"), ("naive", NAIVE_LINE)):
            steps, cosines = series(result, "cosine", ["loss"], loss=loss, gradient=gradient, C=score)
            axes.plot(steps[1:], cosines[0, 1:], color=colour, linestyle=line, linewidth=width, gid=gradient)
    axes.axvline(1000, color=HAIRLINE, linewidth=0.9, zorder=0)
    axes.set(xscale="log", xlabel="step", ylabel="cosine to (1, 0)", ylim=(0.69, 1.02))
    axes.text(30, 0.9, "linear", color=_COLOURS["linear"], ha="right", fontsize=9)
    axes.text(1500, 0.83, "logistic", color=_COLOURS["logistic"], fontsize=9)
    axes.text(1500, 0.8, "exponential", color=_COLOURS["exponential"], fontsize=9)
    said = "solid: exact gradient\ndotted: naive, float32"
    axes.text(0.03, 0.92, said, transform=axes.transAxes, fontsize=8.5, va="top")
    axes.set_title(f"C = {score:.0f}: slow, not stuck", fontsize=10.5)
