"""Pictures of your own runs: attention along a run, cosines to solutions step by step, margins row by row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from attsvm.data.checks import ArrayLike, as_floating, check_kind, check_shape
from attsvm.descent import Run
from attsvm.norms import direction_cosine
from attsvm.plots import style
from attsvm.plots.curves import Curves
from attsvm.plots.style import FAINT, LINES, LineStyle, by_name, colour_of, drawing, label_of
from attsvm.svm import AttentionSVM, SVMSolution
from attsvm.theory import RegularizationPath

_WIDE = 3  # panels in a row
_KEPT, _GROWN = 0.02, 1.5
"""A token is named if it keeps this share of attention, or if its share at some time grows by this factor."""
_ROUND_OFF = 1e-16  # below this, 1 - cosine is drawn as if it were this


def plot_attention(run: Run, *, element: int | tuple[int, ...] = (), title: str | None = None) -> Figure:
    """Attention of every token over the recorded steps, with a panel for each input.

    Tokens keep their colour from panel to panel and are named where their curve ends; those whose attention neither
    grows by half at some time nor ends above 2 % are grey.

    Arguments:
        run: of one data set, or of several with `element` saying which. It must have recorded its attention.
        element: index along the run's leading axes ``[*starts, *batch]``.
        title: text above.

    A `ValueError` if the run recorded no attention, or `element` does not pick one run.

    >>> import attsvm
    >>> data = attsvm.data.random_sphere(n=4, T=3, d=5, seed=0)
    >>> run = attsvm.fit(data, steps=30, record=1, engine=attsvm.descent.TorchEngine())
    >>> len(plot_attention(run).axes)
    4
    """
    check_kind(run, Run, "run", "a Run")
    attention = _attention(run, element)
    inputs = attention.shape[1]
    wide = min(_WIDE, inputs)
    high = -(-inputs // wide)
    with drawing(1.2 + 2.9 * wide, (0.5 if title else 0.2) + 2.2 * high, title, layout="constrained") as figure:
        for i, axes in enumerate(figure.subplots(high, wide, squeeze=False, sharey=True).flat):
            if i >= inputs:
                axes.remove()
                continue
            _draw_input(axes, run.history.step.numpy(), attention[:, i])
            axes.set_title(f"input {i}", fontsize=9.5, fontweight="normal")
            axes.set_xlabel("step" if i >= inputs - wide else "")
            axes.set_ylabel("attention" if i % wide == 0 else "")
    return figure


def _attention(run: Run, element: int | tuple[int, ...]) -> np.ndarray:
    """``[records, n, T]`` of one run."""
    if (recorded := run.history.attention) is None or len(run.history) == 0:
        raise ValueError("run has no recorded attention; train it with 'attention' in keep=")
    lead = tuple(recorded.shape[1:-2])
    index = (element,) if isinstance(element, int) else tuple(element)
    if len(index) != len(lead) or any(not -size <= place < size for place, size in zip(index, lead, strict=True)):
        needed = "be left out" if not lead else f"be an index into {list(lead)}"
        raise ValueError(f"element must {needed}, the run's leading axes [*starts, *batch]; got {element!r}")
    return recorded.movedim(0, -3)[index].cpu().numpy()


def _draw_input(axes: Axes, steps: np.ndarray, attention: np.ndarray) -> None:
    curves = Curves(axes)
    for t, values in enumerate(attention.T):
        named = values[-1] > _KEPT or values.max() > max(_KEPT, _GROWN * values[0])
        colour = colour_of(t) if named else FAINT
        axes.plot(steps, values, color=colour, linewidth=1.8 if named else 0.8, gid=f"token {t}")
        if named:
            curves.name(f"token {t}", values[-1], colour)
    curves.label(0.09, 8, ylim=(-0.02, 1.02), xlim=(steps[0], max(steps[-1], steps[0] + 1)))


def plot_cosines(
    runs: Mapping[str, Run] | Run, solutions: Mapping[str, SVMSolution] | SVMSolution, *, title: str | None = None
) -> Figure:
    """Direction cosine of every run to every solution over the recorded steps, and 1 - cosine on logarithmic axes.

    A colour for each solution, a line style for each run. Of batches the median is drawn, with a band from the 10 % to
    the 90 % quantile; elements without a solution are left out.

    Arguments:
        runs: runs by name, or one; each must have recorded its weights. Any text is a name; mathematics in it stands
            between dollar signs.
        solutions: solutions by name, or one, for the same data sets.
        title: text above.

    A `ValueError` if a run recorded no weights, or a solution's shape does not fit a run's.

    >>> import attsvm
    >>> data = attsvm.data.random_sphere(n=2, T=3, d=4, batch=5, seed=0)
    >>> run = attsvm.fit(data, steps=50, record=5, engine=attsvm.descent.TorchEngine())
    >>> solution = attsvm.solve(attsvm.AttentionSVM(data, run.selected))
    >>> len(plot_cosines(run, solution).axes)
    2
    """
    named_runs = by_name(runs, Run, "runs", "run")
    named = by_name(solutions, SVMSolution, "solutions", "solution")
    found: list[tuple[str, str, LineStyle, np.ndarray, np.ndarray]] = []  # label, colour, line, steps, cosines
    for row, (run_name, run) in enumerate(named_runs.items()):
        if run.history.weights is None or len(run.history) == 0:
            raise ValueError(f"run {run_name!r} has no recorded weights; train it with 'weights' in keep=")
        for order, (name, solution) in enumerate(named.items()):
            parts = [run_name] if len(named) == 1 else [name] if len(named_runs) == 1 else [run_name, name]
            cosines, _ = _cosines(f"run {run_name!r}", run.history.weights, f"solution {name!r}", solution)
            label = ", ".join(map(label_of, parts))
            found.append((label, colour_of(order), LINES[row % len(LINES)], run.history.step.numpy(), cosines))
    wide = 9.2 + 2 * _more_room(label for label, *_ in found)
    with drawing(wide, 3.6 if title is None else 3.9, title, layout="constrained") as figure:
        plain, gaps = map(Curves, figure.subplots(1, 2))
        for label, colour, line, steps, cosines in found:
            plain.band(label, steps, cosines, colour, line=line)
            gaps.band(label, steps[steps > 0], np.maximum(1 - cosines[:, steps > 0], _ROUND_OFF), colour, line=line)
        plain.label(0.075, xlabel="step", ylabel="direction cosine", ylim=(min(plain.axes.get_ylim()[0], 0.0), 1.02))
        gaps.label(0.075, xlabel="step", xscale="log", yscale="log", ylabel="1 - cosine")
    return figure


def _more_room(labels: Iterable[str]) -> float:
    """Inches that names right of the axes need beyond what the usual figure leaves for them."""
    return max(0.0, 0.065 * (max(len(re.sub(r"\$.*?\$", "xx", label)) for label in labels) - 24))


def _cosines(owner: str, weights: Tensor, name: str, solution: SVMSolution) -> tuple[np.ndarray, Tensor]:
    """Cosines ``[elements, records]`` of weights ``[records, *lead, d, dq]``, and a mask ``[*lead]`` of the solved."""
    shape, lead = tuple(solution.weights.shape), weights.shape[1:-2]
    if tuple(weights.shape[-len(shape) :]) != shape:
        raise ValueError(f"{name} must fit the weights {list(weights.shape[1:])} of {owner}; it has {list(shape)}")
    solved = solution.solved.to(weights.device).expand(lead)
    if not bool(solved.any()):
        raise ValueError(f"{name} is not solved for any element of {owner}")
    cosines = direction_cosine(weights, solution.weights.to(weights)).reshape(len(weights), *lead)[:, solved]
    return np.asarray(torch.nan_to_num(cosines).reshape(len(weights), -1).cpu().numpy().T), solved


def plot_path(
    paths: Mapping[str, RegularizationPath] | RegularizationPath,
    solutions: Mapping[str, SVMSolution] | SVMSolution,
    *,
    title: str | None = None,
) -> Figure:
    """How regularization paths turn to max-margin solutions: 1 - cosine of W_R and W_mm against the radius R.

    Both axes are logarithmic, so that a rate is a slope. A colour and a line style for each path; of batches the median
    is drawn, with a band from the 10 % to the 90 % quantile, over the elements that have a solution. Points are hollow
    where some of these elements did not converge at that radius.

    Arguments:
        paths: paths by name, or one, from `attsvm.regularization_path`.
        solutions: one solution for all paths, or one for each by the same names: the norms should be those of the
            balls. Where a solution is not unique (nuclear, say) a path may tend to another one.
        title: text above.

    A `ValueError` if an argument is of another kind, a path has no solution, or their shapes do not fit.

    >>> import attsvm
    >>> data = attsvm.data.example("two-inputs")
    >>> path = attsvm.regularization_path(data, radii=[1.0, 10.0, 100.0])
    >>> solution = attsvm.solve(attsvm.AttentionSVM(data, path.selected[-1]))
    >>> len(plot_path(path, solution).axes)
    1
    """
    named = by_name(paths, RegularizationPath, "paths", "path")
    if isinstance(solutions, SVMSolution):
        own = dict.fromkeys(named, solutions)
    else:
        own = by_name(solutions, SVMSolution, "solutions", "solution")
        if missing := [name for name in named if name not in own]:
            raise ValueError(f"solutions must have the names of paths; {missing[0]!r} is not among {', '.join(own)}")
    found = {name: _cosines(f"path {name!r}", path.weights, "the solution", own[name]) for name, path in named.items()}
    wide = 5.6 + _more_room(map(label_of, named))
    with drawing(wide, 3.6 if title is None else 3.9, title, layout="constrained") as figure:
        curves = Curves(figure.subplots())
        for order, (name, path) in enumerate(named.items()):
            cosines, solved = found[name]
            gaps, radii, colour = np.maximum(1 - cosines, _ROUND_OFF), path.radii.cpu().numpy(), colour_of(order)
            converged = path.converged[:, solved].reshape(len(radii), -1).all(-1).cpu().numpy()
            alone = isinstance(paths, RegularizationPath)
            middle = curves.band("" if alone else label_of(name), radii, gaps, colour, line=LINES[order % len(LINES)])
            _mark(
                curves.axes, radii, middle, converged, colour, marker=style.marker_of(order), markersize=4.5, gid="path"
            )
        curves.label(0.075, xscale="log", yscale="log", xlabel="radius $R$ of the ball",
                     ylabel=r"1 - cosine of $W_R$ and $W_\mathrm{mm}$")  # fmt: skip
    return figure


def _mark(axes: Axes, x: np.ndarray, y: np.ndarray, filled: np.ndarray, colour: str, **look: Any) -> None:
    """Marks at these points, hollow where they are not `filled`."""
    for face, here in ((colour, filled), ("white", ~filled)):
        axes.plot(x[here], y[here], linestyle="", markerfacecolor=face, markeredgecolor=colour, **look)


def plot_margins(
    problem: AttentionSVM,
    solution: SVMSolution,
    weights: Mapping[str, ArrayLike] | ArrayLike,
    *,
    title: str | None = None,
) -> Figure:
    """Margins of weights on every row of a problem, in units of the largest margin that their norm allows.

    A row (i, t) asks that the selected token of input i beats token t; rows are sorted by the solution's margin. With
    all weights scaled to the norm of W_mm, the max-margin solution has margin 1 or more on every row, exactly 1 on its
    support tokens (filled); nothing else reaches 1 on all rows. The lowest point of some weights is their margin
    efficiency.

    Arguments:
        problem: one problem (no batch) that selects one token per input.
        solution: of this problem.
        weights: weights ``[d, dq]`` by name, or one. Any text is a name; a letter or two, or LaTeX such as
            ``KQ^{\\mathsf{T}}``, is set as mathematics.
        title: text above.

    A `ValueError` if the problem is a batch, the solution is none, or weights do not fit or are zero.

    >>> import attsvm
    >>> data = attsvm.data.random_sphere(n=2, T=3, d=4, seed=0)
    >>> run = attsvm.fit(data, steps=50, engine=attsvm.descent.TorchEngine())
    >>> problem = attsvm.AttentionSVM(data, run.selected)
    >>> len(plot_margins(problem, attsvm.solve(problem), run.weights).axes)
    1
    """
    named = dict(weights) if isinstance(weights, Mapping) else {"W": weights}
    _check_margins(problem, solution)
    rows = problem.inequalities.cpu().numpy()
    best = problem.margins(solution.weights).cpu().numpy()[rows]
    support = solution.support.cpu().numpy()[rows]
    inputs, tokens = np.nonzero(rows)
    order = np.lexsort((tokens, inputs, best.round(9), ~support))
    measured = {name: _scaled(problem, solution, name, value)[rows][order] for name, value in named.items()}
    wide = min(4.6 + 0.16 * len(order), 12.0)
    with drawing(wide, 3.8 if title is None else 4.1, title, layout="constrained") as figure:
        axes = figure.subplots()
        _draw_margins(axes, best[order], support[order], inputs[order], measured)
        if len(order) <= 40:
            axes.set_xticks(range(len(order)), [f"{i},{t}" for i, t in zip(inputs[order], tokens[order], strict=True)],
                            rotation=90, fontsize=7)  # fmt: skip
        axes.set_xlabel("row: input, token")
    return figure


def _check_margins(problem: AttentionSVM, solution: SVMSolution) -> None:
    check_kind(problem, AttentionSVM, "problem", "an AttentionSVM")
    check_kind(solution, SVMSolution, "solution", "an SVMSolution")
    if problem.batch_shape:
        raise ValueError(f"problem must be one problem; got a batch of {list(problem.batch_shape)}, pick problem[i]")
    expected, got = [problem.data.d, problem.data.dq], list(solution.weights.shape)
    if got != expected:
        raise ValueError(f"solution must have weights {expected} to fit the problem; got {got}")
    if not bool(solution.solved):
        raise ValueError(f"solution has no margins to compare with: {solution.sentences}")
    if bool(problem.equalities.any()) or not bool(problem.inequalities.any()):
        raise ValueError("problem must select one token per input, of at least two tokens")


def _scaled(problem: AttentionSVM, solution: SVMSolution, name: str, weights: ArrayLike) -> np.ndarray:
    """Margins ``[n, T]`` after scaling to the norm of the solution."""
    matrix = as_floating(weights, f"weights {name!r}").to(solution.weights)
    check_shape(matrix, f"weights {name!r}", (problem.data.d, problem.data.dq), "d, dq")
    size = solution.norm.value(matrix)
    if not bool(torch.isfinite(size)) or float(size) == 0:
        raise ValueError(f"weights {name!r} must be finite and not zero to have a direction")
    return np.asarray(problem.margins(matrix * (solution.norm.value(solution.weights) / size)).cpu().numpy())


def _draw_margins(
    axes: Axes, best: np.ndarray, support: np.ndarray, inputs: np.ndarray, measured: Mapping[str, np.ndarray]
) -> None:
    places = np.arange(len(best))
    axes.axhline(1.0, color=style.INK, linewidth=0.9, zorder=1)
    axes.axhline(0.0, color=style.HAIRLINE, linewidth=0.9, zorder=0)
    axes.step(places, best, where="mid", color=FAINT, linewidth=1.2, zorder=2, gid="solution")
    for series, margins in enumerate(measured.values()):
        for i in np.unique(inputs):
            own, look = inputs == i, {"marker": style.marker_of(i), "markersize": 5.5, "zorder": 3, "gid": "margins"}
            _mark(axes, places[own], margins[own], support[own], colour_of(series), **look)
    keys = [
        (Line2D([], [], linestyle="", marker="o", color=colour_of(row)), f"{label_of(name)}: least {margins.min():.3f}")
        for row, (name, margins) in enumerate(measured.items())
    ]
    keys.append((Line2D([], [], color=FAINT, linewidth=1.2), r"$W_\mathrm{mm}$: least 1"))
    for face, name in ((FAINT, "support token"), ("white", "other token")):
        keys.append((Line2D([], [], linestyle="", marker="o", markerfacecolor=face, markeredgecolor=FAINT), name))
    legend = axes.legend(
        [handle for handle, _ in keys], ["name"] * len(keys), loc="center left", bbox_to_anchor=(1.01, 0.5),
        borderaxespad=0, fontsize=8.5,
    )  # fmt: skip
    for text, (_, name) in zip(legend.get_texts(), keys, strict=True):
        text.set_text(name)  # a legend would leave out names that begin with an underscore
    axes.set(ylabel="margin over the largest possible", xlim=(-0.6, len(best) - 0.4))
