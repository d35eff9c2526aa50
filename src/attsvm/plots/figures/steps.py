"""Curves against steps of training: step rules, local convergence, causal attention, and a vision transformer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attsvm.plots.curves import band, label_ends, series
from attsvm.plots.style import HAIRLINE, KQ_LINE, NAIVE_LINE, PALETTE, W_LINE, new_figure
from attsvm.sweep.result import SweepResult

_KQ = r"$KQ^{\mathsf{T}}$"


def draw_descent_vs_normalized(result: SweepResult) -> Mapping[str, Figure]:
    """[MMTS] Three panels: probability and norm to step 200 as in the paper, and 1 - probability to the end."""
    rules = {"normalized": ("normalized,\nstep 0.1", PALETTE[1]), "gradient": ("gradient,\nstep 1", PALETTE[0])}
    figure = new_figure(10.4, 3.4, layout="constrained")
    first, second, third = figure.subplots(1, 3)
    for axes, column, last in ((first, "probability", 200), (second, "norm", 200), (third, "missing", np.inf)):
        ends = []
        for rule, (name, colour) in rules.items():
            steps, values = series(result, column, ["dataset"], rule=rule, start=0.0)
            keep = (steps <= last) & ((steps > 0) | (axes is not third))
            shown = values[:, keep]
            low, high = np.quantile(shown, (0.1, 0.9), axis=0)
            axes.fill_between(steps[keep], low, high, color=colour, alpha=0.16, linewidth=0)
            axes.plot(steps[keep], shown[0], color=colour, gid=rule)  # the picture's own data set
            ends.append((name, float(shown[0, -1]), colour))
        axes.set_xlabel("step")
        if axes is third:
            axes.set(yscale="log", xscale="log", yticks=[1, 1e-20, 1e-40, 1e-60])
        label_ends(axes, ends, least=0.13, size=8)
    first.set(ylabel="attention on the optimal tokens", ylim=(0, 1.03))
    second.set(ylabel=r"$\Vert p\Vert$")
    third.set(ylabel="1 - attention on the optimal tokens")
    titles = ("Softmax probability", "Norm of the prompt", "Followed further")
    for axes, title in zip((first, second, third), titles, strict=True):
        axes.set_title(title, fontsize=10.5, pad=10)
    return {"descent-vs-normalized": figure}


def draw_local_convergence(result: SweepResult) -> Mapping[str, Figure]:
    """[TaSVM] Three panels: attention on the selected token, cosines to both SVMs, 1 - cosine of the long runs."""
    figure = new_figure(10.6, 3.5, layout="constrained")
    first, second, third = figure.subplots(1, 3)
    names, colours = {"W": "$W$", "KQ": _KQ}, {"frobenius": PALETTE[0], "nuclear": PALETTE[1]}

    def curves(column: str, kind: str, run: str = "paper", ridge: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        return series(result, column, ["dataset"], parameterization=kind, run=run, ridge=ridge)

    for kind, line, colour in (("W", W_LINE, PALETTE[2]), ("KQ", KQ_LINE, PALETTE[3])):
        band(first, *curves("mean_probability", kind), colour=colour, line=line)
    first.set(xlabel="step", ylabel="attention on the selected token", ylim=(0, 1.02), title="Attention saturates")
    label_ends(first, [("$W$", 1.0, PALETTE[2]), (_KQ, 0.9, PALETTE[3])])

    ends = []
    for kind, line in (("W", W_LINE), ("KQ", KQ_LINE)):
        for norm, colour in colours.items():
            middle = band(second, *curves(f"cosine_{norm}", kind), colour=colour, line=line, centre="mean")
            shown = "Frobenius" if norm == "frobenius" else "nuclear"
            ends.append((f"{names[kind]}, {shown}", float(middle[-1]), colour))
    second.set(xlabel="step", ylabel="cosine to the SVM", ylim=(0.4, 1.01), title="Each finds its own SVM")
    label_ends(second, ends, least=0.07)

    ends = []
    largest = float(result.column("history", "ridge").max())
    runs = (
        ("W", 0.0, "frobenius", W_LINE, PALETTE[0], "$W$"),
        ("KQ", 0.0, "nuclear", KQ_LINE, PALETTE[1], _KQ),
        ("KQ", largest, "nuclear", NAIVE_LINE, PALETTE[3], f"{_KQ}, ridge"),
    )
    for kind, ridge, norm, line, colour, name in runs:
        steps, values = curves(f"cosine_{norm}", kind, "long", ridge)
        keep = steps > 0
        middle = band(third, steps[keep], 1 - values[:, keep], colour=colour, line=line)
        ends.append((name, float(middle[-1]), colour))
    third.set(xscale="log", yscale="log", xlabel="step", ylabel="1 - cosine to its own SVM", title="Followed further")
    label_ends(third, ends, least=0.07)
    return {"local-convergence": figure}


def draw_causal(result: SweepResult) -> Mapping[str, Figure]:
    """[TaSVM] Left: least attention over positions. Right: 1 - cosine of W and (K, Q) to the SVM of all prefixes."""
    figure = new_figure(7.6, 3.4, layout="constrained")
    left, right = figure.subplots(1, 2)

    def curves(column: str, kind: str) -> tuple[np.ndarray, np.ndarray]:
        """Recorded steps after the first, and the column of the separable runs as ``[data sets, steps]``."""
        steps, values = series(result, column, ["dataset"], parameterization=kind, separable=True)
        return steps[steps > 0], values[:, steps > 0]

    attention, distance = [], []
    for kind, name, norm, line, colour in (
        ("W", "$W$", "frobenius", W_LINE, PALETTE[0]),
        ("KQ", _KQ, "nuclear", KQ_LINE, PALETTE[1]),
    ):
        steps, least = curves("least_attention", kind)
        attention.append((name, float(band(left, steps, least, colour=colour, line=line)[-1]), colour))
        steps, cosine = curves(f"cosine_{norm}", kind)
        distance.append((name, float(band(right, steps, 1 - cosine, colour=colour, line=line)[-1]), colour))
    left.set(xscale="log", xlabel="step", ylabel="least attention on a winner", ylim=(0, 1.03))
    left.set_title("Every prefix saturates")
    right.set(xscale="log", yscale="log", xlabel="step", ylabel="1 - cosine to the united SVM", title="One $W$ for all")
    label_ends(left, attention, least=0.08)
    label_ends(right, distance, least=0.08)
    return {"causal": figure}


def draw_attention_sparsity(result: SweepResult) -> Mapping[str, Figure]:
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
        ends = []
        for layer in range(result.configuration["layers"]):
            values = np.stack([result.column("heads", column, epoch=each, layer=layer) for each in epochs], 1)
            middle = band(axes, epochs + 1, values, colour=PALETTE[layer])
            ends.append((f"layer {layer}", float(middle[-1]), PALETTE[layer]))
        axes.set(xscale="log", xlabel="epoch + 1", ylabel=label)
        axes.set_title(title, fontsize=10.5)
        axes.set_ylim(0, None)
        label_ends(axes, ends, least=0.08, size=8)
    return {"attention-sparsity": figure, "attention-sparsity-maps": _attention_maps(result)}


def _attention_maps(result: SweepResult) -> Figure:
    """Rows: images. Columns: the image, then the attention of [CLS], mean over heads of the last layer."""
    epochs = np.array(result.configuration["recorded"])
    moments = sorted({int(np.abs(epochs - wanted).argmin()) for wanted in (0, 3, 20, epochs[-1])})
    patch = result.configuration["patch"]
    side = 8 // patch
    images = result.arrays["images"]
    digits = result.arrays["digits"]
    chosen = [int(np.flatnonzero(digits == digit)[0]) for digit in (0, 3, 4, 7) if (digits == digit).any()]
    figure = new_figure(7.4, 1.25 * len(chosen) + 0.5, layout="constrained")
    panels = figure.subplots(len(chosen), len(moments) + 1, squeeze=False)
    for row, image in enumerate(chosen):
        pixels = images[image].reshape(side, side, patch, patch).transpose(0, 2, 1, 3).reshape(8, 8)
        _show_pixels(panels[row][0], pixels, "Greys", 1.0)
        attention = result.arrays["attention"][moments, -1, image, :, 0, 1:].mean(1).reshape(-1, side, side)
        for axes, seen in zip(panels[row][1:], attention, strict=True):
            _show_pixels(axes, seen, "Blues", float(attention.max()))
    titles = ["image", *("before training" if epochs[each] == 0 else f"epoch {epochs[each]}" for each in moments)]
    for axes, title in zip(panels[0], titles, strict=True):
        axes.set_title(title, fontsize=9.5, loc="center", fontweight="normal")
    return figure


def _show_pixels(axes: Axes, values: np.ndarray, colours: str, largest: float) -> None:
    """Pixels on a scale from 0; the maps of one image share theirs."""
    axes.imshow(values, cmap=colours, vmin=0, vmax=largest)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set(visible=True, color=HAIRLINE)
