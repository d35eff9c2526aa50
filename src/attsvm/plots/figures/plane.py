"""Figures in the plane of the tokens, each with curves against steps beside it.

[MMTS] single input, several inputs, joint training, losses; [TaSVM] hyperplanes and trajectories.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure, SubFigure

from attsvm.experiments.weights_and_factors import PICTURE
from attsvm.plots.curves import band, label_ends, series
from attsvm.plots.plane import Path, SeparatingLine, Tokens, rays_along
from attsvm.plots.scene import PlaneScene
from attsvm.plots.style import DASHES, FAINT, HAIRLINE, INK, KQ_LINE, NAIVE_LINE, PALETTE, W_LINE, colour_of, new_figure
from attsvm.sweep.result import SweepResult

_GRADIENTS = {"exact": W_LINE, "naive": NAIVE_LINE}  # lines of the saturation-proof gradient and of the naive loop
_NAMES = {"exact": "exact", "naive": "naive,\nfloat32"}
_PROMPT_RAY = r"max-margin ray $p_\mathrm{mm}$"


def draw_single_input(result: SweepResult) -> Mapping[str, Figure]:
    """Two planes, one for each score of the third token, and the cosine to the ray of the token reached."""
    titles = {"global": "Token 1 ties with token 2", "local": "Token 1 outscores token 2"}
    figure = new_figure(10.4, 4.4, layout="constrained")
    *planes, last = figure.subplots(1, 3, width_ratios=(1, 1, 1.02))
    for axes, (variant, title) in zip(planes, titles.items(), strict=True):
        scene = _single_scene(result, variant)
        scene.draw(axes, scale=0.72, starts=True)
        for t, place in enumerate(result.arrays[f"{variant}_tokens"][0]):
            _write_beside(axes, str(t), place, (8, -9), fontsize=8.5, gid="number")
        axes.set_title(title, fontsize=10, pad=14)
    _draw_who_stays(last, result)
    _draw_legend(figure, scene.legend())
    return {"single-input": figure}


_TOKEN_COLOURS = (PALETTE[1], PALETTE[2])
"""Of runs that end on token 0 and on token 1 of the single input, and of the two rays."""


def _single_scene(result: SweepResult, variant: str) -> PlaneScene:
    names = ("tokens", "scores", "optimal", "rays", "offsets", "paths")
    arrays = {name: result.arrays[f"{variant}_{name}"] for name in names}
    paths, reached = arrays["paths"], _reached(result, variant)
    return PlaneScene(
        _scored(arrays),
        [Path(paths[:, s], "$p$", "path of $p$", _TOKEN_COLOURS[reached[s]]) for s in range(paths.shape[1])],
        rays_along(arrays["rays"], f"{_PROMPT_RAY} of token 0 or 1", colours=_TOKEN_COLOURS),
        [
            SeparatingLine(arrays["rays"][t], float(arrays["offsets"][t]), _TOKEN_COLOURS[t])
            for t in sorted(set(reached))
        ],
    )


def _reached(result: SweepResult, variant: str) -> list[int]:
    """0 or 1 for each start, from the largest c down: whose ray is nearer in the end."""
    ends = [
        series(result, column, ["start"], variant=variant, gradient="exact")[1][::-1, -1]
        for column in ("cosine_first", "cosine_second")
    ]
    return [int(second > first) for first, second in zip(*ends, strict=True)]


def _draw_who_stays(axes: Axes, result: SweepResult) -> None:
    """The variant with a local optimum: both gradients, every start, against the ray its exact run reaches."""
    reached = _reached(result, "local")[::-1]  # series sort by c
    for gradient, width in (("exact", 1.6), ("naive", 1.4)):
        for place, token in enumerate(reached):
            column = ("cosine_first", "cosine_second")[token]
            steps, cosines = series(result, column, ["start"], variant="local", gradient=gradient)
            axes.plot(
                steps[1:], cosines[place, 1:], color=_TOKEN_COLOURS[token], linestyle=_GRADIENTS[gradient],
                linewidth=width, gid=gradient,
            )  # fmt: skip
    axes.axvline(200, color=HAIRLINE, linewidth=0.9, zorder=0)
    axes.set(xscale="log", xlabel="step", ylabel="cosine to the ray of the token reached", ylim=(-1.05, 1.08))
    axes.text(200, -1.0, "200 ", color=FAINT, fontsize=8, ha="right")
    axes.set_title("Token 1 outscores: who stays", fontsize=10, pad=14)
    axes.text(0.3, 0.16, "solid: exact gradient\ndotted: naive, float32", transform=axes.transAxes, fontsize=8.5)


def draw_multi_input(result: SweepResult) -> Mapping[str, Figure]:
    """The plane of the first data set; 1 - cosine of all data sets and starts for both gradients."""
    figure = new_figure(9.4, 4.7, layout="constrained")
    plane, curves = figure.subplots(1, 2, width_ratios=(1.25, 1))
    arrays = result.arrays
    scene = PlaneScene(
        _scored(arrays),
        [Path(arrays["paths"][:, s], "$p$", "path of $p$", INK) for s in range(arrays["paths"].shape[1])],
        rays_along(arrays["ray"][None], _PROMPT_RAY, colours=[PALETTE[4]]),
        [SeparatingLine(arrays["ray"], float(offset), colour_of(i)) for i, offset in enumerate(arrays["offsets"])],
    )
    scene.draw(plane, scale=0.78, starts=True)
    plane.set_title("One direction for all inputs", fontsize=11, pad=12)

    ends = []
    for colour, (gradient, line) in zip(PALETTE[:2], _GRADIENTS.items(), strict=True):
        steps, cosines = series(result, "cosine", ["dataset", "start"], gradient=gradient)
        middle = band(curves, steps[1:], 1 - cosines[:, 1:], colour=colour, line=line)
        ends.append((_NAMES[gradient], float(middle[-1]), colour))
    datasets = len(np.unique(result.column("history", "dataset")))
    curves.set(xscale="log", yscale="log", xlabel="step", ylabel="1 - cosine to the max-margin ray")
    title = "1 data set, six starts" if datasets == 1 else f"{datasets} data sets, six starts each"
    curves.set_title(title, fontsize=11, pad=12)
    label_ends(curves, ends)
    _draw_legend(figure, scene.legend())
    return {"multi-input": figure}


_PROMPT, _HEAD = INK, PALETTE[6]


def draw_joint_training(result: SweepResult) -> Mapping[str, Figure]:
    """A row for each variant: the plane, both probabilities, 1 - cosine of p for both gradients."""
    titles = {"tight": "Tight: all inputs support", "relaxed": "Relaxed: input 2 does not"}
    figure = new_figure(10.4, 7.6, layout="constrained")
    rows = figure.subplots(2, 3, width_ratios=(1.15, 0.9, 0.9))
    for (plane, middle, right), (variant, title) in zip(rows, titles.items(), strict=True):
        scene = _joint_scene(result, variant)
        scene.draw(plane, scale=0.75, starts=True)
        # The label beside each input's second token; the first ones all lie in the origin.
        labels, tokens = (result.arrays[f"{variant}_{name}"] for name in ("labels", "tokens"))
        for i, place in enumerate(tokens[:, 1]):
            sign = "+" if labels[i] > 0 else "\N{MINUS SIGN}"
            look = {"fontsize": 11, "color": colour_of(i), "fontweight": "bold"}
            _write_beside(plane, sign, place, (8, 4), gid="label", **look)
        plane.set_title(title, fontsize=10.5, pad=16)
        _draw_probabilities(middle, result, variant)
        _draw_distance(right, result, variant)
    _draw_legend(figure, scene.legend())
    return {"joint-training": figure}


def _joint_scene(result: SweepResult, variant: str) -> PlaneScene:
    arrays = {
        name: result.arrays[f"{variant}_{name}"] for name in ("tokens", "prompts", "heads", "prompt_ray", "head_ray")
    }
    paths = [
        Path(arrays["prompts"], "$p$", "path of the prompt $p$", _PROMPT),
        Path(arrays["heads"], "$v$", "path of the head $v$", _HEAD, DASHES[1]),
    ]
    rays = [
        *rays_along(arrays["prompt_ray"][None], _PROMPT_RAY, colours=[_PROMPT]),
        *rays_along(arrays["head_ray"][None], r"label-margin ray $v_\mathrm{mm}$", DASHES[1], colours=[_HEAD]),
    ]
    return PlaneScene(Tokens(arrays["tokens"]), paths, rays)


def _draw_probabilities(axes: Axes, result: SweepResult, variant: str) -> None:
    ends = []
    for kind, colour, dashes in (("softmax", _PROMPT, (None, None)), ("logistic", _HEAD, DASHES[1])):
        steps, values = series(result, f"{kind}_probability", ["gradient"], variant=variant, gradient="exact")
        axes.plot(steps[1:], values[0, 1:], color=colour, dashes=dashes)
        ends.append((kind, float(values[0, -1]), colour))
    axes.set(xscale="log", xlabel="step", ylabel="probability, mean over inputs", ylim=(0, 1.03))
    axes.set_title("Softmax and logistic", fontsize=10.5, pad=12)
    label_ends(axes, ends, least=0.08)


def _draw_distance(axes: Axes, result: SweepResult, variant: str) -> None:
    ends = []
    for gradient, line in _GRADIENTS.items():
        steps, values = series(result, "cosine_prompt", ["gradient"], variant=variant, gradient=gradient)
        axes.plot(steps[1:], 1 - values[0, 1:], color=_PROMPT, linestyle=line, linewidth=1.7, gid=gradient)
        ends.append((_NAMES[gradient], float(1 - values[0, -1]), INK))
    axes.set(xscale="log", yscale="log", xlabel="step", ylabel=r"1 - cosine of $p$ to $p_\mathrm{mm}$")
    axes.axvline(200, color=HAIRLINE, linewidth=0.9, zorder=0)
    axes.text(200, axes.get_ylim()[1], " 200", color=FAINT, fontsize=8, va="top")
    axes.set_title("Distance from the ray", fontsize=10.5, pad=12)
    label_ends(axes, ends, least=0.1)


_LOSS_COLOURS = {"linear": PALETTE[0], "logistic": PALETTE[1], "exponential": PALETTE[2]}


def draw_loss_comparison(result: SweepResult) -> Mapping[str, Figure]:
    """A plane for each loss, and below them the cosine for the largest C, with the naive loop."""
    titles = {"linear": r"linear loss, $-x$", "logistic": "logistic loss", "exponential": r"exponential loss, $e^{-x}$"}
    figure = new_figure(10.4, 6.4, layout="constrained")
    top, bottom = figure.subfigures(2, 1, squeeze=False)[:, 0]
    scores = result.configuration["scores"]
    colours = [to_hex(colour) for colour in mpl.colormaps["viridis"](np.linspace(0.88, 0.0, len(scores)))]
    ray = rays_along(result.arrays["rays"][:1], f"{_PROMPT_RAY[:-1]} = (1, 0)$", colours=[PALETTE[4]])
    for axes, (loss, title) in zip(top.subplots(1, 3), titles.items(), strict=True):
        points = result.arrays[f"{loss}_paths"]
        paths = [Path(points[:, c], "$p$", "path of $p$", colour) for c, colour in enumerate(colours)]
        scene = PlaneScene(Tokens(result.arrays["tokens"]), paths, ray)
        scene.draw(axes, scale=0.72)
        axes.set_anchor("N")
        axes.set_title(title, fontsize=10.5, pad=10)
    _draw_legend(top, scene.legend(), ncols=5)
    left, right = bottom.subplots(1, 2)
    _draw_scores(left, result, scores, colours)
    _draw_largest_score(right, result, max(scores))
    return {"loss-comparison": figure}


def _draw_scores(axes: Axes, result: SweepResult, scores: list[float], colours: list[str]) -> None:
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


def _draw_largest_score(axes: Axes, result: SweepResult, score: float) -> None:
    """The largest C: where logistic and exponential loss agree, the exponential one lies thin on the other."""
    for (loss, colour), width in zip(_LOSS_COLOURS.items(), (1.7, 3.0, 1.3), strict=True):
        for gradient, line in _GRADIENTS.items():
            steps, cosines = series(result, "cosine", ["loss"], loss=loss, gradient=gradient, C=score)
            axes.plot(steps[1:], cosines[0, 1:], color=colour, linestyle=line, linewidth=width, gid=gradient)
    axes.axvline(1000, color=HAIRLINE, linewidth=0.9, zorder=0)
    axes.set(xscale="log", xlabel="step", ylabel="cosine to (1, 0)", ylim=(0.69, 1.02))
    axes.text(30, 0.9, "linear", color=_LOSS_COLOURS["linear"], ha="right", fontsize=9)
    axes.text(1500, 0.83, "logistic", color=_LOSS_COLOURS["logistic"], fontsize=9)
    axes.text(1500, 0.8, "exponential", color=_LOSS_COLOURS["exponential"], fontsize=9)
    said = "solid: exact gradient\ndotted: naive, float32"
    axes.text(0.03, 0.92, said, transform=axes.transAxes, fontsize=8.5, va="top")
    axes.set_title(f"C = {score:.0f}: slow, not stuck", fontsize=10.5)


_MATRICES = {"W": "W", "KQ": r"KQ^{\mathsf{T}}"}


def draw_hyperplanes(result: SweepResult) -> Mapping[str, Figure]:
    """Two planes of the chosen data set, and all others beside them."""
    figure = new_figure(10.6, 4.6, layout="constrained")
    *planes, curves = figure.subplots(1, 3, width_ratios=(1, 1, 0.85))
    keys: dict[str, Artist] = {}
    for axes, kind in zip(planes, _MATRICES, strict=True):
        drawn = _trained_scene(result, (kind,), separated=True)
        drawn.draw(axes, scale=0.72)
        axes.set_anchor("N")
        axes.set_title(f"${_MATRICES[kind]}$", fontsize=10.5, pad=12)
        keys |= {str(key.get_label()): key for key in drawn.legend()}
    _draw_all_datasets(curves, result)
    _draw_legend(figure, list(keys.values()), length=2.4)
    return {"hyperplanes": figure}


def draw_trajectories(result: SweepResult) -> Mapping[str, Figure]:
    """The plane of the chosen data set, and all others beside it."""
    figure = new_figure(10.2, 5.0, layout="constrained")
    plane, curves = figure.subplots(1, 2, width_ratios=(1.35, 1))
    drawn = _trained_scene(result, ("W", "KQ"))
    drawn.draw(plane, scale=0.85)
    plane.set_title("Each parameterization finds its own rays", fontsize=10.5, pad=16)
    _draw_all_datasets(curves, result)
    _draw_legend(figure, drawn.legend(), length=2.4)
    return {"trajectories": figure}


def _trained_scene(result: SweepResult, kinds: Sequence[str], *, separated: bool = False) -> PlaneScene:
    """Paths and rays of these parameterizations, W solid and (K, Q) dashed; with their separating lines if asked."""
    arrays, norms = result.arrays, {"W": "Frobenius", "KQ": "nuclear"}
    paths, rays, lines = [], [], []
    for kind in kinds:
        dashes, name = DASHES[list(_MATRICES).index(kind)], _MATRICES[kind]
        for i in range(arrays["tokens"].shape[0]):
            points = arrays[f"{kind}_paths"][:, i]
            paths.append(Path(points, rf"${name}\,z_{i}$", rf"path of ${name}\,z_i$", colour_of(i), dashes))
        rays += rays_along(arrays[f"{kind}_rays"], rf"ray of $W_\mathrm{{mm}}\,z_i$, {norms[kind]}", dashes)
        if separated:
            ends = zip(arrays[f"{kind}_rays"], arrays[f"{kind}_offsets"], strict=True)
            lines += [SeparatingLine(ray, float(offset), colour_of(i)) for i, (ray, offset) in enumerate(ends)]
    return PlaneScene(Tokens(arrays["tokens"], scores=arrays["scores"], best=arrays["optimal"]), paths, rays, lines)


def _draw_all_datasets(axes: Axes, result: SweepResult) -> None:
    """1 - cosine of each parameterization to its own SVM, over the data sets that nobody chose."""
    ends = []
    own = (("W", "frobenius", PALETTE[2], W_LINE), ("KQ", "nuclear", PALETTE[3], KQ_LINE))
    for kind, norm, colour, line in own:
        steps, values = unchosen(result, f"cosine_{norm}", kind)
        gaps = np.maximum(1 - values[:, 1:], 1e-16)
        middle = band(axes, steps[1:], gaps, colour=colour, line=line)
        ends.append((f"${_MATRICES[kind]}$", float(middle[-1]), colour))
    axes.set(xscale="log", yscale="log", xlabel="step", ylabel="1 - cosine to its own SVM")
    axes.set_title(f"{len(values)} data sets, not chosen", fontsize=10.5, pad=10)
    label_ends(axes, ends, size=9)


def unchosen(result: SweepResult, column: str, kind: str) -> tuple[np.ndarray, np.ndarray]:
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


def _scored(arrays: Mapping[str, np.ndarray]) -> Tokens:
    return Tokens(arrays["tokens"], scores=arrays["scores"], best=arrays["optimal"])


def _write_beside(axes: Axes, text: str, place: np.ndarray, offset: tuple[int, int], **look: Any) -> None:
    axes.annotate(text, xy=tuple(place), xytext=offset, textcoords="offset points", zorder=8, **look)


def _draw_legend(figure: Figure | SubFigure, handles: Sequence[Artist], ncols: int = 4, length: float = 2.2) -> None:
    """One legend below all panels."""
    figure.legend(handles=handles, loc="outside lower center", ncols=ncols, handlelength=length, fontsize=8.5)
