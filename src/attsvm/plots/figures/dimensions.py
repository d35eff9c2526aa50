"""[TaSVM] What changes as the dimension d grows: where runs end, first gradients, ranks, several tokens kept."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attsvm.experiments.dimensions import TYPES
from attsvm.experiments.multi_token import PROTOCOLS, followed, share_accepted, used
from attsvm.experiments.rank import TOLERANCE
from attsvm.plots.curves import draw_shares, label_ends
from attsvm.plots.style import FAINT, INK, KQ_LINE, PALETTE, W_LINE, new_figure
from attsvm.sweep.result import SweepResult


def draw_convergence_types(result: SweepResult) -> Mapping[str, Figure]:
    """Stacked bars for both starts, and the shares of global runs and of B1 with 95 % intervals."""
    dimensions = result.configuration["dimensions"]
    figure = new_figure(10.6, 3.7, layout="constrained")
    *bars, axes = figure.subplots(1, 3, width_ratios=(1, 1, 1.05))
    for panel, start, title in zip(bars, ("zero", "random"), ("$W(0) = 0$", "$W(0)$ random"), strict=True):
        _draw_types(panel, result, start)
        panel.set(xlabel="dimension $d$", ylabel="share of runs", ylim=(0, 1), title=title)
    handles, labels = bars[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=4, fontsize=8.5, handlelength=1.0)

    def found(column: str, d: int) -> np.ndarray:
        return result.column("runs", column, d=d, start="zero")

    everywhere = [found("all_support_everywhere", d) for d in dimensions]
    groups = (
        ("global, $W(0)=0$", [found("type", d) == TYPES[0] for d in dimensions], PALETTE[0]),
        ("B1, optimal SVM", [found("all_support", d) for d in dimensions], PALETTE[2]),
        ("B1, every SVM", [each[~np.isnan(each)] for each in everywhere], PALETTE[3]),
    )
    ends = [(name, float(draw_shares(axes, dimensions, held, colour=colour)[-1]), colour)
            for name, held, colour in groups]  # fmt: skip
    axes.set(xscale="log", xlabel="dimension $d$", ylabel="share of data sets", ylim=(-0.03, 1.05))
    axes.set_title("All tokens support")
    axes.set_xticks([2, 10, 20, 84, 320], ["2", "10", "20", "84", "320"])
    axes.minorticks_off()
    label_ends(axes, ends, least=0.08)
    return {"convergence-types": figure}


def _draw_types(axes: Axes, result: SweepResult, start: str) -> None:
    colours = dict(zip(TYPES, (PALETTE[0], PALETTE[5], PALETTE[1], "#C9C9C9"), strict=True))
    dimensions = result.configuration["dimensions"]
    places, bottom = np.arange(len(dimensions)), np.zeros(len(dimensions))
    for kind in TYPES:
        share = np.array([(result.column("runs", "type", d=d, start=start) == kind).mean() for d in dimensions])
        axes.bar(places, share, 0.78, bottom=bottom, color=colours[kind], linewidth=0, label=kind)
        bottom += share
    axes.set_xticks(places, [str(d) for d in dimensions], rotation=60, fontsize=8)


def draw_first_gradient(result: SweepResult) -> Mapping[str, Figure]:
    """Left: how often the first gradient is favourable. Right: how often the optimal selection is reached."""
    dimensions = result.configuration["dimensions"]
    figure = new_figure(7.6, 3.4, layout="constrained")
    left, right = figure.subplots(1, 2)

    def found(column: str, **where: object) -> dict[int, np.ndarray]:
        return {d: result.column("datasets", column, d=d, **where) for d in dimensions}

    groups = (
        (left, "favourable", PALETTE[0], W_LINE, found("favourable")),
        (right, "favourable", PALETTE[0], W_LINE, found("small_optimal", favourable=True)),
        (right, "not favourable", PALETTE[1], KQ_LINE, found("small_optimal", favourable=False)),
    )
    ends: dict[Axes, list[tuple[str, float, str]]] = {left: [], right: []}
    for axes, name, colour, line, held in groups:
        enough = [d for d in dimensions if len(held[d]) >= 10]
        if not enough:
            continue
        share = draw_shares(axes, enough, [held[d] for d in enough], colour=colour, line=line)
        ends[axes].append((name, float(share[-1]), colour))
    for axes in (left, right):
        axes.set(xscale="log", xlabel="dimension $d$", ylim=(-0.03, 1.05))
        axes.set_xticks(dimensions, [str(d) for d in dimensions])
        axes.minorticks_off()
        label_ends(axes, ends[axes], least=0.08)
    left.set(ylabel="share of data sets", title="First gradient favourable")
    right.set(ylabel="share of runs from $W(0)=0$", title="Optimal selection reached")
    return {"first-gradient": figure}


_NORMS = {"frobenius": ("Frobenius", W_LINE), "nuclear": ("nuclear", KQ_LINE)}


def draw_rank(result: SweepResult) -> Mapping[str, Figure]:
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


def _draw_ranks(axes: Axes, result: SweepResult, shapes: list[tuple[int, ...]], letter: str, title: str) -> None:
    ends = []
    for place, (n, T) in enumerate(shapes):
        for norm, (name, line) in _NORMS.items():
            x, mean, error = [], [], []
            for d in result.configuration["dimensions"]:
                ranks = result.column("solutions", f"rank_{TOLERANCE:g}", norm=norm, n=n, T=T, d=d, feasible=True)
                if len(ranks) >= 5:
                    x.append(d)
                    mean.append(ranks.mean())
                    error.append(1.96 * ranks.std() / np.sqrt(len(ranks)))
            axes.errorbar(x, mean, error, color=PALETTE[place], linestyle=line, marker="o", markersize=3.5, capsize=2)
            size = n if letter == "n" else T
            ends.append((f"{name}, ${letter}={size}$", float(mean[-1]), PALETTE[place]))
    top = max(n for n, _ in shapes)
    axes.set(xlabel="dimension $d$", ylabel="rank", title=title, ylim=(0, top * 1.06), xlim=(0, None))
    label_ends(axes, ends, least=0.075)


def _draw_feasible(axes: Axes, result: SweepResult, shapes: list[tuple[int, ...]]) -> None:
    dimensions = result.configuration["dimensions"]
    ends = []
    for place, (n, T) in enumerate(shapes):
        found = [result.column("solutions", "feasible", norm="frobenius", n=n, T=T, d=d) for d in dimensions]
        share = draw_shares(axes, dimensions, found, colour=PALETTE[place])
        ends.append((f"$n={n}$, $T={T}$", float(share[-1]), PALETTE[place]))
    axes.set(xlabel="dimension $d$", ylabel="share of draws", title="Optimal selection separable", ylim=(-0.03, 1.05))
    axes.set_xlim(0, None)
    label_ends(axes, ends, least=0.075)


def _draw_spectra(axes: Axes, result: SweepResult) -> None:
    """How many relative singular values lie where: a wide empty stretch around the tolerance justifies it."""
    table, spectra = result.tables["solutions"], result.arrays["spectra"]
    n, d, norms, feasible = (table[name].to_numpy() for name in ("n", "d", "norm", "feasible"))
    possible = np.arange(spectra.shape[1]) < np.minimum(n, d)[:, None]
    bins = np.logspace(-18, 0, 73)
    for place, norm in enumerate(_NORMS):
        own, colour = (norms == norm) & feasible, PALETTE[place]
        relative = np.clip((spectra / spectra[:, :1].clip(1e-300))[own][possible[own]], 1e-18, 1)
        heights, _ = np.histogram(relative, bins)
        axes.stairs(heights, bins, color=colour, fill=True, alpha=0.35, linewidth=0)
        axes.stairs(heights, bins, color=colour, linewidth=1.4)
    axes.axvline(TOLERANCE, color=FAINT, linewidth=1, linestyle=":")
    axes.set(xscale="log", yscale="log", xlabel=r"$\sigma_k/\sigma_1$, all $k\leq\min(n,d)$", ylabel="number")
    axes.set_title("Spectra of all solutions")
    axes.text(TOLERANCE * 1.6, 0.97, "tolerance", transform=axes.get_xaxis_transform(), va="top", color=FAINT)
    for place, (name, _) in enumerate(_NORMS.values()):
        axes.text(0.33, 0.93 - 0.09 * place, name, transform=axes.transAxes, color=PALETTE[place], va="top")


_TITLES = {
    "paper": "Paper's protocol",
    "public constant": "With the public 1e-9",
    "decaying": "Decaying steps",
}


def draw_multi_token(result: SweepResult) -> Mapping[str, Figure]:
    """Above: three protocols. Below: what each loses, distance against the largest masked probability, split runs."""
    figure = new_figure(10.6, 6.4, layout="constrained")
    above, below = figure.subplots(2, 3)
    for axes, protocol in zip(above, PROTOCOLS[:3], strict=True):
        _draw_distances(axes, result, protocol)
    above[0].set_ylabel("1 - cosine to the trained $W$")
    _draw_accepted(below[0], result)
    _draw_scatter(below[1], result, "paper")
    _draw_followed(below[2], result)
    return {"multi-token": figure}


def _draw_distances(axes: Axes, result: SweepResult, protocol: str) -> None:
    predictions = (
        ("distance_generalized", r"$W_{fin}+C\,W_{svm}$", PALETTE[0]),
        ("distance_svm", r"$W_{svm}$", PALETTE[1]),
        ("distance_one_token", "one token", PALETTE[2]),
    )
    dimensions = result.configuration["dimensions"]
    ends = []
    for column, name, colour in predictions:
        drawn = {d: used(result, column, d, protocol) for d in dimensions}
        found = {d: values for d, values in drawn.items() if len(values)}
        middle = np.array([np.nanmedian(values) for values in found.values()])
        low, high = np.array([np.nanquantile(values, (0.25, 0.75)) for values in found.values()]).T
        axes.fill_between(list(found), low, high, color=colour, alpha=0.14, linewidth=0)
        axes.plot(list(found), middle, color=colour, marker="o", markersize=3.5)
        mean = [np.nanmean(values) for values in found.values()]
        axes.plot(list(found), mean, color=colour, linestyle=":", linewidth=1.2, marker="_", markersize=7)
        ends.append((name, float(middle[-1]), colour))
    axes.set(yscale="log", xlabel="dimension $d$", ylim=(2e-4, 0.6), title=_TITLES[protocol])
    axes.set_xticks(dimensions)
    if protocol == PROTOCOLS[0]:
        words = "solid: median, quartiles\ndotted: mean"
        axes.text(0.03, 0.03, words, transform=axes.transAxes, fontsize=7.5, color=INK)
    label_ends(axes, ends, least=0.08)


def _draw_accepted(axes: Axes, result: SweepResult) -> None:
    dimensions = result.configuration["dimensions"]
    ends = []
    for place, protocol in enumerate(PROTOCOLS[:3]):
        shares = [share_accepted(result, d, protocol) for d in dimensions]
        axes.plot(dimensions, shares, color=PALETTE[3 + place], marker="o", markersize=3.5)
        ends.append((protocol, shares[-1], PALETTE[3 + place]))
    axes.set(xlabel="dimension $d$", ylabel="share of draws accepted", ylim=(0, 1), title="What is kept")
    axes.set_xticks(dimensions)
    label_ends(axes, ends, least=0.08)


def _draw_followed(axes: Axes, result: SweepResult) -> None:
    """Distances of the runs that went on with the split gradient, those with a silent input apart."""
    for kind, name, colour in ((0.0, "all inputs\npull", PALETTE[0]), (1.0, "an input\nsilent", PALETTE[1])):
        found = np.sort(np.clip(followed(result, kind), 1e-16, None))
        if len(found):
            axes.plot(found, np.arange(1, len(found) + 1) / len(found), color=colour, drawstyle="steps-post")
            axes.text(found[len(found) // 2] * 3, 0.45, name, color=colour, fontsize=8.5, va="top")
    axes.set(xscale="log", xlim=(1e-16, 1e3), ylim=(0, 1.02), ylabel="share of runs", title="Split gradient")
    axes.set(xlabel=r"1 - cosine to $W_{svm}$ outside $S_{fin}$", xticks=[1e-15, 1e-10, 1e-5, 1])


def _draw_scatter(axes: Axes, result: SweepResult, protocol: str) -> None:
    for place, d in enumerate(result.configuration["dimensions"]):
        masked = np.clip(used(result, "largest_masked", d, protocol), 1e-30, None)
        distance = np.clip(used(result, "distance_generalized", d, protocol), 1e-12, None)
        axes.plot(masked, distance, ".", color=PALETTE[place], markersize=3, alpha=0.5, label=f"$d={d}$")
    axes.set(xscale="log", yscale="log", xlabel="largest masked probability", title=_TITLES[protocol])
    axes.set_ylabel(r"1 - cosine to $W_{fin}+C\,W_{svm}$")
    axes.legend(fontsize=8, markerscale=3, handletextpad=0.2, loc="lower right")
