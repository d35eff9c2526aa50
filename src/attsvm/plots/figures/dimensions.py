"""[TaSVM] What changes as the dimension d grows: where runs end, first gradients, ranks, several tokens kept."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from attsvm.experiments.dimensions import TOLERANCE, TYPES
from attsvm.experiments.multi_token import PROTOCOLS, followed, share_accepted, used
from attsvm.plots.curves import Curves
from attsvm.plots.style import FAINT, INK, KQ_LINE, PALETTE, W_LINE, picture
from attsvm.sweep.result import SweepResult


@picture("convergence-types", size=(10.6, 3.7), panels=(1, 3), width_ratios=(1, 1, 1.05))
def convergence_types(result: SweepResult, panels: Any) -> None:
    """Stacked bars for both starts, and the shares of global runs and of B1 with 95 % intervals."""
    dimensions = result.configuration["dimensions"]
    *bars, axes = panels
    for panel, start, title in zip(bars, ("zero", "random"), ("$W(0) = 0$", "$W(0)$ random"), strict=True):
        _draw_types(panel, result, start)
        panel.set(xlabel="dimension $d$", ylabel="share of runs", ylim=(0, 1), title=title)
    handles, labels = bars[0].get_legend_handles_labels()
    axes.figure.legend(handles, labels, loc="outside lower left", ncols=4, fontsize=8.5, handlelength=1.0)

    def found(column: str) -> list[np.ndarray]:
        return [result.column("runs", column, d=d, start="zero") for d in dimensions]

    curves = Curves(axes)
    everywhere = [each[~np.isnan(each)] for each in found("all_support_everywhere")]
    curves.shares("global, $W(0)=0$", dimensions, [each == TYPES[0] for each in found("type")], PALETTE[0])
    curves.shares("B1, optimal SVM", dimensions, found("all_support"), PALETTE[2])
    curves.shares("B1, every SVM", dimensions, everywhere, PALETTE[3])
    axes.set(xscale="log", xlabel="dimension $d$", ylabel="share of data sets", ylim=(-0.03, 1.05))
    axes.set_xticks([2, 10, 20, 84, 320], ["2", "10", "20", "84", "320"])
    axes.minorticks_off()
    curves.label(0.08, title="All tokens support")


def _draw_types(axes: Axes, result: SweepResult, start: str) -> None:
    colours = dict(zip(TYPES, (PALETTE[0], PALETTE[5], PALETTE[1], "#C9C9C9"), strict=True))
    dimensions = result.configuration["dimensions"]
    places, bottom = np.arange(len(dimensions)), np.zeros(len(dimensions))
    for kind in TYPES:
        share = np.array([(result.column("runs", "type", d=d, start=start) == kind).mean() for d in dimensions])
        axes.bar(places, share, 0.78, bottom=bottom, color=colours[kind], linewidth=0, label=kind)
        bottom += share
    axes.set_xticks(places, [str(d) for d in dimensions], rotation=60, fontsize=8)


@picture("first-gradient", size=(7.6, 3.4), panels=(1, 2))
def first_gradient(result: SweepResult, panels: Any) -> None:
    """Left: how often the first gradient is favourable. Right: how often the optimal selection is reached."""
    dimensions = result.configuration["dimensions"]
    left, right = map(Curves, panels)

    def found(column: str, **where: object) -> dict[int, np.ndarray]:
        return {d: result.column("datasets", column, d=d, **where) for d in dimensions}

    groups = (
        (left, "favourable", PALETTE[0], W_LINE, found("favourable")),
        (right, "favourable", PALETTE[0], W_LINE, found("small_optimal", favourable=True)),
        (right, "not favourable", PALETTE[1], KQ_LINE, found("small_optimal", favourable=False)),
    )
    for curves, name, colour, line, held in groups:
        if enough := {d: each for d, each in held.items() if len(each) >= 10}:
            curves.shares(name, list(enough), list(enough.values()), colour, linestyle=line)
    for curves in (left, right):
        curves.axes.set(xscale="log", xlabel="dimension $d$", ylim=(-0.03, 1.05))
        curves.axes.set_xticks(dimensions, [str(d) for d in dimensions])
        curves.axes.minorticks_off()
    left.label(0.08, ylabel="share of data sets", title="First gradient favourable")
    right.label(0.08, ylabel="share of runs from $W(0)=0$", title="Optimal selection reached")


_NORMS = {"frobenius": ("Frobenius", W_LINE), "nuclear": ("nuclear", KQ_LINE)}


@picture("rank", size=(10.6, 6.6), panels=(2, 2))
def rank(result: SweepResult, panels: Any) -> None:
    """Ranks against d for growing n and for growing T, shares of separable draws, and all relative spectra."""
    (inputs, tokens), (feasible, spectra) = panels
    shapes = [tuple(shape) for shape in result.configuration["shapes"]]
    few, short = (min(sizes) for sizes in zip(*shapes, strict=True))
    _draw_ranks(inputs, result, [shape for shape in shapes if shape[1] == short], "n", f"Growing $n$, $T={short}$")
    _draw_ranks(tokens, result, [shape for shape in shapes if shape[0] == few], "T", f"Growing $T$, $n={few}$")
    dimensions, curves = result.configuration["dimensions"], Curves(feasible)
    for colour, (n, T) in zip(PALETTE, shapes, strict=False):
        found = [result.column("solutions", "feasible", norm="frobenius", n=n, T=T, d=d) for d in dimensions]
        curves.shares(f"$n={n}$, $T={T}$", dimensions, found, colour)
    curves.label(0.075, xlabel="dimension $d$", ylabel="share of draws", title="Optimal selection separable",
                 ylim=(-0.03, 1.05), xlim=(0, None))  # fmt: skip
    _draw_spectra(spectra, result)


def _draw_ranks(axes: Axes, result: SweepResult, shapes: list[tuple[int, ...]], letter: str, title: str) -> None:
    curves = Curves(axes)
    for colour, (n, T) in zip(PALETTE, shapes, strict=False):
        for norm, (name, line) in _NORMS.items():
            found = {
                d: result.column("solutions", f"rank_{TOLERANCE:g}", norm=norm, n=n, T=T, d=d, feasible=True)
                for d in result.configuration["dimensions"]
            }
            drawn = {d: ranks for d, ranks in found.items() if len(ranks) >= 5}
            mean = [ranks.mean() for ranks in drawn.values()]
            error = [1.96 * ranks.std() / np.sqrt(len(ranks)) for ranks in drawn.values()]
            axes.errorbar(list(drawn), mean, error, color=colour, linestyle=line, marker="o", markersize=3.5, capsize=2)
            if mean:  # with few draws no dimension may have five that are separable
                curves.name(f"{name}, ${letter}={n if letter == 'n' else T}$", mean[-1], colour)
    top = max(n for n, _ in shapes)
    curves.label(0.075, xlabel="dimension $d$", ylabel="rank", title=title, ylim=(0, top * 1.06), xlim=(0, None))


def _draw_spectra(axes: Axes, result: SweepResult) -> None:
    """How many relative singular values lie where: a wide empty stretch around the tolerance justifies it."""
    table, spectra = result.tables["solutions"], result.arrays["spectra"]
    n, d, norms, feasible = (table[name].to_numpy() for name in ("n", "d", "norm", "feasible"))
    possible = np.arange(spectra.shape[1]) < np.minimum(n, d)[:, None]
    bins = np.logspace(-18, 0, 73)
    for place, (norm, (name, _)) in enumerate(_NORMS.items()):
        own, colour = (norms == norm) & feasible, PALETTE[place]
        relative = np.clip((spectra / spectra[:, :1].clip(1e-300))[own][possible[own]], 1e-18, 1)
        heights, _ = np.histogram(relative, bins)
        axes.stairs(heights, bins, color=colour, fill=True, alpha=0.35, linewidth=0)
        axes.stairs(heights, bins, color=colour, linewidth=1.4)
        axes.text(0.33, 0.93 - 0.09 * place, name, transform=axes.transAxes, color=colour, va="top")
    axes.axvline(TOLERANCE, color=FAINT, linewidth=1, linestyle=":")
    axes.set(xscale="log", yscale="log", xlabel=r"$\sigma_k/\sigma_1$, all $k\leq\min(n,d)$", ylabel="number")
    axes.set_title("Spectra of all solutions")
    axes.text(TOLERANCE * 1.6, 0.97, "tolerance", transform=axes.get_xaxis_transform(), va="top", color=FAINT)


_TITLES = {"paper": "Paper's protocol", "public constant": "With the public 1e-9", "decaying": "Decaying steps"}


@picture("multi-token", size=(10.6, 6.4), panels=(2, 3))
def multi_token(result: SweepResult, panels: Any) -> None:
    """Above: three protocols. Below: what each loses, distance against the largest masked probability, split runs."""
    above, (accepted, scatter, split) = panels
    dimensions, kept = result.configuration["dimensions"], Curves(accepted)
    for axes, protocol, colour in zip(above, _TITLES, PALETTE[3:], strict=False):
        _draw_distances(axes, result, protocol)
        shares = [share_accepted(result, d, protocol) for d in dimensions]
        kept.line(protocol, dimensions, shares, colour, marker="o", markersize=3.5)
    above[0].set_ylabel("1 - cosine to the trained $W$")
    kept.label(0.08, xlabel="dimension $d$", ylabel="share of draws accepted", ylim=(0, 1), title="What is kept",
               xticks=dimensions)  # fmt: skip
    for d, colour in zip(dimensions, PALETTE, strict=False):
        masked = np.clip(used(result, "largest_masked", d), 1e-30, None)
        distance = np.clip(used(result, "distance_generalized", d), 1e-12, None)
        scatter.plot(masked, distance, ".", color=colour, markersize=3, alpha=0.5, label=f"$d={d}$")
    scatter.set(xscale="log", yscale="log", xlabel="largest masked probability", title=_TITLES["paper"])
    scatter.set_ylabel(r"1 - cosine to $W_{fin}+C\,W_{svm}$")
    scatter.legend(fontsize=8, markerscale=3, handletextpad=0.2, loc="lower right")
    for kind, name, colour in ((0.0, "all inputs\npull", PALETTE[0]), (1.0, "an input\nsilent", PALETTE[1])):
        found = np.sort(np.clip(followed(result, kind), 1e-16, None))
        if len(found):
            split.plot(found, np.arange(1, len(found) + 1) / len(found), color=colour, drawstyle="steps-post")
            split.text(found[len(found) // 2] * 3, 0.45, name, color=colour, fontsize=8.5, va="top")
    split.set(xscale="log", xlim=(1e-16, 1e3), ylim=(0, 1.02), ylabel="share of runs", title="Split gradient")
    split.set(xlabel=r"1 - cosine to $W_{svm}$ outside $S_{fin}$", xticks=[1e-15, 1e-10, 1e-5, 1])


def _draw_distances(axes: Axes, result: SweepResult, protocol: str) -> None:
    predictions = (
        ("distance_generalized", r"$W_{fin}+C\,W_{svm}$", PALETTE[0]),
        ("distance_svm", r"$W_{svm}$", PALETTE[1]),
        ("distance_one_token", "one token", PALETTE[2]),
    )
    dimensions, curves = result.configuration["dimensions"], Curves(axes)
    for column, name, colour in predictions:
        found = {d: values for d in dimensions if len(values := used(result, column, d, protocol))}
        quartiles = np.array([np.nanquantile(values, (0.25, 0.5, 0.75)) for values in found.values()]).T
        curves.between(name, colour, list(found), *quartiles, marker="o", markersize=3.5)
        mean = [np.nanmean(values) for values in found.values()]
        axes.plot(list(found), mean, color=colour, linestyle=":", linewidth=1.2, marker="_", markersize=7)
    if protocol == PROTOCOLS[0]:
        words = "solid: median, quartiles\ndotted: mean"
        axes.text(0.03, 0.03, words, transform=axes.transAxes, fontsize=7.5, color=INK)
    curves.label(
        0.08, yscale="log", xlabel="dimension $d$", ylim=(2e-4, 0.6), title=_TITLES[protocol], xticks=dimensions
    )
