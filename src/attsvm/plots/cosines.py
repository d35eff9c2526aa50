"""How near runs come to max-margin solutions, step by step."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attsvm.descent import Run
from attsvm.norms import direction_cosine
from attsvm.plots.curves import band, label_ends
from attsvm.plots.scene import DASHES
from attsvm.plots.style import colour_of, house_style, new_figure
from attsvm.svm import SVMSolution

_ROUND_OFF = 1e-16


def plot_cosines(
    runs: Mapping[str, Run] | Run, solutions: Mapping[str, SVMSolution] | SVMSolution, *, title: str | None = None
) -> Figure:
    """Direction cosine of every run to every solution over the recorded steps, and 1 - cosine on logarithmic axes.

    A colour for each solution, a line style for each run. Of batches the median is drawn, with a band from the 10 % to
    the 90 % quantile; elements without a solution are left out.

    Arguments:
        runs: runs by name, or one; each must have recorded its weights.
        solutions: solutions by name, or one, for the same data sets.
        title: text above.

    Returns:
        A figure of its own with two panels.

    Raises:
        ValueError: if a run recorded no weights, or a solution's shape does not fit a run's.

    >>> import attsvm
    >>> data = attsvm.data.random_sphere(n=2, T=3, d=4, batch=5, seed=0)
    >>> run = attsvm.fit(data, steps=50, record=5, engine=attsvm.descent.TorchEngine())
    >>> solution = attsvm.solve(attsvm.AttentionSVM(data, run.selected))
    >>> len(plot_cosines(run, solution).axes)
    2
    """
    named_runs = {"run": runs} if isinstance(runs, Run) else dict(runs)
    named = {"solution": solutions} if isinstance(solutions, SVMSolution) else dict(solutions)
    if not named_runs or not named:
        raise ValueError("runs and solutions must hold at least one each")
    curves = [
        (f"{run_name}, {name}" if len(named_runs) > 1 and len(named) > 1 else run_name if len(named) == 1 else name,
         colour_of(order), DASHES[row % len(DASHES)], run.history.step.numpy(), _cosines(run_name, run, name, solution))
        for row, (run_name, run) in enumerate(named_runs.items())
        for order, (name, solution) in enumerate(named.items())
    ]  # fmt: skip
    with house_style():
        figure = new_figure(9.2, 3.6 if title is None else 3.9, layout="constrained")
        plain, gaps = figure.subplots(1, 2)
        _draw(plain, curves, gap=False)
        _draw(gaps, curves, gap=True)
        if title is not None:
            figure.suptitle(title, x=0.02, ha="left", fontweight="bold", fontsize=12)
        figure.canvas.draw()  # settles the layout while the style is in force
    return figure


_Curve = tuple[str, str, tuple[float, ...] | None, np.ndarray, np.ndarray]


def _cosines(run_name: str, run: Run, name: str, solution: SVMSolution) -> np.ndarray:
    """``[elements, records]``; solved elements only."""
    weights = run.history.weights
    if weights is None or len(run.history) == 0:
        raise ValueError(f"run {run_name!r} has no recorded weights; train it with 'weights' in keep=")
    own = tuple(solution.weights.shape)
    if tuple(weights.shape[-len(own) :]) != own:
        raise ValueError(
            f"solution {name!r} must fit the weights {list(weights.shape[1:])} of run {run_name!r}; it has {list(own)}"
        )
    cosines = direction_cosine(weights, solution.weights.to(weights))
    solved = solution.solved.to(cosines.device).expand(cosines.shape[1:])
    kept = cosines[:, solved] if cosines.ndim > 1 else cosines[:, None][:, solved.reshape(1)]
    if kept.shape[1] == 0:
        raise ValueError(f"solution {name!r} is not solved for any element of run {run_name!r}")
    return np.asarray(torch.nan_to_num(kept).cpu().numpy().T)


def _draw(axes: Axes, curves: list[_Curve], *, gap: bool) -> None:
    ends = []
    for name, colour, dashes, steps, cosines in curves:
        shown = steps > 0 if gap else steps >= 0
        values = np.maximum(1 - cosines[:, shown], _ROUND_OFF) if gap else cosines[:, shown]
        middle = band(axes, steps[shown], values, colour=colour, line="-" if dashes is None else (0, dashes))
        ends.append((name, float(middle[-1]), colour))
    axes.set_xlabel("step")
    if gap:
        axes.set(xscale="log", yscale="log", ylabel="1 - cosine")
    else:
        axes.set(ylabel="direction cosine", ylim=(min(axes.get_ylim()[0], 0.0), 1.02))
    label_ends(axes, ends, least=0.075)
