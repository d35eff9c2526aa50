"""What the pictures of [TaSVM]'s two experiments in the plane share: scenes, and curves over all data sets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from attsvm.experiments import ExperimentResult
from attsvm.experiments.plane_runs import PICTURE
from attsvm.plots.bands import KQ_LINE, W_LINE, band, label_ends
from attsvm.plots.lines import SeparatingLine
from attsvm.plots.paths import Path
from attsvm.plots.rays import DASHES, rays_along
from attsvm.plots.scene import PlaneScene, Tokens
from attsvm.plots.series import series
from attsvm.plots.style import PALETTE, colour_of

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
