"""[MMTS, joint training] prompt and head in the plane, their probabilities, and how long each gradient stays."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attsvm.experiments import ExperimentResult
from attsvm.plots.curves import NAIVE_LINE, label_ends, series
from attsvm.plots.scene import Path, PlaneScene, Tokens, rays_along
from attsvm.plots.style import FAINT, HAIRLINE, INK, PALETTE, colour_of, new_figure

_TITLES = {"tight": "Tight: all inputs support", "relaxed": "Relaxed: input 2 does not"}
_PROMPT, _HEAD = INK, PALETTE[6]


def draw_joint_training(result: ExperimentResult) -> Mapping[str, Figure]:
    """A row for each variant: the plane, both probabilities, 1 - cosine of p for both gradients."""
    figure = new_figure(10.4, 7.6, layout="constrained")
    rows = figure.subplots(2, 3, width_ratios=(1.15, 0.9, 0.9))
    for (plane, middle, right), (variant, title) in zip(rows, _TITLES.items(), strict=True):
        scene = _scene(result, variant)
        scene.draw(plane, scale=0.75, starts=True)
        _name_inputs(plane, result, variant)
        plane.set_title(title, fontsize=10.5, pad=16)
        _probabilities(middle, result, variant)
        _cosines(right, result, variant)
    figure.legend(handles=scene.legend(), loc="outside lower center", ncols=4, handlelength=2.2, fontsize=8.5)
    return {"joint-training": figure}


def _scene(result: ExperimentResult, variant: str) -> PlaneScene:
    arrays = {name: result.arrays[f"{variant}_{name}"] for name in ("tokens", "prompts", "heads")}
    prompt_ray, head_ray = result.arrays[f"{variant}_prompt_ray"], result.arrays[f"{variant}_head_ray"]
    paths = [
        Path(arrays["prompts"], "$p$", "path of the prompt $p$", _PROMPT),
        Path(arrays["heads"], "$v$", "path of the head $v$", _HEAD, (3.2, 1.7)),
    ]
    rays = [
        *rays_along(prompt_ray[None], r"max-margin ray $p_\mathrm{mm}$", colours=[_PROMPT]),
        *rays_along(head_ray[None], r"label-margin ray $v_\mathrm{mm}$", (3.2, 1.7), colours=[_HEAD]),
    ]
    return PlaneScene(Tokens(arrays["tokens"]), paths, rays)


def _name_inputs(axes: Axes, result: ExperimentResult, variant: str) -> None:
    """The label beside each input's second token; the first ones all lie in the origin."""
    labels = result.arrays[f"{variant}_labels"]
    for i, place in enumerate(result.arrays[f"{variant}_tokens"][:, 1]):
        sign = "+" if labels[i] > 0 else "\N{MINUS SIGN}"
        axes.annotate(
            sign, xy=tuple(place), xytext=(8, 4), textcoords="offset points", fontsize=11, color=colour_of(i),
            fontweight="bold", zorder=8, gid="label",
        )  # fmt: skip


def _probabilities(axes: Axes, result: ExperimentResult, variant: str) -> None:
    ends = []
    for kind, colour in (("softmax", _PROMPT), ("logistic", _HEAD)):
        steps, values = series(result, f"{kind}_probability", ["gradient"], variant=variant, gradient="exact")
        axes.plot(steps[1:], values[0, 1:], color=colour, dashes=(None, None) if kind == "softmax" else (3.2, 1.7))
        ends.append((kind, float(values[0, -1]), colour))
    axes.set(xscale="log", xlabel="step", ylabel="probability, mean over inputs", ylim=(0, 1.03))
    axes.set_title("Softmax and logistic", fontsize=10.5, pad=12)
    label_ends(axes, ends, least=0.08)


def _cosines(axes: Axes, result: ExperimentResult, variant: str) -> None:
    ends = []
    for gradient, line in (("exact", "-"), ("naive", NAIVE_LINE)):
        steps, values = series(result, "cosine_prompt", ["gradient"], variant=variant, gradient=gradient)
        axes.plot(steps[1:], 1 - values[0, 1:], color=_PROMPT, linestyle=line, linewidth=1.7, gid=gradient)
        ends.append(("exact" if gradient == "exact" else "naive,\nfloat32", float(1 - values[0, -1]), INK))
    axes.set(xscale="log", yscale="log", xlabel="step", ylabel=r"1 - cosine of $p$ to $p_\mathrm{mm}$")
    axes.axvline(200, color=HAIRLINE, linewidth=0.9, zorder=0)
    axes.text(200, axes.get_ylim()[1], " 200", color=FAINT, fontsize=8, va="top")
    axes.set_title("Distance from the ray", fontsize=10.5, pad=12)
    label_ends(axes, ends, least=0.1)
