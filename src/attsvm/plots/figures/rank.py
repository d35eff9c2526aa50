"""[TaSVM, rank] mean ranks, feasible shares, and the spectra that justify the tolerance."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attsvm.experiments import ExperimentResult
from attsvm.experiments.rank import TOLERANCE
from attsvm.plots.curves import draw_shares, label_ends
from attsvm.plots.style import FAINT, PALETTE, new_figure

_LINES = {"frobenius": "-", "nuclear": (0, (4.0, 1.6))}
_NAMES = {"frobenius": "Frobenius", "nuclear": "nuclear"}


def draw_rank(result: ExperimentResult) -> Mapping[str, Figure]:
    """Ranks against d for growing n and for growing T, shares of separable draws, and all relative spectra."""
    shapes = [tuple(shape) for shape in result.configuration["shapes"]]
    short = min(T for _, T in shapes)
    few = min(n for n, _ in shapes)
    figure = new_figure(10.6, 6.6, layout="constrained")
    (inputs, tokens), (feasible, spectra) = figure.subplots(2, 2)
    _draw_ranks(inputs, result, [shape for shape in shapes if shape[1] == short], "n", f"Growing $n$, $T={short}$")
    _draw_ranks(tokens, result, [shape for shape in shapes if shape[0] == few], "T", f"Growing $T$, $n={few}$")
    _draw_feasible(feasible, result, shapes)
    _draw_spectra(spectra, result)
    return {"rank": figure}


def _draw_ranks(axes: Axes, result: ExperimentResult, shapes: list[tuple[int, ...]], letter: str, title: str) -> None:
    ends = []
    for place, (n, T) in enumerate(shapes):
        for norm, line in _LINES.items():
            x, mean, error = [], [], []
            for d in result.configuration["dimensions"]:
                ranks = result.column("solutions", f"rank_{TOLERANCE:g}", norm=norm, n=n, T=T, d=d, feasible=True)
                if len(ranks) >= 5:
                    x.append(d)
                    mean.append(ranks.mean())
                    error.append(1.96 * ranks.std() / np.sqrt(len(ranks)))
            axes.errorbar(x, mean, error, color=PALETTE[place], linestyle=line, marker="o", markersize=3.5, capsize=2)
            size = n if letter == "n" else T
            ends.append((f"{_NAMES[norm]}, ${letter}={size}$", float(mean[-1]), PALETTE[place]))
    top = max(n for n, _ in shapes)
    axes.set(xlabel="dimension $d$", ylabel="rank", title=title, ylim=(0, top * 1.06), xlim=(0, None))
    label_ends(axes, ends, least=0.075)


def _draw_feasible(axes: Axes, result: ExperimentResult, shapes: list[tuple[int, ...]]) -> None:
    dimensions = result.configuration["dimensions"]
    ends = []
    for place, (n, T) in enumerate(shapes):
        found = [result.column("solutions", "feasible", norm="frobenius", n=n, T=T, d=d) for d in dimensions]
        share = draw_shares(axes, dimensions, found, colour=PALETTE[place])
        ends.append((f"$n={n}$, $T={T}$", float(share[-1]), PALETTE[place]))
    axes.set(xlabel="dimension $d$", ylabel="share of draws", title="Optimal selection separable", ylim=(-0.03, 1.05))
    axes.set_xlim(0, None)
    label_ends(axes, ends, least=0.075)


def _draw_spectra(axes: Axes, result: ExperimentResult) -> None:
    """How many relative singular values lie where: a wide empty stretch around the tolerance justifies it."""
    table, spectra = result.tables["solutions"], result.arrays["spectra"]
    n, d, norms, feasible = (table[name].to_numpy() for name in ("n", "d", "norm", "feasible"))
    possible = np.arange(spectra.shape[1]) < np.minimum(n, d)[:, None]
    bins = np.logspace(-18, 0, 73)
    ends = []
    for norm, colour in (("frobenius", PALETTE[0]), ("nuclear", PALETTE[1])):
        own = (norms == norm) & feasible
        relative = np.clip((spectra / spectra[:, :1].clip(1e-300))[own][possible[own]], 1e-18, 1)
        heights, _ = np.histogram(relative, bins)
        axes.stairs(heights, bins, color=colour, fill=True, alpha=0.35, linewidth=0)
        axes.stairs(heights, bins, color=colour, linewidth=1.4)
        ends.append((_NAMES[norm], colour))
    axes.axvline(TOLERANCE, color=FAINT, linewidth=1, linestyle=":")
    axes.set(xscale="log", yscale="log", xlabel=r"$\sigma_k/\sigma_1$, all $k\leq\min(n,d)$", ylabel="number")
    axes.set_title("Spectra of all solutions")
    axes.text(TOLERANCE * 1.6, 0.97, "tolerance", transform=axes.get_xaxis_transform(), va="top", color=FAINT)
    for place, (name, colour) in enumerate(ends):
        axes.text(0.33, 0.93 - 0.09 * place, name, transform=axes.transAxes, color=colour, va="top")
