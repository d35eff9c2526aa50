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
from attsvm.plots import style
from attsvm.plots.curves import Curves, series
from attsvm.plots.plane import Path, PlaneScene, SeparatingLine, Tokens, rays_along
from attsvm.plots.style import FAINT, HAIRLINE, INK, LINES, PALETTE, W_LINE, colour_of, picture
from attsvm.sweep.result import SweepResult

_GRADIENTS = {"exact": W_LINE, "naive": style.NAIVE_LINE}  # lines of the saturation-proof gradient, of the naive loop
_NAMES = {"exact": "exact", "naive": "naive,\nfloat32"}
_BOTH = "solid: exact gradient\ndotted: naive, float32"
_PROMPT_RAY = r"max-margin ray $p_\mathrm{mm}$"
_TOKEN_COLOURS = (PALETTE[1], PALETTE[2])
"""Of runs that end on token 0 and on token 1 of the single input, and of the two rays."""


def _of(result: SweepResult, variant: str, *names: str) -> list[np.ndarray]:
    return [result.arrays[f"{variant}_{name}"] for name in names]


def _prompts(points: np.ndarray, colours: Sequence[str]) -> list[Path]:
    """Paths of prompts ``[records, runs, 2]``."""
    return [Path(points[:, run], "$p$", "path of $p$", colour) for run, colour in enumerate(colours)]


@picture("single-input", size=(10.4, 4.4), panels=(1, 3), width_ratios=(1, 1, 1.02))
def single_input(result: SweepResult, panels: Any) -> None:
    """Two planes, one for each score of the third token, and the cosine to the ray of the token reached."""
    *planes, last = panels
    titles = {"global": "Token 1 ties with token 2", "local": "Token 1 outscores token 2"}
    for axes, (variant, title) in zip(planes, titles.items(), strict=True):
        tokens, scores, optimal, rays, offsets, paths = _of(
            result, variant, "tokens", "scores", "optimal", "rays", "offsets", "paths"
        )
        reached = _reached(result, variant)
        scene = PlaneScene(
            Tokens(tokens, scores=scores, best=optimal),
            _prompts(paths, [_TOKEN_COLOURS[token] for token in reached]),
            rays_along(rays, f"{_PROMPT_RAY} of token 0 or 1", colours=_TOKEN_COLOURS),
            [SeparatingLine(rays[t], float(offsets[t]), _TOKEN_COLOURS[t]) for t in sorted(set(reached))],
        )
        scene.draw(axes, scale=0.72, starts=True)
        for t, place in enumerate(tokens[0]):
            _write_beside(axes, str(t), place, (8, -9), fontsize=8.5, gid="number")
        axes.set_title(title, fontsize=10, pad=14)
    # The variant with a local optimum: both gradients, every start, against the ray its exact run reaches.
    for gradient, width in (("exact", 1.6), ("naive", 1.4)):
        for place, token in enumerate(reached[::-1]):  # series sort by c
            column = ("cosine_first", "cosine_second")[token]
            steps, cosines = series(result, column, ["start"], variant="local", gradient=gradient)
            look = {"color": _TOKEN_COLOURS[token], "linestyle": _GRADIENTS[gradient], "linewidth": width}
            last.plot(steps[1:], cosines[place, 1:], gid=gradient, **look)
    last.axvline(200, color=HAIRLINE, linewidth=0.9, zorder=0)
    last.set(xscale="log", xlabel="step", ylabel="cosine to the ray of the token reached", ylim=(-1.05, 1.08))
    last.text(200, -1.0, "200 ", color=FAINT, fontsize=8, ha="right")
    last.set_title("Token 1 outscores: who stays", fontsize=10, pad=14)
    last.text(0.3, 0.16, _BOTH, transform=last.transAxes, fontsize=8.5)
    _draw_legend(last.figure, scene.legend())


def _reached(result: SweepResult, variant: str) -> list[int]:
    """0 or 1 for each start, from the largest c down: whose ray is nearer in the end."""
    first, second = (
        series(result, column, ["start"], variant=variant, gradient="exact")[1][::-1, -1]
        for column in ("cosine_first", "cosine_second")
    )
    return (second > first).astype(int).tolist()


@picture("multi-input", size=(9.4, 4.7), panels=(1, 2), width_ratios=(1.25, 1))
def multi_input(result: SweepResult, panels: Any) -> None:
    """The plane of the first data set; 1 - cosine of all data sets and starts for both gradients."""
    plane, axes = panels
    arrays = result.arrays
    scene = PlaneScene(
        _scored(arrays),
        _prompts(arrays["paths"], [INK] * arrays["paths"].shape[1]),
        rays_along(arrays["ray"][None], _PROMPT_RAY, colours=[PALETTE[4]]),
        [SeparatingLine(arrays["ray"], float(offset), colour_of(i)) for i, offset in enumerate(arrays["offsets"])],
    )
    scene.draw(plane, scale=0.78, starts=True)
    plane.set_title("One direction for all inputs", fontsize=11, pad=12)
    curves = Curves(axes)
    for colour, (gradient, line) in zip(PALETTE[:2], _GRADIENTS.items(), strict=True):
        steps, cosines = series(result, "cosine", ["dataset", "start"], gradient=gradient)
        curves.band(_NAMES[gradient], steps[1:], 1 - cosines[:, 1:], colour, line=line)
    datasets = len(np.unique(result.column("history", "dataset")))
    title = "1 data set, six starts" if datasets == 1 else f"{datasets} data sets, six starts each"
    axes.set_title(title, fontsize=11, pad=12)
    curves.label(xscale="log", yscale="log", xlabel="step", ylabel="1 - cosine to the max-margin ray")
    _draw_legend(axes.figure, scene.legend())


_PROMPT, _HEAD = INK, PALETTE[6]


@picture("joint-training", size=(10.4, 7.6), panels=(2, 3), width_ratios=(1.15, 0.9, 0.9))
def joint_training(result: SweepResult, panels: Any) -> None:
    """A row for each variant: the plane, both probabilities, 1 - cosine of p for both gradients."""
    titles = {"tight": "Tight: all inputs support", "relaxed": "Relaxed: input 2 does not"}
    for (plane, middle, right), (variant, title) in zip(panels, titles.items(), strict=True):
        labels, tokens, prompts, heads, prompt_ray, head_ray = _of(
            result, variant, "labels", "tokens", "prompts", "heads", "prompt_ray", "head_ray"
        )
        paths = [
            Path(prompts, "$p$", "path of the prompt $p$", _PROMPT),
            Path(heads, "$v$", "path of the head $v$", _HEAD, LINES[1]),
        ]
        rays = [
            *rays_along(prompt_ray[None], _PROMPT_RAY, colours=[_PROMPT]),
            *rays_along(head_ray[None], r"label-margin ray $v_\mathrm{mm}$", LINES[1], colours=[_HEAD]),
        ]
        scene = PlaneScene(Tokens(tokens), paths, rays)
        scene.draw(plane, scale=0.75, starts=True)
        # The label beside each input's second token; the first ones all lie in the origin.
        for i, place in enumerate(tokens[:, 1]):
            sign = "+" if labels[i] > 0 else "\N{MINUS SIGN}"
            _write_beside(plane, sign, place, (8, 4), gid="label", fontsize=11, color=colour_of(i), fontweight="bold")
        plane.set_title(title, fontsize=10.5, pad=16)
        _draw_probabilities(middle, result, variant)
        _draw_distance(right, result, variant)
    _draw_legend(plane.figure, scene.legend())


def _draw_probabilities(axes: Axes, result: SweepResult, variant: str) -> None:
    curves = Curves(axes)
    for kind, colour, line in (("softmax", _PROMPT, LINES[0]), ("logistic", _HEAD, LINES[1])):
        steps, values = series(result, f"{kind}_probability", ["gradient"], variant=variant, gradient="exact")
        curves.line(kind, steps[1:], values[0, 1:], colour, linestyle=line)
    axes.set_title("Softmax and logistic", fontsize=10.5, pad=12)
    curves.label(0.08, xscale="log", xlabel="step", ylabel="probability, mean over inputs", ylim=(0, 1.03))


def _draw_distance(axes: Axes, result: SweepResult, variant: str) -> None:
    curves = Curves(axes)
    for gradient, line in _GRADIENTS.items():
        steps, values = series(result, "cosine_prompt", ["gradient"], variant=variant, gradient=gradient)
        look = {"linestyle": line, "linewidth": 1.7, "gid": gradient}
        curves.line(_NAMES[gradient], steps[1:], 1 - values[0, 1:], _PROMPT, **look)
    axes.set(xscale="log", yscale="log", xlabel="step", ylabel=r"1 - cosine of $p$ to $p_\mathrm{mm}$")
    axes.axvline(200, color=HAIRLINE, linewidth=0.9, zorder=0)
    axes.text(200, axes.get_ylim()[1], " 200", color=FAINT, fontsize=8, va="top")
    axes.set_title("Distance from the ray", fontsize=10.5, pad=12)
    curves.label(0.1)


_LOSS_COLOURS = {"linear": PALETTE[0], "logistic": PALETTE[1], "exponential": PALETTE[2]}


def loss_comparison(result: SweepResult) -> Mapping[str, Figure]:
    """A plane for each loss, and below them the cosine for the largest C, with the naive loop."""
    titles = {"linear": r"linear loss, $-x$", "logistic": "logistic loss", "exponential": r"exponential loss, $e^{-x}$"}
    figure = style.new_figure(10.4, 6.4, layout="constrained")
    top, bottom = figure.subfigures(2, 1, squeeze=False)[:, 0]
    scores = result.configuration["scores"]
    colours = [to_hex(colour) for colour in mpl.colormaps["viridis"](np.linspace(0.88, 0.0, len(scores)))]
    ray = rays_along(result.arrays["rays"][:1], f"{_PROMPT_RAY[:-1]} = (1, 0)$", colours=[PALETTE[4]])
    for axes, (loss, title) in zip(top.subplots(1, 3), titles.items(), strict=True):
        scene = PlaneScene(Tokens(result.arrays["tokens"]), _prompts(result.arrays[f"{loss}_paths"], colours), ray)
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
    curves = Curves(axes)
    for score, colour in zip(scores, colours, strict=True):
        steps, cosines = series(result, "cosine", ["loss"], loss="logistic", gradient="exact", C=score)
        gap = np.maximum(1 - cosines[0, 1:], 1e-9)  # C = 1 and the first steps of C = 5 lie on the ray to round-off
        axes.plot(steps[1:], gap, color=colour, linewidth=1.5, gid="score")
        if score in (2.0, 3.0, 5.0, 10.0, 100.0):
            curves.name(f"$C = {score:.0f}$", gap[-1], colour)
    axes.axvline(1000, color=HAIRLINE, linewidth=0.9, zorder=0)
    axes.text(1000, 0.55, "the paper ends here ", color=FAINT, fontsize=8, va="bottom", ha="right")
    axes.set_title("Logistic loss: every C turns back", fontsize=10.5)
    curves.label(xscale="log", yscale="log", xlabel="step", ylabel="1 - cosine to (1, 0)", ylim=(3e-9, 1))


def _draw_largest_score(axes: Axes, result: SweepResult, score: float) -> None:
    """The largest C: where logistic and exponential loss agree, the exponential one lies thin on the other."""
    for (loss, colour), width in zip(_LOSS_COLOURS.items(), (1.7, 3.0, 1.3), strict=True):
        for gradient, line in _GRADIENTS.items():
            steps, cosines = series(result, "cosine", ["loss"], loss=loss, gradient=gradient, C=score)
            axes.plot(steps[1:], cosines[0, 1:], color=colour, linestyle=line, linewidth=width, gid=gradient)
    axes.axvline(1000, color=HAIRLINE, linewidth=0.9, zorder=0)
    axes.set(xscale="log", xlabel="step", ylabel="cosine to (1, 0)", ylim=(0.69, 1.02))
    for loss, x, y, side in (("linear", 30, 0.9, "right"), ("logistic", 1500, 0.83, "left"),
                             ("exponential", 1500, 0.8, "left")):  # fmt: skip
        axes.text(x, y, loss, color=_LOSS_COLOURS[loss], ha=side, fontsize=9)
    axes.text(0.03, 0.92, _BOTH, transform=axes.transAxes, fontsize=8.5, va="top")
    axes.set_title(f"C = {score:.0f}: slow, not stuck", fontsize=10.5)


_MATRICES = {"W": "W", "KQ": r"KQ^{\mathsf{T}}"}


@picture("hyperplanes", size=(10.6, 4.6), panels=(1, 3), width_ratios=(1, 1, 0.85))
def hyperplanes(result: SweepResult, panels: Any) -> None:
    """Two planes of the chosen data set, and all others beside them."""
    *planes, last = panels
    keys: dict[str, Artist] = {}
    for axes, kind in zip(planes, _MATRICES, strict=True):
        scene = _trained_scene(result, (kind,), separated=True)
        scene.draw(axes, scale=0.72)
        axes.set_anchor("N")
        axes.set_title(f"${_MATRICES[kind]}$", fontsize=10.5, pad=12)
        keys |= {str(key.get_label()): key for key in scene.legend()}
    _draw_all_datasets(last, result)
    _draw_legend(last.figure, list(keys.values()), length=2.4)


@picture("trajectories", size=(10.2, 5.0), panels=(1, 2), width_ratios=(1.35, 1))
def trajectories(result: SweepResult, panels: Any) -> None:
    """The plane of the chosen data set, and all others beside it."""
    plane, last = panels
    scene = _trained_scene(result, ("W", "KQ"))
    scene.draw(plane, scale=0.85)
    plane.set_title("Each parameterization finds its own rays", fontsize=10.5, pad=16)
    _draw_all_datasets(last, result)
    _draw_legend(last.figure, scene.legend(), length=2.4)


def _trained_scene(result: SweepResult, kinds: Sequence[str], *, separated: bool = False) -> PlaneScene:
    """Paths and rays of these parameterizations, W solid and (K, Q) dashed; with their separating lines if asked."""
    norms, paths, rays, lines = {"W": "Frobenius", "KQ": "nuclear"}, [], [], []
    for kind in kinds:
        points, ends, offsets = _of(result, kind, "paths", "rays", "offsets")
        line, name = LINES[list(_MATRICES).index(kind)], _MATRICES[kind]
        for i in range(points.shape[1]):
            paths.append(Path(points[:, i], rf"${name}\,z_{i}$", rf"path of ${name}\,z_i$", colour_of(i), line))
        rays += rays_along(ends, rf"ray of $W_\mathrm{{mm}}\,z_i$, {norms[kind]}", line)
        if separated:
            pairs = enumerate(zip(ends, offsets, strict=True))
            lines += [SeparatingLine(ray, float(offset), colour_of(i)) for i, (ray, offset) in pairs]
    return PlaneScene(_scored(result.arrays), paths, rays, lines)


def _draw_all_datasets(axes: Axes, result: SweepResult) -> None:
    """1 - cosine of each parameterization to its own SVM, over the data sets that nobody chose."""
    curves = Curves(axes)
    own = (("W", "frobenius", PALETTE[2], W_LINE), ("KQ", "nuclear", PALETTE[3], style.KQ_LINE))
    for kind, norm, colour, line in own:
        steps, values = unchosen(result, f"cosine_{norm}", kind)
        curves.band(f"${_MATRICES[kind]}$", steps[1:], np.maximum(1 - values[:, 1:], 1e-16), colour, line=line)
    axes.set_title(f"{len(values)} data sets, not chosen", fontsize=10.5, pad=10)
    curves.label(size=9, xscale="log", yscale="log", xlabel="step", ylabel="1 - cosine to its own SVM")


def unchosen(result: SweepResult, column: str, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps and the column ``[data sets, steps]`` of all data sets but the picture's."""
    found = np.stack([result.column("history", name, parameterization=kind) for name in ("step", "dataset", column)])
    steps, datasets, values = found[:, found[1] != PICTURE]
    marks = np.unique(steps)
    return marks, values[np.lexsort((steps, datasets))].reshape(-1, len(marks))


def _scored(arrays: Mapping[str, np.ndarray]) -> Tokens:
    return Tokens(arrays["tokens"], scores=arrays["scores"], best=arrays["optimal"])


def _write_beside(axes: Axes, text: str, place: np.ndarray, offset: tuple[int, int], **look: Any) -> None:
    axes.annotate(text, xy=tuple(place), xytext=offset, textcoords="offset points", zorder=8, **look)


def _draw_legend(figure: Figure | SubFigure, handles: Sequence[Artist], ncols: int = 4, length: float = 2.2) -> None:
    """One legend below all panels."""
    figure.legend(handles=handles, loc="outside lower center", ncols=ncols, handlelength=length, fontsize=8.5)
