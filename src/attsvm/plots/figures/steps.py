"""Curves against steps of training: step rules, local convergence, causal attention, next tokens, a vision model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attsvm.experiments.next_token import COSINE, DISTANCE
from attsvm.plots.curves import Curves, series
from attsvm.plots.style import FAINT, HAIRLINE, KQ_LINE, NAIVE_LINE, PALETTE, W_LINE, new_figure, picture
from attsvm.sweep.result import SweepResult

_KQ = r"$KQ^{\mathsf{T}}$"
_NAMES = {"W": "$W$", "KQ": _KQ}
_RUNS = {
    "split": ("split", PALETTE[0], W_LINE),
    "summed first": ("summed\nfirst", PALETTE[1], KQ_LINE),
    "plain": ("plain", PALETTE[2], NAIVE_LINE),
}
_DOTTED: dict[str, Any] = {"color": FAINT, "linewidth": 0.9, "linestyle": ":"}


@picture("descent-vs-normalized", size=(10.4, 3.4), panels=(1, 3))
def descent_vs_normalized(result: SweepResult, panels: Any) -> None:
    """[MMTS] Three panels: probability and norm to step 200 as in the paper, and 1 - probability to the end."""
    rules = {"normalized": ("normalized,\nstep 0.1", PALETTE[1]), "gradient": ("gradient,\nstep 1", PALETTE[0])}
    first, second, third = panels
    for axes, column, last in ((first, "probability", 200), (second, "norm", 200), (third, "missing", np.inf)):
        curves = Curves(axes)
        for rule, (name, colour) in rules.items():
            steps, values = series(result, column, ["dataset"], rule=rule, start=0.0)
            keep = (steps <= last) & ((steps > 0) | (axes is not third))
            low, high = np.quantile(values[:, keep], (0.1, 0.9), axis=0)
            axes.fill_between(steps[keep], low, high, color=colour, alpha=0.16, linewidth=0)
            curves.line(name, steps[keep], values[0, keep], colour, gid=rule)  # the picture's own data set
        if axes is third:
            axes.set(yscale="log", xscale="log", yticks=[1, 1e-20, 1e-40, 1e-60])
        curves.label(0.13, 8, xlabel="step")
    first.set(ylabel="attention on the optimal tokens", ylim=(0, 1.03))
    second.set(ylabel=r"$\Vert p\Vert$")
    third.set(ylabel="1 - attention on the optimal tokens")
    for axes, title in zip(panels, ("Softmax probability", "Norm of the prompt", "Followed further"), strict=True):
        axes.set_title(title, fontsize=10.5, pad=10)


@picture("local-convergence", size=(10.6, 3.5), panels=(1, 3))
def local_convergence(result: SweepResult, panels: Any) -> None:
    """[TaSVM] Three panels: attention on the selected token, cosines to both SVMs, 1 - cosine of the long runs."""
    first, second, third = map(Curves, panels)

    def found(column: str, kind: str, run: str = "paper", ridge: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        return series(result, column, ["dataset"], parameterization=kind, run=run, ridge=ridge)

    for kind, line, colour, height in (("W", W_LINE, PALETTE[2], 1.0), ("KQ", KQ_LINE, PALETTE[3], 0.9)):
        first.band("", *found("mean_probability", kind), colour, line=line)
        first.name(_NAMES[kind], height, colour)
        for norm, own in (("Frobenius", PALETTE[0]), ("nuclear", PALETTE[1])):
            steps, cosines = found(f"cosine_{norm.lower()}", kind)
            low, high = np.nanquantile(cosines, (0.1, 0.9), axis=0)
            mean = np.nanmean(cosines, axis=0)
            second.between(f"{_NAMES[kind]}, {norm}", own, steps, low, mean, high, linestyle=line)
    first.label(xlabel="step", ylabel="attention on the selected token", ylim=(0, 1.02), title="Attention saturates")
    second.label(0.07, xlabel="step", ylabel="cosine to the SVM", ylim=(0.4, 1.01), title="Each finds its own SVM")

    largest = float(result.column("history", "ridge").max())
    runs = (
        ("W", 0.0, "frobenius", W_LINE, PALETTE[0], "$W$"),
        ("KQ", 0.0, "nuclear", KQ_LINE, PALETTE[1], _KQ),
        ("KQ", largest, "nuclear", NAIVE_LINE, PALETTE[3], f"{_KQ}, ridge"),
    )
    for kind, ridge, norm, line, colour, name in runs:
        steps, values = found(f"cosine_{norm}", kind, "long", ridge)
        third.band(name, steps[steps > 0], 1 - values[:, steps > 0], colour, line=line)
    third.label(
        0.07, xscale="log", yscale="log", xlabel="step", ylabel="1 - cosine to its own SVM", title="Followed further"
    )


@picture("causal", size=(7.6, 3.4), panels=(1, 2))
def causal(result: SweepResult, panels: Any) -> None:
    """[TaSVM] Left: least attention over positions. Right: 1 - cosine of W and (K, Q) to the SVM of all prefixes."""
    left, right = map(Curves, panels)

    def found(column: str, kind: str) -> tuple[np.ndarray, np.ndarray]:
        """Recorded steps after the first, and the column of the separable runs as ``[data sets, steps]``."""
        steps, values = series(result, column, ["dataset"], parameterization=kind, separable=True)
        return steps[steps > 0], values[:, steps > 0]

    for kind, norm, line, colour in (("W", "frobenius", W_LINE, PALETTE[0]), ("KQ", "nuclear", KQ_LINE, PALETTE[1])):
        left.band(_NAMES[kind], *found("least_attention", kind), colour, line=line)
        steps, cosine = found(f"cosine_{norm}", kind)
        right.band(_NAMES[kind], steps, 1 - cosine, colour, line=line)
    left.label(0.08, xscale="log", xlabel="step", ylabel="least attention on a winner", ylim=(0, 1.03),
               title="Every prefix saturates")  # fmt: skip
    right.label(
        0.08, xscale="log", yscale="log", xlabel="step", ylabel="1 - cosine to the united SVM", title="One $W$ for all"
    )


def attention_sparsity(result: SweepResult) -> Mapping[str, Figure]:
    """[MMTS; talk] Curves over training by layer, all heads and models; attention maps of images at four moments."""
    panels = (
        ("entropy", "entropy over $\\log T$", "Attention of [CLS]"),
        ("top_mass", "mass on the top token", "One token takes more"),
        ("norm", r"$\|KQ^{\mathsf{T}}\|_F$", "Key-query weights grow"),
        ("margin_median", r"top logit's lead $/\ \|KQ^{\mathsf{T}}\|_F$", "Margin of its choices"),
    )
    figure = new_figure(11.6, 3.3, layout="constrained")
    epochs = np.array(result.configuration["recorded"])
    for axes, (column, label, title) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        curves = Curves(axes)
        for layer in range(result.configuration["layers"]):
            values = np.stack([result.column("heads", column, epoch=each, layer=layer) for each in epochs], 1)
            curves.band(f"layer {layer}", epochs + 1, values, PALETTE[layer])
        axes.set_title(title, fontsize=10.5)
        axes.set(xscale="log", xlabel="epoch + 1", ylabel=label)
        curves.label(0.08, 8, ylim=(0, None))
    return {"attention-sparsity": figure, "attention-sparsity-maps": _attention_maps(result)}


def _attention_maps(result: SweepResult) -> Figure:
    """Rows: images. Columns: the image, then the attention of [CLS], mean over heads of the last layer."""
    epochs = np.array(result.configuration["recorded"])
    moments = sorted({int(np.abs(epochs - wanted).argmin()) for wanted in (0, 3, 20, epochs[-1])})
    patch = result.configuration["patch"]
    side = 8 // patch
    images, digits = result.arrays["images"], result.arrays["digits"]
    chosen = [int(np.flatnonzero(digits == digit)[0]) for digit in (0, 3, 4, 7) if (digits == digit).any()]
    figure = new_figure(7.4, 1.25 * len(chosen) + 0.5, layout="constrained")
    panels = figure.subplots(len(chosen), len(moments) + 1, squeeze=False)
    for row, image in zip(panels, chosen, strict=True):
        pixels = images[image].reshape(side, side, patch, patch).transpose(0, 2, 1, 3).reshape(8, 8)
        _show_pixels(row[0], pixels, "Greys", 1.0)
        attention = result.arrays["attention"][moments, -1, image, :, 0, 1:].mean(1).reshape(-1, side, side)
        for axes, seen in zip(row[1:], attention, strict=True):
            _show_pixels(axes, seen, "Blues", float(attention.max()))
    titles = ["image", *("before training" if epochs[each] == 0 else f"epoch {epochs[each]}" for each in moments)]
    for axes, title in zip(panels[0], titles, strict=True):
        axes.set_title(title, fontsize=9.5, loc="center", fontweight="normal")
    return figure


def _show_pixels(axes: Axes, values: np.ndarray, colours: str, largest: float) -> None:
    """Pixels on a scale from 0; the maps of one image share theirs."""
    axes.imshow(values, cmap=colours, vmin=0, vmax=largest)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(visible=True, color=HAIRLINE)


@picture("next-token-acyclic", "next-token-cyclic", size=(10.6, 3.5), panels=(1, 3))
def random_samples(result: SweepResult, panels: Any) -> None:
    """Left: growth. Middle: directions outside S_fin. Right: distances inside, or the cosine of every data set."""
    growth, direction, last = panels
    _draw_runs(growth, result, "growth", r"$\Vert W_{\perp}\Vert\,/\,\Vert W_{svm}\Vert$", "Outside $S_{fin}$ it grows")
    _draw_runs(direction, result, "cosine", "1 - cosine to $W_{svm}$", "and turns to $W_{svm}$")
    direction.axhline(1 - COSINE, **_DOTTED)
    if bool((result.column("runs", "finite_dimension") > 0).any()):
        label, title = "distance over $1+\\Vert W_{fin}\\Vert$", "Inside it tends to $W_{fin}$"
        _draw_runs(last, result, "finite_distance", label, title)
        last.axhline(DISTANCE, **_DOTTED)
    else:
        _draw_shapes(last, result)


def _draw_runs(axes: Axes, result: SweepResult, column: str, label: str, title: str) -> None:
    """Medians over all data sets without a clash, with bands from 5 to 95 %."""
    steps, curves = np.unique(result.column("runs", "step")), Curves(axes)
    steps = steps[steps > 0]
    for gradient, (name, colour, line) in _RUNS.items():
        found = [result.column("runs", column, gradient=gradient, step=step, feasible=True) for step in steps]
        values = np.stack(found, 1)
        shown = np.clip(1 - values if column == "cosine" else values, 1e-16, None)
        curves.between(name, colour, steps, *np.nanquantile(shown, (0.05, 0.5, 0.95), axis=0), linestyle=line)
    curves.label(0.11, xscale="log", yscale="log", xlabel="step", ylabel=label, title=title)


def _draw_shapes(axes: Axes, result: SweepResult) -> None:
    """The split run's last 1 - cosine, every data set of every shape."""
    last, names = result.configuration["steps"], []
    for place, (K, d, n, T) in enumerate(result.configuration["shapes"]):
        found = result.column("runs", "cosine", gradient="split", step=last, K=K, d=d, n=n, T=T, feasible=True)
        spread = place + np.linspace(-0.32, 0.32, max(len(found), 1))[: len(found)]
        axes.plot(spread, np.sort(np.clip(1 - found, 1e-16, None)), ".", color=PALETTE[place], markersize=3)
        names.append(f"$K={K}$\n$d={d}$")
    axes.axhline(1 - COSINE, **_DOTTED)
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.set(yscale="log", ylabel="1 - cosine to $W_{svm}$", title="All data sets, split")


@picture("next-token-text", size=(10.6, 3.4), panels=(1, 3), width_ratios=(1, 1, 0.95))
def text(result: SweepResult, panels: Any) -> None:
    """Left: how often nothing clashes. Middle: relations in the proofs. Right: trained against predicted answers."""
    shares, sizes, answers = panels
    dimensions, size = result.configuration["dimensions"], int(result.column("texts", "K")[0])
    Curves(shares).shares("", dimensions, [result.column("texts", "feasible", d=d) for d in dimensions], PALETTE[0])
    shares.axvline(size, **_DOTTED)
    shares.text(size, 0.04, "$d=K$ ", color=FAINT, ha="right", fontsize=8.5)
    shares.set(xlabel="dimension $d$", ylabel="share of draws", ylim=(-0.03, 1.05), title="No relations clash")
    clash, d = (result.column("texts", name, infeasible=True) for name in ("clash", "d"))
    line, dots = np.array([0, max(dimensions)]), {"markersize": 4.5, "alpha": 0.6, "markeredgewidth": 0}
    sizes.plot(line, line + 1, **_DOTTED)
    sizes.plot(d, clash, "o", color=PALETTE[1], **dots)
    sizes.text(line[1], line[1] + 1, "$d+1$ ", color=FAINT, ha="right", va="bottom", fontsize=8.5)
    sizes.set(xlabel="dimension $d$", ylabel="relations in the proof", ylim=(0, None), title="Relations that clash")
    _, kinds, predicted, trained = result.arrays["answers"].T
    answers.plot([0, 1], [0, 1], color=HAIRLINE, linewidth=1, zorder=0)
    for kind, marker, colour, name in (
        (2, "^", HAIRLINE, "left open"), (1, "s", PALETTE[1], "by $W_{svm}$"), (0, "o", PALETTE[0], "by the graph"),
    ):  # fmt: skip
        own = kinds == kind
        answers.plot(predicted[own], trained[own], marker, color=colour, label=name, **dots)
    answers.set(xlabel="predicted probability", ylabel="attention after training", title="Answers to fresh windows")
    answers.legend(fontsize=8.5, handletextpad=0.2, loc="lower right", bbox_to_anchor=(1.0, 0.05))
