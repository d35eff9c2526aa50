"""One look for every picture: fonts, lines, and a palette that colour-blind readers can tell apart."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.mathtext import MathTextParser

from attsvm.data.files import write_atomically
from attsvm.sweep.result import SweepResult

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A5195", "#8C6D31")
"""Okabe and Ito's colours, those of strongest contrast first, and two more; input i takes colour i."""

MARKERS = ("o", "s", "D", "^", "v", "P", "X", "h")
"""Shapes beside the colours, so that no information depends on colour alone; input i takes shape i."""

LineStyle = Literal["-"] | tuple[float, tuple[float, ...]]  # solid, or lengths of dashes and gaps in line widths
LINES: tuple[LineStyle, ...] = ("-", (0, (3.2, 1.7)), (0, (1.0, 1.4)), (0, (5.0, 1.5, 1.0, 1.5)))
"""Of the first, second, ... run or solution: solid, dashed, dotted, dash-dotted."""

W_LINE: LineStyle = "-"  # of curves: W is solid and (K, Q) dashed, as in the papers; the naive loop is dotted
KQ_LINE: LineStyle = (0, (4.0, 1.6))
NAIVE_LINE: LineStyle = (0, (1.2, 1.4))

INK = "#222222"
FAINT = "#8A8A8A"
HAIRLINE = "#D5D5D5"
DISC = "#F5F5F2"

STYLE: Mapping[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "mathtext.fontset": "dejavusans",
    "text.usetex": False,  # names of runs hold what TeX would take for commands
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


def house_style() -> AbstractContextManager[None]:
    """Draw in the house style inside this block; afterwards the caller's own settings are back."""
    return mpl.rc_context(dict(STYLE))


def new_figure(width: float, height: float, **options: Any) -> Figure:
    """A figure of this size in inches with its own canvas: no window, no global state."""
    figure = Figure(figsize=(width, height), **options)
    FigureCanvasAgg(figure)
    return figure


# Pictures of one result are the same bytes whenever they are drawn.
_METADATA = {"png": {"Software": "attsvm"}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}


def save(figure: Figure, path: Path, kind: str, **options: Any) -> Path:
    """Write a figure as png, pdf or svg; the file is whole or not there."""
    content = io.BytesIO()
    figure.savefig(content, format=kind, metadata=_METADATA[kind], **options)
    return write_atomically(path, content.getvalue())


@dataclass(frozen=True)
class Picture:
    """How results of the experiments `ids` become a figure with panels; called with one, it gives the figure by name.

    `size` is in inches, `panels` the numbers of rows and columns, `options` are those of Matplotlib's ``subplots``.
    """

    ids: tuple[str, ...]
    size: tuple[float, float]
    panels: tuple[int, int]
    options: Mapping[str, Any]
    paint: Callable[[SweepResult, Any], None]

    def __call__(self, result: SweepResult) -> dict[str, Figure]:
        figure = new_figure(*self.size, layout="constrained")
        self.paint(result, figure.subplots(*self.panels, **self.options))
        return {result.id: figure}


def picture(
    *ids: str, size: tuple[float, float], panels: tuple[int, int], **options: Any
) -> Callable[[Callable[[SweepResult, Any], None]], Picture]:
    """Decorates what paints the panels of a `Picture`."""
    return lambda paint: Picture(ids, size, panels, options, paint)


@contextmanager
def drawing(width: float, height: float, title: str | None, size: float = 12, **options: Any) -> Iterator[Figure]:
    """A new figure to draw into in the house style, laid out in the end, with the title above, if there is one."""
    with house_style():
        figure = new_figure(width, height, **options)
        yield figure
        if title is not None:
            figure.suptitle(text_of(title), x=0.02, ha="left", fontweight="bold", fontsize=size)
        figure.canvas.draw()


T = TypeVar("T")


def by_name(given: object, kind: type[T], argument: str, alone: str) -> dict[str, T]:
    """One thing, or several by name, as a dictionary; one thing is called `alone`, anything else a ValueError."""
    if isinstance(given, kind):
        return {alone: given}
    expected = f"{argument} must be a {kind.__name__}, or several by name in a dictionary"
    if not isinstance(given, Mapping):
        raise ValueError(f"{expected}; got {type(given).__name__}")
    if not given:
        raise ValueError(f"{expected}; got an empty one")
    if wrong := [name for name, value in given.items() if not isinstance(value, kind)]:
        raise ValueError(f"{expected}; got {type(given[wrong[0]]).__name__} for {wrong[0]!r}")
    return {str(name): value for name, value in given.items()}


_MATRIX = re.compile(r"[A-Z]{1,3}|[A-Za-z](_(\w|\{[^{}]*\}))?'*|([A-Z] )*\S*\^\S*|.*\\.*")
_LONGEST = 28  # letters of a name; longer ones leave no room for the picture


def text_of(name: object) -> str:
    """Any name as Matplotlib shows it: mathematics between dollar signs where there is some, otherwise as it is.

    >>> text_of("run_1 50%"), text_of("$W$"), text_of("$5_"), text_of("$_$")
    ('run_1 50%', '$W$', '\\\\$5_', '\\\\$_\\\\$')
    """
    lines = str(name).split("\n")  # Matplotlib reads line by line; its mathematics knows no line breaks
    for place, line in enumerate(lines):
        dollars = len(re.findall(r"(?<!\\)\$", line))
        if dollars and (dollars % 2 or not _parses(line)):
            lines[place] = re.sub(r"(?<!\\)\$", r"\\$", line)
    return "\n".join(lines)


def label_of(name: object, after: str = "") -> str:
    """The name of a matrix for a legend; `after` is mathematics that it is multiplied by.

    A name that is mathematics without its dollar signs, such as ``W`` or ``KQ^{\\mathsf{T}}``, is set as such; any
    other is set as it is, cut off after some letters.

    >>> label_of("W"), label_of("W", r"\\,z_i"), label_of("my run_1 50%"), label_of("run", "z_i")
    ('$W$', '$W\\\\,z_i$', 'my run_1 50%', 'run, $z_i$')
    """
    text = str(name)
    if _MATRIX.fullmatch(text) and "$" not in text and _parses(f"${text}$"):
        return f"${text}{after}$"
    cut = text if len(text) <= _LONGEST or text.count("$") > 1 else f"{text[: _LONGEST - 1]}\u2026"
    return f"{text_of(cut)}, ${after.removeprefix(chr(92) + ',')}$" if after else text_of(cut)


def _parses(text: str) -> bool:
    try:
        MathTextParser("agg").parse(text)
    except (ValueError, RuntimeError):
        return False
    return True


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
