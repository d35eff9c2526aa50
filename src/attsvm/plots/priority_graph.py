"""Token-priority graphs: components as boxes, strict priorities as arrows from left to right."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from attsvm.next_token import PriorityGraph
from attsvm.plots.style import FAINT, HAIRLINE, INK, PALETTE, drawing, text_of, tinted

_COLUMN, _GAP = 2.2, 0.75  # inches: a box, and the way to the next one
_LINE, _PAD, _APART = 0.19, 0.16, 0.22
_LETTERS, _LINES = 24, 5
_PANELS = 3


def plot_priority_graph(
    graph: PriorityGraph, last: str | int | Sequence[str | int] | None = None, *, title: str | None = None
) -> Figure:
    """The order of tokens after one or more last tokens, with components collapsed.

    A coloured box is a component whose tokens share probability. Tokens in a white box are single components that beat,
    and are beaten by, the same others; they are not compared with each other. Priorities that follow from others are
    left out.

    Arguments:
        graph: of `next_token.priority_graph`.
        last: last tokens, by name or number; by default the three with most samples.
        title: text above.

    A `ValueError` if no sample ends in a token that is asked for.

    >>> from attsvm.next_token import from_text, priority_graph
    >>> len(plot_priority_graph(priority_graph(from_text("a b a b c a b b a", window=3)), "b").axes)
    1
    """
    if not isinstance(graph, PriorityGraph):
        raise ValueError(f"graph must be a PriorityGraph; got {type(graph).__name__}")
    chosen = graph.last_tokens[:_PANELS] if last is None else _chosen(graph, last)
    layouts = [_Layout(graph, token) for token in chosen]
    wide = max(layout.width for layout in layouts) + 0.3
    heights = [layout.height + 0.45 for layout in layouts]
    top = 0.45 if title else 0.1
    below = 0.08
    total = sum(heights) + top + below
    with drawing(wide, total, title) as figure:
        edge = total - top
        for layout, height in zip(layouts, heights, strict=True):
            edge -= height
            layout.draw(figure.add_axes((0.15 / wide, edge / total, layout.width / wide, (height - 0.4) / total)))
    return figure


def _chosen(graph: PriorityGraph, last: str | int | Sequence[str | int]) -> list[int]:
    found = []
    for each in [last] if isinstance(last, (str, int)) else last:
        token = graph.data.encode([each])[0] if isinstance(each, str) else int(each)
        if token not in graph.last_tokens:
            name = graph.data.words[token] if 0 <= token < graph.data.K else each
            raise ValueError(f"no sample ends in {name!r}, so that there is no graph to draw")
        found.append(token)
    return found


class _Layout:
    """Where the boxes of one last token stand, in inches from the lower left corner."""

    def __init__(self, graph: PriorityGraph, last: int) -> None:
        self.graph, self.last = graph, last
        self.groups, self.arrows = graph.collapsed(last)
        self.texts = [self._text(group) for group in self.groups]
        self.sizes = [_LINE * (text.count("\n") + 1) + _PAD for text in self.texts]
        level = [0] * len(self.groups)
        for one, other in sorted(self.arrows):  # groups stand in priority order
            level[other] = max(level[other], level[one] + 1)
        self.columns = [[place for place, own in enumerate(level) if own == each] for each in range(max(level) + 1)]
        self.height = max(self._stack(column) for column in self.columns)
        self.width = len(self.columns) * (_COLUMN + _GAP) - _GAP + 0.1
        self.middle: dict[int, tuple[float, float]] = {}
        for number, column in enumerate(self.columns):
            edge = (self.height + self._stack(column)) / 2
            for place in column:
                x = 0.05 + number * (_COLUMN + _GAP) + _COLUMN / 2
                self.middle[place] = (x, edge - self.sizes[place] / 2)
                edge -= self.sizes[place] + _APART

    def _stack(self, column: list[int]) -> float:
        return sum(self.sizes[place] for place in column) + _APART * (len(column) - 1)

    def _text(self, group: list[tuple[int, ...]]) -> str:
        names = [self.graph.data.words[token] for component in group for token in component]
        sign = "\u21c4" if len(group) == 1 else "\u00b7"
        joined = " ".join([f"{name}\u00a0{sign}" for name in names[:-1]] + names[-1:])  # lines break after a sign
        if len(lines := textwrap.wrap(joined, _LETTERS, break_long_words=True)) > _LINES:
            shown = "\n".join(lines[: _LINES - 1])
            lines = [*lines[: _LINES - 1], f"and {len(names) - sum(name in shown for name in names)} more"]
        return text_of("\n".join(lines))

    def draw(self, axes: Axes) -> None:
        """Boxes, arrows, and what the panel is about."""
        axes.set(xlim=(0, self.width), ylim=(0, self.height))
        axes.axis("off")
        count = int((self.graph.data.last == self.last).sum())
        said = f"after \u201c{self.graph.data.words[self.last]}\u201d ({count} sample{'s' if count > 1 else ''})"
        axes.text(0.05, self.height + 0.12, text_of(said), fontweight="bold", va="bottom", fontsize=10)
        for one, other in self.arrows:
            (x, y), (u, v) = self.middle[one], self.middle[other]
            skips = (u - x) > 1.5 * (_COLUMN + _GAP)
            axes.add_patch(FancyArrowPatch(
                (x + _COLUMN / 2, y), (u - _COLUMN / 2, v), arrowstyle="-|>", mutation_scale=11,
                connectionstyle=f"arc3,rad={0.18 if skips else 0.0}", color=FAINT, linewidth=1.1, shrinkA=2, shrinkB=1,
                zorder=1,
            ))  # fmt: skip
        for place, group in enumerate(self.groups):
            shared = len(group[0]) > 1
            x, y = self.middle[place]
            axes.add_patch(FancyBboxPatch(
                (x - _COLUMN / 2, y - self.sizes[place] / 2), _COLUMN, self.sizes[place],
                boxstyle="round,pad=0,rounding_size=0.08", linewidth=1.4 if shared else 1.0, zorder=2,
                clip_on=False,
                facecolor=tinted(PALETTE[0], 0.16) if shared else "white",
                edgecolor=PALETTE[0] if shared else (FAINT if len(group) == 1 else HAIRLINE),
            ))  # fmt: skip
            axes.text(x, y, self.texts[place], ha="center", va="center", fontsize=8.5, color=INK, zorder=3)
