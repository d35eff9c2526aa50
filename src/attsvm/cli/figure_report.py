"""What `attsvm figure` shows: the list, a bar for each experiment, and the summary."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from attsvm.cli.figure_summary import FigureSummary
from attsvm.experiments import Experiment, Verdict

if TYPE_CHECKING:
    from rich.progress import TaskID

WIDTH = 100  # where nobody says how wide the page is
WIDEST = 130
_MARKS = {
    Verdict.HOLDS: ("✓", "+", "green"),
    Verdict.FAILS: ("✗", "x", "bold red"),
    Verdict.OPEN: ("·", ".", "yellow"),
}


class TimeLeft(ProgressColumn):
    """Time left, from all chunks computed so far; rich's own column would wait for a second one, of minutes perhaps."""

    def render(self, task: Task) -> Text:
        """Minutes and seconds, once a chunk is done."""
        computed = task.completed - task.fields["found"]
        if not computed or task.elapsed is None or task.total is None:
            return Text("?")
        left = task.elapsed / computed * (task.total - task.completed)
        return Text(str(datetime.timedelta(seconds=round(left))))


class Bars:
    """One bar for each experiment, from the moment it starts."""

    def __init__(self, live: Progress) -> None:
        self._live = live

    def reporter(self, name: str) -> Callable[[int, int], None]:
        """Takes the chunks done and the chunks known of the experiment `name`."""
        task: TaskID | None = None

        def report(done: int, total: int) -> None:
            nonlocal task
            if task is None:
                # What was there already is no measure of speed.
                task = self._live.add_task(name, total=total, completed=done, found=done)
            self._live.update(task, completed=done, total=total)

        return report

    def say(self, sentence: str) -> None:
        """A line on stderr, above the bars."""
        if self._live.disable:
            typer.echo(sentence, err=True)
        else:
            self._live.console.print(Text(sentence))


@contextmanager
def progress_bars(*, quiet: bool) -> Iterator[Bars]:
    """Bars on stderr with the time left; nothing where that is no terminal, or `quiet`."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("chunks ·"),
        TimeElapsedColumn(), TextColumn("·"), TimeLeft(), TextColumn("left"),
    )  # fmt: skip
    hidden = quiet or not sys.stderr.isatty()
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=hidden) as live:
        yield Bars(live)


def print_list(experiments: Sequence[Experiment[Any]]) -> None:
    """All experiments as a table of at most 100 columns."""
    table = _table("id", "paper", "what it shows", "time", right=("time",))
    for each in experiments:
        table.add_row(each.id, each.source, escape(each.shows), _rough(each.seconds))
    _console().print(table)
    typer.echo("Times are those of the full runs on one core; --quick makes all of them a matter of minutes.")


def print_summary(summaries: Sequence[FigureSummary], imports: float) -> None:
    """Expected against measured, what was left out, and where the CPU time went."""
    console = _console()
    checks = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=True)
    for name, ratio in (("", 5), ("expected", 3), ("measured", 3)):
        checks.add_column(name, ratio=ratio)
    checks.add_column("verdict", width=max(len(kind.value) for kind in Verdict) + 2, no_wrap=True)
    for each in summaries:
        checks.add_section()
        checks.add_row(Text(each.experiment, style="bold"))
        for check in each.checks:
            what = Text(check.what)
            if check.why and check.verdict is not Verdict.HOLDS:
                what.append(f"\n{check.why}", style="dim")
            cells = (Text(check.expected), Text(check.measured), _verdict(check.verdict, console))
            checks.add_row(Padding(what, (0, 0, 0, 2)), *cells)
    console.print(checks)

    counts = _table("discarded or failed", "", "instances", right=("instances",))
    for each in summaries:
        rows = [(reason, count) for reason, count in each.counts.items() if count]
        never = len(each.counts) - len(rows)
        rows += [(f"{never} other reason{'s' if never > 1 else ''}" if rows else "none", 0)] if never else []
        for number, (reason, count) in enumerate(rows):
            counts.add_row("" if number else each.experiment, escape(reason), f"{count:,}")
    if counts.row_count:
        console.print(counts)

    kinds = ("computing", "compiling", "importing", "drawing")
    times = _table("CPU seconds", *kinds, right=kinds)
    for each in summaries:
        times.add_row(each.experiment, *(f"{each.cpu_seconds[kind]:.2f}" for kind in kinds))
    console.print(times)
    typer.echo(f"Starting Python and importing took {imports:.2f} s of CPU time besides.")
    for each in summaries:
        if each.speed is not None:
            typer.echo(f"{each.experiment}: {each.speed}")
        for note in each.notes:
            typer.echo(f"{each.experiment}: {note}")


def _verdict(verdict: Verdict, console: Console) -> Text:
    mark, plain, style = _MARKS[verdict]
    return Text(f"{mark if console.encoding.startswith('utf') else plain} {verdict.value}", style=style)


def _table(*columns: str, right: Sequence[str] = ()) -> Table:
    """Ids, in the first column, and numbers stay whole; sentences wrap."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        side: Literal["left", "right"] = "right" if name in right else "left"
        table.add_column(name, justify=side, no_wrap=name in (columns[0], *right))
    return table


def _console() -> Console:
    console = Console()
    return Console(width=min(console.width, WIDEST) if console.is_terminal else WIDTH)


def _rough(value: float) -> str:
    if value < 100:
        return f"{max(value, 1):.0f} s"
    return f"{value / 60:.0f} min" if value < 6000 else f"{value / 3600:.1f} h"
