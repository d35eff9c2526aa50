"""The margins of weights next to the best possible ones: which tokens hold a direction back."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from attsvm.data.checks import ArrayLike, as_floating, check_shape
from attsvm.plots.style import FAINT, HAIRLINE, INK, colour_of, house_style, marker_of, new_figure
from attsvm.svm import AttentionSVM, SVMSolution


def plot_margins(
    problem: AttentionSVM,
    solution: SVMSolution,
    weights: Mapping[str, ArrayLike] | ArrayLike,
    *,
    title: str | None = None,
) -> Figure:
    """Margins of weights on every row of a problem, in units of the largest margin that their norm allows.

    A row (i, t) asks that the selected token of input i beats token t. With all weights scaled to the norm of W_mm, the
    max-margin solution has margin 1 or more on every row, exactly 1 on its support tokens (filled); nothing else
    reaches 1 on all rows. The lowest point of some weights is their margin efficiency.

    Arguments:
        problem: one problem (no batch) of one selected token an input.
        solution: of this problem.
        weights: weights ``[d, dq]`` by name, or one.
        title: text above.

    Returns:
        A figure of its own: rows along the x axis, sorted by the solution's margin.

    Raises:
        ValueError: if the problem is a batch, the solution is none, or weights do not fit or are zero.

    >>> import attsvm
    >>> data = attsvm.data.random_sphere(n=2, T=3, d=4, seed=0)
    >>> run = attsvm.fit(data, steps=50, engine=attsvm.descent.TorchEngine())
    >>> problem = attsvm.AttentionSVM(data, run.selected)
    >>> len(plot_margins(problem, attsvm.solve(problem), run.weights).axes)
    1
    """
    named = dict(weights) if isinstance(weights, Mapping) else {"W": weights}
    _check(problem, solution)
    rows = problem.inequalities.cpu().numpy()
    best = problem.margins(solution.weights).cpu().numpy()[rows]
    support = solution.support.cpu().numpy()[rows]
    inputs, tokens = np.nonzero(rows)
    order = np.lexsort((tokens, inputs, best.round(9), ~support))
    measured = {name: _scaled(problem, solution, name, value)[rows][order] for name, value in named.items()}
    with house_style():
        figure = new_figure(min(4.6 + 0.16 * len(order), 12.0), 3.8 if title is None else 4.1, layout="constrained")
        axes = figure.subplots()
        _draw(axes, best[order], support[order], inputs[order], measured)
        if len(order) <= 40:
            axes.set_xticks(range(len(order)), [f"{i},{t}" for i, t in zip(inputs[order], tokens[order], strict=True)],
                            rotation=90, fontsize=7)  # fmt: skip
        axes.set_xlabel("row: input, token")
        if title is not None:
            figure.suptitle(title, x=0.02, ha="left", fontweight="bold", fontsize=12)
        figure.canvas.draw()  # settles the layout while the style is in force
    return figure


def _check(problem: AttentionSVM, solution: SVMSolution) -> None:
    if problem.batch_shape:
        raise ValueError(f"problem must be one problem; got a batch of {list(problem.batch_shape)}, pick problem[i]")
    expected = (problem.data.d, problem.data.dq)
    if tuple(solution.weights.shape) != expected:
        got = list(solution.weights.shape)
        raise ValueError(f"solution must have weights {list(expected)} to fit the problem; got {got}")
    if not bool(solution.solved):
        raise ValueError(f"solution has no margins to compare with: {solution.status.value}")
    if bool(problem.equalities.any()) or not bool(problem.inequalities.any()):
        raise ValueError("problem must select one token an input, of at least two")


def _scaled(problem: AttentionSVM, solution: SVMSolution, name: str, weights: ArrayLike) -> np.ndarray:
    """Margins ``[n, T]`` after scaling to the norm of the solution."""
    matrix = as_floating(weights, f"weights {name!r}").to(solution.weights)
    check_shape(matrix, f"weights {name!r}", (problem.data.d, problem.data.dq), "d, dq")
    size = solution.norm.value(matrix)
    if not bool(torch.isfinite(size)) or float(size) == 0:
        raise ValueError(f"weights {name!r} must be finite and not zero to have a direction")
    scaled = matrix * (solution.norm.value(solution.weights) / size)
    return np.asarray(problem.margins(scaled).cpu().numpy())


def _draw(
    axes: Axes, best: np.ndarray, support: np.ndarray, inputs: np.ndarray, measured: Mapping[str, np.ndarray]
) -> None:
    places = np.arange(len(best))
    axes.axhline(1.0, color=INK, linewidth=0.9, zorder=1)
    axes.axhline(0.0, color=HAIRLINE, linewidth=0.9, zorder=0)
    axes.step(places, best, where="mid", color=FAINT, linewidth=1.2, zorder=2, gid="solution")
    for series, margins in enumerate(measured.values()):
        colour = colour_of(series)
        for i in np.unique(inputs):
            for filled in (True, False):
                here = (inputs == i) & (support == filled)
                axes.plot(
                    places[here], margins[here], linestyle="", marker=marker_of(i), markersize=5.5, zorder=3,
                    markerfacecolor=colour if filled else "white", markeredgecolor=colour, gid="margins",
                )  # fmt: skip
    keys = [
        Line2D([], [], linestyle="", marker="o", color=colour_of(series), label=f"${name}$: least {margins.min():.3f}")
        for series, (name, margins) in enumerate(measured.items())
    ]
    keys.append(Line2D([], [], color=FAINT, linewidth=1.2, label=r"$W_\mathrm{mm}$: least 1"))
    for face, name in ((FAINT, "support token"), ("white", "other token")):
        keys.append(Line2D([], [], linestyle="", marker="o", markerfacecolor=face, markeredgecolor=FAINT, label=name))
    axes.legend(handles=keys, loc="center left", bbox_to_anchor=(1.01, 0.5), borderaxespad=0, fontsize=8.5)
    axes.set(ylabel="margin over the largest possible", xlim=(-0.6, len(best) - 0.4))
