"""Attention along a run: which token each input turns to, and when."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attsvm.descent import Run
from attsvm.plots.curves import label_ends
from attsvm.plots.style import FAINT, colour_of, house_style, new_figure

_WIDE = 3
"""Panels in a row."""
_KEPT, _GROWN = 0.02, 1.5
"""A token is named if it keeps this share of attention, or if its share at some time grows by this factor."""


def plot_attention(run: Run, *, element: int | tuple[int, ...] = (), title: str | None = None) -> Figure:
    """Attention of every token over the recorded steps, one panel an input.

    Tokens keep their colour from panel to panel and are named where their curve ends; those whose attention neither
    grows by half at some time nor ends above 2 % are grey.

    Arguments:
        run: of one data set, or of several with `element` saying which. It must have recorded its attention.
        element: index along the run's leading axes ``[*starts, *batch]``.
        title: text above.

    Returns:
        A figure of its own; save it with ``figure.savefig(path)``.

    Raises:
        ValueError: if the run recorded no attention, or `element` does not pick one run.

    >>> import attsvm
    >>> data = attsvm.data.random_sphere(n=4, T=3, d=5, seed=0)
    >>> run = attsvm.fit(data, steps=30, record=1, engine=attsvm.descent.TorchEngine())
    >>> len(plot_attention(run).axes)
    4
    """
    attention = _attention(run, element)
    steps = run.history.step.numpy()
    inputs = attention.shape[1]
    wide = min(_WIDE, inputs)
    high = -(-inputs // wide)
    with house_style():
        figure = new_figure(1.2 + 2.9 * wide, (0.5 if title else 0.2) + 2.2 * high, layout="constrained")
        grid = figure.subplots(high, wide, squeeze=False, sharey=True)
        for i, axes in enumerate(grid.flat):
            if i >= inputs:
                axes.remove()
                continue
            _draw_input(axes, steps, attention[:, i])
            axes.set_title(f"input {i}", fontsize=9.5, fontweight="normal")
            axes.set_xlabel("step" if i >= inputs - wide else "")
            axes.set_ylabel("attention" if i % wide == 0 else "")
        if title is not None:
            figure.suptitle(title, x=0.02, ha="left", fontweight="bold", fontsize=12)
        figure.canvas.draw()  # settles the layout while the style is in force
    return figure


def _attention(run: Run, element: int | tuple[int, ...]) -> np.ndarray:
    """``[records, n, T]`` of one run."""
    recorded = run.history.attention
    if recorded is None or len(run.history) == 0:
        raise ValueError("run has no recorded attention; train it with 'attention' in keep=")
    lead = tuple(recorded.shape[1:-2])
    index = (element,) if isinstance(element, int) else tuple(element)
    if len(index) != len(lead) or any(not -size <= place < size for place, size in zip(index, lead, strict=True)):
        needed = "be left out" if not lead else f"be an index into {list(lead)}"
        raise ValueError(f"element must {needed}, the run's leading axes [*starts, *batch]; got {element!r}")
    for place in index:
        recorded = recorded[:, place]
    chosen: np.ndarray = recorded.cpu().numpy()
    return chosen


def _draw_input(axes: Axes, steps: np.ndarray, attention: np.ndarray) -> None:
    axes.set(ylim=(-0.02, 1.02), xlim=(steps[0], max(steps[-1], steps[0] + 1)))
    ends = []
    for t in range(attention.shape[1]):
        named = attention[-1, t] > _KEPT or attention[:, t].max() > max(_KEPT, _GROWN * attention[0, t])
        colour = colour_of(t) if named else FAINT
        axes.plot(steps, attention[:, t], color=colour, linewidth=1.8 if named else 0.8, gid=f"token {t}")
        if named:
            ends.append((f"token {t}", float(attention[-1, t]), colour))
    label_ends(axes, ends, least=0.09, size=8)
