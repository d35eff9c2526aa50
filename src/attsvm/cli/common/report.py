"""What the user sees: tables on stdout, progress on stderr, JSON where asked."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from torch import Tensor

SPREAD = ("median", "lowest", "highest")


Reporter = Callable[[int], None]  # takes the number of steps done
StatusLine = Callable[[str], None]  # takes what the line should say now


@contextmanager
def progress_bar(title: str, total: int, *, quiet: bool, done: int = 0) -> Iterator[Reporter]:
    """A bar with the time left on stderr; nothing if that is not a terminal, or if `quiet`."""
    from rich import progress as rich
    from rich.console import Console

    columns = (
        "{task.description}", rich.BarColumn(), rich.MofNCompleteColumn(), "steps ·", rich.TimeElapsedColumn(), "·",
        rich.TimeRemainingColumn(), "left",
    )  # fmt: skip
    hidden = quiet or not sys.stderr.isatty()
    with rich.Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden) as bar:
        task = bar.add_task(title, total=total, completed=done)
        with nullcontext() if hidden else compilation_told(bar.console):
            yield lambda done: bar.update(task, completed=done)


@contextmanager
def status_line(title: str, *, quiet: bool) -> Iterator[StatusLine | None]:
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
    from numba.core import event  # the work inside is about to load Numba

    class Teller(event.Listener):  # type: ignore[misc]
        told = False

        def on_start(self, _: object) -> None:
            if not self.told:
                console.print("Compiling kernels, once per machine and version: this takes some seconds.")
            self.told = True

        def on_end(self, _: object) -> None:
            pass

    with event.install_listener("numba:compile", Teller()):
        yield


def print_table(title: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]]) -> None:
    """A table; `columns` are (name, "left" or "right"), and an empty row draws a line."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for name, side in columns:
        table.add_column(name, justify="right" if side == "right" else "left", no_wrap=True)
    for row in rows:
        if row:
            table.add_row(*row)
        else:
            table.add_section()
    _console(table).print(table)


def print_json(result: Mapping[str, Any]) -> None:
    """`result` on stdout; a number JSON cannot hold becomes null."""
    from attsvm.sweep.manifest import to_plain

    typer.echo(json.dumps(to_plain(result), indent=2, allow_nan=False))


def spread(values: Tensor) -> dict[str, float]:
    """Median, lowest and highest of one or more numbers."""
    flat = values.flatten().double()
    return {"median": float(flat.median()), "lowest": float(flat.min()), "highest": float(flat.max())}


def spread_columns(several: bool) -> tuple[tuple[str, ...], list[tuple[str, str]]]:
    """Which numbers of a spread a table shows, and its columns: all three, or, for a single value, that one."""
    kinds = SPREAD if several else SPREAD[:1]
    return kinds, [("", "left"), *((kind.capitalize() if several else "Value", "right") for kind in kinds)]


def number(value: float, digits: int = 6) -> str:
    """A number for a table.

    >>> number(0.3721704), number(22140.8), number(3e-9)
    ('0.37217', '22140.8', '3e-09')
    """
    return f"{value:.{digits}g}"


def tiny(log_value: float) -> str:
    """exp(log_value) in words a table can hold, also where it is below the smallest float.

    >>> tiny(math.log(0.25)), tiny(-10000.0), tiny(-math.inf)
    ('0.25', '1.1e-4343', '0')
    """
    if log_value == -math.inf:
        return "0"
    if log_value > -600:
        return f"{math.exp(log_value):.2g}"
    tens = log_value / math.log(10.0)
    power = math.floor(tens)
    return f"{10 ** (tens - power):.1f}e{power}"


def plural(count: int, what: str) -> str:
    """A number and its noun.

    >>> plural(1, "row"), plural(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _console(table: Table) -> Console:
    from rich.console import Console

    console = Console()
    if console.is_terminal:
        return console
    # In a file or a pipe nothing forces a width; the table takes what it needs.
    return Console(width=max(80, Console(width=10_000).measure(table).maximum))
