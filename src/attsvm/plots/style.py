"""One look for every picture: fonts, lines, and a palette that colour-blind readers can tell apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A5195", "#8C6D31")
"""Okabe and Ito's colours, those of strongest contrast first, and two more; input i takes colour i."""

MARKERS = ("o", "s", "D", "^", "v", "P", "X", "h")
"""Shapes beside the colours, so that no information depends on colour alone; input i takes shape i."""

Dashes = tuple[float, ...] | None
"""Lengths of dashes and gaps, in line widths; None is a solid line."""
DASHES: tuple[Dashes, ...] = (None, (3.2, 1.7), (1.0, 1.4), (5.0, 1.5, 1.0, 1.5))
"""Of the first, second, ... run or solution in the plane: solid, dashed, dotted, dash-dotted."""

LineStyle = str | tuple[float, tuple[float, ...]]
W_LINE: LineStyle = "-"
"""Of curves: W is solid and (K, Q) dashed, as in the papers; the naive loop is dotted."""
KQ_LINE: LineStyle = (0, (4.0, 1.6))
NAIVE_LINE: LineStyle = (0, (1.2, 1.4))

INK = "#222222"
FAINT = "#8A8A8A"
HAIRLINE = "#D5D5D5"
DISC = "#F5F5F2"

STYLE: Mapping[Any, Any] = MappingProxyType(
    {
        "font.family": "DejaVu Sans",
        "font.size": 9.5,
        "mathtext.fontset": "dejavusans",
        "axes.titlesize": 12,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.labelsize": 9.5,
        "axes.edgecolor": FAINT,
        "axes.labelcolor": INK,
        "axes.linewidth": 0.8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "text.color": INK,
        "xtick.color": FAINT,
        "ytick.color": FAINT,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "lines.linewidth": 2.0,
        "lines.solid_capstyle": "round",
        "legend.frameon": False,
        "figure.facecolor": "white",
        "figure.constrained_layout.w_pad": 0.12,
        "figure.constrained_layout.h_pad": 0.10,
        "savefig.dpi": 200,
        "svg.hashsalt": "attsvm",
    }
)


@contextmanager
def house_style() -> Iterator[None]:
    """Draw in the house style inside this block; afterwards the caller's own settings are back."""
    with mpl.rc_context(dict(STYLE)):
        yield


def new_figure(width: float, height: float, **options: Any) -> Figure:
    """A figure of this size in inches with its own canvas: no window, no global state."""
    figure = Figure(figsize=(width, height), **options)
    FigureCanvasAgg(figure)
    return figure


def settle(figure: Figure, title: str | None, size: float = 12) -> None:
    """Put the title above, if there is one, and lay the figure out while the house style is in force."""
    if title is not None:
        figure.suptitle(title, x=0.02, ha="left", fontweight="bold", fontsize=size)
    figure.canvas.draw()


def colour_of(index: int) -> str:
    """The colour of input or series `index`; they repeat after eight."""
    return PALETTE[index % len(PALETTE)]


def marker_of(index: int) -> str:
    """The shape of input `index`."""
    return MARKERS[index % len(MARKERS)]


def tinted(colour: str, strength: float) -> tuple[float, float, float]:
    """`colour` mixed with white: 1 leaves it, 0 gives white.

    >>> tinted("#000000", 0.25)
    (0.75, 0.75, 0.75)
    """
    red, green, blue = (1 - strength * (1 - part) for part in to_rgb(colour))
    return red, green, blue
