"""[both papers] distance to the max-margin solution against R, with gradient descent beside it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from attsvm.experiments import ExperimentResult
from attsvm.experiments.regularization import PATHS
from attsvm.plots.style import FAINT, PALETTE, new_figure

_TITLES = {
    "W": "$W$, Frobenius ball",
    "KQ": "$(K,Q)$ ball",
    "joint tight": "$(v,p)$, tight",
    "joint relaxed": "$(v,p)$, relaxed",
    "relu": "ReLU head",
}
_FLOOR = 1e-12


def draw_regularization(result: ExperimentResult) -> Mapping[str, Figure]:
    """One panel a path: median and quartiles of the path, descent against the norm of its iterates."""
    figure = new_figure(12.0, 3.3, layout="constrained")
    panels = figure.subplots(1, len(PATHS))
    for axes, name in zip(panels, PATHS, strict=True):
        for source, colour, line in (("path", PALETTE[0], "-"), ("descent", PALETTE[1], (0, (4.0, 1.6)))):
            radius, low, middle, high = _curve(result, name, source)
            axes.fill_between(radius, low, high, color=colour, alpha=0.14, linewidth=0)
            axes.plot(radius, middle, color=colour, linestyle=line)
        axes.set(xscale="log", yscale="log", xlabel="$R$, or norm of the iterate", xlim=(1, None))
        axes.set_title(_TITLES[name], fontsize=10.5)
        exponent = -1 if name == "KQ" else -2
        reach = np.array([30.0, 1000.0])
        radius, _, middle, _ = _curve(result, name, "path")
        anchor = float(np.interp(30.0, radius, middle))
        if anchor > _FLOOR * 10:
            axes.plot(reach, 0.25 * anchor * (reach / 30.0) ** exponent, color=FAINT, linewidth=1, linestyle=":")
            below = 0.25 * anchor * 3.0**exponent / 2
            axes.text(90, below, f"$R^{{{exponent}}}$", color=FAINT, fontsize=8.5, ha="right", va="top")
    panels[0].set_ylabel("1 - cosine (set distance for $(K,Q)$)")
    panels[0].text(0.05, 0.16, "path", color=PALETTE[0], transform=panels[0].transAxes)
    panels[0].text(0.05, 0.07, "gradient descent", color=PALETTE[1], transform=panels[0].transAxes)
    return {"regularization-path": figure}


def _curve(result: ExperimentResult, name: str, source: str) -> tuple[np.ndarray, ...]:
    """Median radius, and the quartiles of the distance, of every point."""
    points = result.column("points", "point", path=name, source=source)
    radius = result.column("points", "radius", path=name, source=source)
    distance = np.clip(result.column("points", "distance", path=name, source=source), _FLOOR, None)
    unique = np.unique(points)
    quartiles = np.array([np.quantile(distance[points == each], (0.25, 0.5, 0.75)) for each in unique])
    middle = np.array([np.median(radius[points == each]) for each in unique])
    return middle, quartiles[:, 0], quartiles[:, 1], quartiles[:, 2]
