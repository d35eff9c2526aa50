"""What the pictures of [TaSVM]'s two experiments in the plane share: scenes, and curves over all data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attsvm.experiments import ExperimentResult
from attsvm.experiments.plane_runs import PICTURE
from attsvm.plots.curves import KQ_LINE, W_LINE, band, label_ends, series
from attsvm.plots.scene import DASHES, Path, PlaneScene, SeparatingLine, Tokens, rays_along
from attsvm.plots.style import PALETTE, colour_of, new_figure

NAMES = {"W": "W", "KQ": r"KQ^{\mathsf{T}}"}
_RAYS = {"W": r"ray of $W_\mathrm{mm}\,z_i$, Frobenius", "KQ": r"ray of $W_\mathrm{mm}\,z_i$, nuclear"}


def scene(result: ExperimentResult, kinds: Sequence[str], *, separated: bool = False) -> PlaneScene:
    """Paths and rays of these parameterizations, W solid and (K, Q) dashed; with their separating lines if asked."""
    arrays = result.arrays
    paths, rays, lines = [], [], []
    for kind in kinds:
        dashes, name = DASHES[list(NAMES).index(kind)], NAMES[kind]
        for i in range(arrays["tokens"].shape[0]):
            points = arrays[f"{kind}_paths"][:, i]
            paths.append(Path(points, rf"${name}\,z_{i}$", rf"path of ${name}\,z_i$", colour_of(i), dashes))
        rays += rays_along(arrays[f"{kind}_rays"], _RAYS[kind], dashes)
        if separated:
            ends = zip(arrays[f"{kind}_rays"], arrays[f"{kind}_offsets"], strict=True)
            lines += [SeparatingLine(ray, float(offset), colour_of(i)) for i, (ray, offset) in enumerate(ends)]
    return PlaneScene(Tokens(arrays["tokens"], scores=arrays["scores"], best=arrays["optimal"]), paths, rays, lines)


def draw_all_datasets(axes: Axes, result: ExperimentResult) -> None:
    """1 - cosine of each parameterization to its own SVM, over the data sets that nobody chose."""
    ends = []
    own = (("W", "frobenius", PALETTE[2], W_LINE), ("KQ", "nuclear", PALETTE[3], KQ_LINE))
    for kind, norm, colour, line in own:
        steps, values = unchosen(result, f"cosine_{norm}", kind)
        gaps = np.maximum(1 - values[:, 1:], 1e-16)
        middle = band(axes, steps[1:], gaps, colour=colour, line=line)
        ends.append((f"${NAMES[kind]}$", float(middle[-1]), colour))
    axes.set(xscale="log", yscale="log", xlabel="step", ylabel="1 - cosine to its own SVM")
    axes.set_title(f"{len(values)} data sets, not chosen", fontsize=10.5, pad=10)
    label_ends(axes, ends, size=9)


def unchosen(result: ExperimentResult, column: str, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps and the column ``[data sets, steps]`` of all data sets but the picture's."""
    # The picture's run is shorter and recorded at other steps: look at one step that only the others have.
    last = result.configuration["long_steps"]
    datasets = result.column("history", "dataset", parameterization=kind, step=last)
    curves = [
        series(result, column, ["dataset"], parameterization=kind, dataset=dataset)
        for dataset in datasets
        if dataset != PICTURE
    ]
    return curves[0][0], np.concatenate([values for _, values in curves])


def draw_hyperplanes(result: ExperimentResult) -> Mapping[str, Figure]:
    """Two planes of the chosen data set, and all others beside them."""
    figure = new_figure(10.6, 4.6, layout="constrained")
    *planes, curves = figure.subplots(1, 3, width_ratios=(1, 1, 0.85))
    keys: dict[str, Artist] = {}
    for axes, kind in zip(planes, NAMES, strict=True):
        drawn = scene(result, (kind,), separated=True)
        drawn.draw(axes, scale=0.72)
        axes.set_anchor("N")
        axes.set_title(f"${NAMES[kind]}$", fontsize=10.5, pad=12)
        keys |= {str(key.get_label()): key for key in drawn.legend()}
    draw_all_datasets(curves, result)
    figure.legend(handles=list(keys.values()), loc="outside lower center", ncols=4, handlelength=2.4, fontsize=8.5)
    return {"hyperplanes": figure}


def draw_trajectories(result: ExperimentResult) -> Mapping[str, Figure]:
    """The plane of the chosen data set, and all others beside it."""
    figure = new_figure(10.2, 5.0, layout="constrained")
    plane, curves = figure.subplots(1, 2, width_ratios=(1.35, 1))
    drawn = scene(result, ("W", "KQ"))
    drawn.draw(plane, scale=0.85)
    plane.set_title("Each parameterization finds its own rays", fontsize=10.5, pad=16)
    draw_all_datasets(curves, result)
    figure.legend(handles=drawn.legend(), loc="outside lower center", ncols=4, handlelength=2.4, fontsize=8.5)
    return {"trajectories": figure}
