"""[MMTS; talk] sparsity and norms over training, and attention maps of [CLS] on digits."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attsvm.experiments import ExperimentResult
from attsvm.plots.curves import band, label_ends
from attsvm.plots.style import HAIRLINE, PALETTE, new_figure

_PANELS = (
    ("entropy", "entropy over $\\log T$", "Attention of [CLS]"),
    ("top_mass", "mass on the top token", "One token takes more"),
    ("norm", r"$\|KQ^{\mathsf{T}}\|_F$", "Key-query weights grow"),
    ("margin_median", r"top logit's lead $/\ \|KQ^{\mathsf{T}}\|_F$", "Margin of its choices"),
)


def draw_attention_sparsity(result: ExperimentResult) -> Mapping[str, Figure]:
    """Curves over training by layer, all heads and models; attention maps of some images at four moments."""
    figure = new_figure(11.6, 3.3, layout="constrained")
    epochs = np.array(result.configuration["recorded"])
    for axes, (column, label, title) in zip(figure.subplots(1, len(_PANELS)), _PANELS, strict=True):
        ends = []
        for layer in range(result.configuration["layers"]):
            values = np.stack([result.column("heads", column, epoch=each, layer=layer) for each in epochs], 1)
            middle = band(axes, epochs + 1, values, colour=PALETTE[layer])
            ends.append((f"layer {layer}", float(middle[-1]), PALETTE[layer]))
        axes.set(xscale="log", xlabel="epoch + 1", ylabel=label)
        axes.set_title(title, fontsize=10.5)
        axes.set_ylim(0, None)
        label_ends(axes, ends, least=0.08, size=8)
    return {"attention-sparsity": figure, "attention-sparsity-maps": _maps(result)}


def _maps(result: ExperimentResult) -> Figure:
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
        _show(panels[row][0], pixels, "Greys", 1.0)
        attention = result.arrays["attention"][moments, -1, image, :, 0, 1:].mean(1).reshape(-1, side, side)
        for axes, seen in zip(panels[row][1:], attention, strict=True):
            _show(axes, seen, "Blues", float(attention.max()))
    panels[0][0].set_title("image", fontsize=9.5, loc="center", fontweight="normal")
    for column, moment in enumerate(moments):
        title = "before training" if epochs[moment] == 0 else f"epoch {epochs[moment]}"
        panels[0][column + 1].set_title(title, fontsize=9.5, loc="center", fontweight="normal")
    return figure


def _show(axes: Axes, values: np.ndarray, colours: str, largest: float) -> None:
    """Pixels on a scale from 0; the maps of one image share theirs."""
    axes.imshow(values, cmap=colours, vmin=0, vmax=largest)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set(visible=True, color=HAIRLINE)
