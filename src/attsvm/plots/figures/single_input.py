"""[MMTS, single input] six starts in the plane, and how near each run comes to its ray."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attsvm.experiments import ExperimentResult
from attsvm.plots.curves import NAIVE_LINE, series
from attsvm.plots.scene import Path, PlaneScene, SeparatingLine, Tokens, rays_along
from attsvm.plots.style import FAINT, HAIRLINE, PALETTE, new_figure

_TITLES = {"global": "Token 2 ties with token 3", "local": "Token 2 outscores token 3"}
_COLOURS = (PALETTE[1], PALETTE[2])
"""Of runs that end on token 1 and on token 2, and of the two rays."""
_RAY = r"max-margin ray $p_\mathrm{mm}$ of token 1 or 2"


def draw_single_input(result: ExperimentResult) -> Mapping[str, Figure]:
    """Two planes, one for each score of the third token, and the cosine to the ray of the token reached."""
    figure = new_figure(10.4, 4.4, layout="constrained")
    *planes, last = figure.subplots(1, 3, width_ratios=(1, 1, 1.02))
    for axes, (variant, title) in zip(planes, _TITLES.items(), strict=True):
        scene = _scene(result, variant)
        scene.draw(axes, scale=0.72, starts=True)
        _name_tokens(axes, result.arrays[f"{variant}_tokens"][0])
        axes.set_title(title, fontsize=10, pad=14)
    _cosines(last, result)
    figure.legend(handles=scene.legend(), loc="outside lower center", ncols=4, handlelength=2.2, fontsize=8.5)
    return {"single-input": figure}


def _scene(result: ExperimentResult, variant: str) -> PlaneScene:
    arrays = {name: result.arrays[f"{variant}_{name}"] for name in ("tokens", "scores", "rays", "offsets", "paths")}
    paths = arrays["paths"]
    reached = _reached(result, variant)
    shown = [Path(paths[:, s], "$p$", "path of $p$", _COLOURS[reached[s]]) for s in range(paths.shape[1])]
    best = arrays["scores"] == arrays["scores"].max(-1, keepdims=True)
    used = sorted(set(reached))
    lines = [SeparatingLine(arrays["rays"][t], float(arrays["offsets"][t]), _COLOURS[t]) for t in used]
    return PlaneScene(
        Tokens(arrays["tokens"], scores=arrays["scores"], best=best),
        shown,
        rays_along(arrays["rays"], _RAY, colours=_COLOURS),
        lines,
    )


def _reached(result: ExperimentResult, variant: str) -> list[int]:
    """0 or 1 for each start, from the largest c down: whose ray is nearer in the end."""
    ends = [
        series(result, column, ["start"], variant=variant, gradient="exact")[1][::-1, -1]
        for column in ("cosine_first", "cosine_second")
    ]
    return [int(second > first) for first, second in zip(*ends, strict=True)]


def _name_tokens(axes: Axes, places: np.ndarray) -> None:
    for t, place in enumerate(places):
        axes.annotate(
            str(t + 1),
            xy=tuple(place),
            xytext=(8, -9),
            textcoords="offset points",
            fontsize=8.5,
            zorder=8,
            gid="number",
        )


def _cosines(axes: Axes, result: ExperimentResult) -> None:
    """The variant with a local optimum: both gradients, every start, against the ray its exact run reaches."""
    reached = _reached(result, "local")[::-1]  # series sort by c
    for gradient, line, width in (("exact", "-", 1.6), ("naive", NAIVE_LINE, 1.4)):
        for place, token in enumerate(reached):
            column = ("cosine_first", "cosine_second")[token]
            steps, cosines = series(result, column, ["start"], variant="local", gradient=gradient)
            axes.plot(
                steps[1:], cosines[place, 1:], color=_COLOURS[token], linestyle=line, linewidth=width, gid=gradient
            )
    axes.axvline(200, color=HAIRLINE, linewidth=0.9, zorder=0)
    axes.set(xscale="log", xlabel="step", ylabel="cosine to the ray of the token reached", ylim=(-1.05, 1.08))
    axes.text(200, -1.0, "200 ", color=FAINT, fontsize=8, ha="right")
    axes.set_title("Token 2 outscores: who stays", fontsize=10, pad=14)
    axes.text(0.3, 0.16, "solid: exact gradient\ndotted: naive, float32", transform=axes.transAxes, fontsize=8.5)
