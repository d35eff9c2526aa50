"""What the user sees: tables on stdout, progress on stderr, JSON where asked."""

from __future__ import annotations

import functools
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import typer

from attsvm.sweep.clock import numba_events
from attsvm.sweep.manifest import to_plain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn
    from torch import Tensor

SPREAD = ("median", "lowest", "highest")
WIDTH, WIDEST = 100, 130  # of a page: where nobody says how wide it is, and at most


@contextmanager
def live_bars(unit: str, *, quiet: bool, left: ProgressColumn | None = None) -> Iterator[Progress]:
    """Bars on stderr with the time left; nothing if that is not a terminal, or if `quiet`."""
    from rich import progress as rich
    from rich.console import Console

    columns = (
        "{task.description}", rich.BarColumn(), rich.MofNCompleteColumn(), f"{unit} ·", rich.TimeElapsedColumn(), "·",
        left or rich.TimeRemainingColumn(), "left",
    )  # fmt: skip
    hidden = quiet or not sys.stderr.isatty()
    bars = rich.Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden)
    with bars, nullcontext() if hidden else compilation_told(bars.console):
        yield bars


@contextmanager
def progress_bar(title: str, total: int, *, quiet: bool, done: int = 0) -> Iterator[Callable[[int], None]]:
    """One bar, which takes the number of steps done."""
    with live_bars("steps", quiet=quiet) as bars:
        task = bars.add_task(title, total=total, completed=done)
        yield lambda done: bars.update(task, completed=done)


@contextmanager
def status_line(title: str, *, quiet: bool) -> Iterator[Callable[[str], None] | None]:
    """A live line on stderr that says `title`, then what it is told; None if that is not a terminal, or if `quiet`."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status(title) as live, compilation_told(live.console):
        yield lambda text: live.update(text)


@contextmanager
def compilation_told(console: Console) -> Iterator[None]:
    """Say it once, on `console`, if kernels are compiled inside the block: that takes seconds and shows no progress."""
    import numba.core.event  # noqa: F401 - the work inside is about to load it

    words = "Compiling kernels, once per machine and version: this takes some seconds."
    with numba_events("numba:compile", functools.cache(lambda: console.print(words))):
        yield


def print_table(title: str, columns: Sequence[Any], rows: Sequence[Sequence[Any]], *, page: bool = False) -> None:
    """A table; `columns` are (name, "left" or "right"), or rich's own, which may wrap; an empty row draws a line.

    In a file or a pipe nothing forces a width: the table takes what it needs, unless it is to fit a `page`.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Column, Table

    made = [Column(each[0], justify=each[1], no_wrap=True) if isinstance(each, tuple) else each for each in columns]
    style: dict[str, Any] = {"title_justify": "left", "title_style": "bold", "box": box.SIMPLE_HEAD, "pad_edge": False}
    table = Table(*made, title=title, expand=any(column.ratio for column in made), **style)
    for row in rows:
        if row:
            table.add_row(*row)
        else:
            table.add_section()
    console = Console()
    if page:
        console = Console(width=min(console.width, WIDEST) if console.is_terminal else WIDTH)
    elif not console.is_terminal:
        console = Console(width=max(80, Console(width=10_000).measure(table).maximum))
    console.print(table)


def print_json(result: Mapping[str, Any]) -> None:
    """`result` on stdout; a number JSON cannot hold becomes null."""
    typer.echo(json.dumps(to_plain(result), indent=2, allow_nan=False))


def spread(values: Tensor) -> Any:
    """Median, lowest and highest of numbers by these names; None where there is no number."""
    flat = values.flatten().double()
    kinds = {"median": flat.median, "lowest": flat.min, "highest": flat.max}
    return {kind: float(of()) for kind, of in kinds.items()} if flat.numel() else None


def spread_columns(several: bool) -> tuple[tuple[str, ...], list[tuple[str, str]]]:
    """Which numbers of a spread a table shows, and its columns: all three, or, for a single value, that one."""
    kinds = SPREAD if several else SPREAD[:1]
    return kinds, [("", "left"), *((kind.capitalize() if several else "Value", "right") for kind in kinds)]


def number(value: float, digits: int = 6) -> str:
    """A number for a table: 0.37217, 22140.8, 3e-09."""
    return f"{value:.{digits}g}"


def tiny(log_value: float) -> str:
    """exp(log_value) for a table, also where it is below the smallest float: 0.25, 1.1e-4343, 0."""
    if log_value == -math.inf or log_value > -600:
        return f"{math.exp(log_value):.2g}"
    tens = log_value / math.log(10.0)
    power = math.floor(tens)
    return f"{10 ** (tens - power):.1f}e{power}"


def plural(count: int, what: str) -> str:
    """A number and its noun: 1 row, 1,200 rows."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
