"""Training seen in the plane of the tokens: the paths of W z_i, the rays they tend to, and the tokens they favour."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from attsvm.attention import optimal_token_set, token_scores
from attsvm.data import TokenDataset
from attsvm.data.checks import check_kind
from attsvm.descent import Run
from attsvm.plots.plane import Path, PlaneScene, Tokens, rays_of
from attsvm.plots.style import INK, LINES, by_name, colour_of, drawing, label_of, text_of
from attsvm.svm import SVMSolution


def plot_trajectory_2d(
    data: TokenDataset,
    runs: Mapping[str, Run] | Run,
    *,
    solutions: Sequence[SVMSolution] = (),
    head: object = None,
    title: str | None = None,
    caption: str | None = None,
    size: tuple[float, float] | None = None,
) -> Figure:
    """Tokens in the plane and the path of W z_i for every input and run.

    The logit of token x is its inner product with W z_i, so the path's direction tells which token wins: the one that
    lies farthest along it. Inside the disc that holds the tokens the scale is true; outside it angles are true and the
    distance from the origin is logarithmic, a ring for each power of ten, so that a path is seen from its start to the
    norm where training ended. Tokens have their input's colour and shape, larger and darker the higher they score;
    stars mark the optimal ones. Max-margin solutions are thin rays along W_mm z_i; the path of a run that tends to one
    bends onto its ray.

    Arguments:
        data: one data set with d = 2.
        runs: runs by the name of their matrix in the picture, ``{"W": run}``, or one run, which is called W. Any text
            is a name; a letter or two, or LaTeX, is set as mathematics. Lines are solid, dashed, dotted, dash-dotted in
            this order. Each must have recorded its weights. Several starts of a run are drawn alike.
        solutions: thin lines, solid, dashed and so on in this order; rays of several inputs that coincide are drawn
            once, in grey.
        head: what scores the tokens; None means the data's own head. Without either, tokens are drawn alike.
        title, caption: text above and below; a caption is broken into lines that fit.
        size: width and height in inches; chosen to suit the picture if None.

    A `ValueError` if the data are no single data set in the plane, or a run or a solution does not belong to them.

    >>> import attsvm
    >>> data = attsvm.data.example("two-inputs")
    >>> run = attsvm.fit(data, steps=20, record=1, initial="zeros", engine=attsvm.descent.TorchEngine())
    >>> len(plot_trajectory_2d(data, run).axes)
    1
    """
    named = by_name(runs, Run, "runs", "W")
    rays = (solutions,) if isinstance(solutions, SVMSolution) else tuple(solutions)
    if wrong := [each for each in rays if not isinstance(each, SVMSolution)]:
        raise ValueError(f"solutions must be a list of SVMSolution; it holds {type(wrong[0]).__name__}")
    _check(data, named)
    scene = PlaneScene(_tokens(data, head), _paths(data, named), rays_of(data, rays))
    with drawing(*(size or (8.4, 6.4)), title, 13, layout="constrained") as figure:
        axes = figure.add_subplot(anchor="W")
        scene.draw(axes)
        axes.legend(
            handles=scene.legend(), loc="center left", bbox_to_anchor=(1.03, 0.5), labelspacing=0.85, handlelength=2.4,
            borderaxespad=0,
        )  # fmt: skip
        if size is None:
            (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
            figure.set_size_inches(3.4 + 5.6 * min(max((right - left) / (high - low), 0.6), 1.6), 6.4)
        if caption is not None:
            # Letters of this font are about half as wide as it is high, a little wider before Matplotlib 3.11.
            wide = int(0.97 * figure.get_figwidth() * 72 / (9.5 * 0.57))
            lines = text_of("\n".join(textwrap.fill(line, wide) for line in caption.splitlines()))
            figure.supxlabel(lines, x=0.02, ha="left", fontsize=9.5, linespacing=1.45)
    return figure


def _check(data: TokenDataset, runs: Mapping[str, Run]) -> None:
    check_kind(data, TokenDataset, "data", "a TokenDataset")
    if data.batch_shape:
        raise ValueError(f"data must be one data set; got a batch of {list(data.batch_shape)}, pick one with data[i]")
    if data.d != 2:
        raise ValueError(f"data must have tokens in the plane, d = 2; got d = {data.d}")
    for name, run in runs.items():
        if (weights := run.history.weights) is None or len(run.history) == 0:
            raise ValueError(f"run {name!r} has no recorded weights; train it with 'weights' in keep=")
        if tuple(weights.shape[-2:]) != (data.d, data.dq) or weights.ndim > 4:
            form = f"[records, {data.d}, {data.dq}] or [records, starts, {data.d}, {data.dq}]"
            raise ValueError(f"run {name!r} must have weights {form} to fit the data; got {list(weights.shape)}")


def _tokens(data: TokenDataset, head: object) -> Tokens:
    places = data.input_tokens.cpu().numpy()
    real = data.real.cpu().numpy()
    if head is None and data.head is None:
        return Tokens(places, real)
    return Tokens(places, real, token_scores(data, head).cpu().numpy(), optimal_token_set(data, head).cpu().numpy())


def _paths(data: TokenDataset, runs: Mapping[str, Run]) -> list[Path]:
    queries = data.queries.cpu().numpy()
    shared = bool((queries == queries[:1]).all())  # prompts: every input follows the same path
    found = []
    for order, (name, run) in enumerate(runs.items()):
        assert run.history.weights is not None  # checked above
        weights = run.history.weights.cpu().numpy()
        weights = weights.reshape(len(weights), -1, data.d, data.dq)
        any_query = "" if shared and data.dq == 1 else r"\,z" if shared else r"\,z_i"
        for start in range(weights.shape[1]):
            for i, query in enumerate(queries[:1] if shared else queries):
                this_query = any_query.replace("_i", f"_{{{i}}}")
                colour, line = INK if shared and data.n > 1 else colour_of(i), LINES[order % len(LINES)]
                key = f"path of {label_of(name, any_query)}"
                found.append(Path(weights[:, start] @ query, label_of(name, this_query), key, colour, line))
    return found
