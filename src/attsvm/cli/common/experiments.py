"""Finished experiments: expected against measured, in tables and in summary.json; and bars while they run."""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from attsvm.cli.common.files import write_text
from attsvm.cli.common.report import compilation_told
from attsvm.experiments import AcrossSeeds, Check, Experiment, Judged, SweepResult, Verdict

if TYPE_CHECKING:
    from rich.progress import TaskID

SUMMARY = "summary.json"
WIDTH = 100  # where nobody says how wide the page is
WIDEST = 130
_MARKS = {
    Verdict.HOLDS: ("✓", "+", "green"),
    Verdict.FAILS: ("✗", "x", "bold red"),
    Verdict.OPEN: ("·", ".", "yellow"),
    Verdict.MEASURED: ("·", ".", "dim"),
}
_JUDGED = (Verdict.HOLDS, Verdict.FAILS, Verdict.OPEN)


@dataclass(frozen=True)
class FigureSummary(Judged):
    """What one finished experiment comes to: checks, counts, pictures and CPU seconds, for tables and summary.json.

    The speed is one of the checks where a factor is expected.
    """

    pictures: Sequence[Path]
    cpu_seconds: Mapping[str, float]  # computing, compiling, importing, drawing
    wall_seconds: float
    public_code: Mapping[str, float] | None  # its CPU seconds, ours, and how many times less that is
    notes: Sequence[str]

    @property
    def speed(self) -> str | None:
        """CPU seconds of computing against those of the public code, for the paper's configuration on a CPU."""
        if self.public_code is None:
            return None
        public, ours, factor = (self.public_code[name] for name in ("seconds", "ours", "factor"))
        return f"CPU {seconds(ours)}, public code {seconds(public)}: {times(factor)}"

    def to_json(self) -> dict[str, Any]:
        """As JSON holds it."""
        plain = {name: value for name, value in asdict(self).items() if name != "configuration"}
        checks = [asdict(check) | {"verdict": check.verdict.value} for check in self.checks]
        pictures = [path.name for path in self.pictures]
        return plain | {"folder": str(self.folder), "seed": self.seed, "checks": checks, "pictures": pictures}

    def save(self) -> Path:
        """Write it to FOLDER/summary.json."""
        text = json.dumps(self.to_json() | {"folder": "."}, indent=2, allow_nan=False) + "\n"
        return write_text(self.folder / SUMMARY, text)


def summarize(
    experiment: Experiment[Any], result: SweepResult, pictures: Sequence[Path], drawing: float
) -> FigureSummary:
    """Judge a stored result; `drawing` is the CPU time that its pictures took.

    The speed is known only for the paper's configuration, whatever the seed, and on a CPU as the public code was.
    """
    checks, public = list(experiment.checks(result)), None
    paper = experiment.default.to_json() | {"seed": result.configuration["seed"]}
    if experiment.public_seconds is not None and (result.configuration, result.manifest["device"]) == (paper, "cpu"):
        ours, wanted = result.cpu_seconds(experiment.public_tasks), experiment.public_factor
        factor = experiment.public_seconds / max(ours, 1e-9)
        public = {"seconds": experiment.public_seconds, "ours": round(ours, 4), "factor": round(factor, 1)}
        if wanted is not None:
            checks.append(Check(
                "CPU time of computing",
                f"public code {seconds(experiment.public_seconds)}, at least {times(wanted)} less",
                f"{seconds(ours)}, {times(factor)} less", Verdict.of(factor >= wanted),
                f"it is less than {times(wanted)} below that of the public code",
            ))  # fmt: skip
    return FigureSummary(
        experiment.id, result.folder, result.configuration, checks, dict(result.counts), pictures,
        {**result.manifest["cpu_seconds"], "drawing": round(drawing, 4)}, result.manifest["wall_seconds"], public,
        list(result.manifest["notes"]),
    )  # fmt: skip


def verdict_line(summaries: Sequence[FigureSummary]) -> str:
    """How many checks hold, in a clause.

    >>> verdict_line([])
    'no checks'
    """
    every = [check.verdict for each in summaries for check in each.checks]
    counts = [every.count(kind) for kind in _JUDGED]
    return _counted(counts, sum(counts), "hold", "not", "") if sum(counts) else "no checks"


def seeds_line(across: Sequence[AcrossSeeds]) -> str:
    """How many checks hold in every seed, in a clause."""
    rows = [row for each in across for row in each.rows if not row.count(Verdict.MEASURED)]
    failed, left = (sum(row.count(kind) > 0 for row in rows) for kind in (Verdict.FAILS, Verdict.OPEN))
    held = sum(row.count(Verdict.HOLDS) == len(row.verdicts) for row in rows)
    return _counted([held, failed, left], len(rows), "hold in every seed", "not hold in some", " in some")


def _counted(counts: Sequence[int], total: int, hold: str, fail: str, some: str) -> str:
    held, failed, left = counts
    parts = [f"{held} of {total} checks {hold}"]
    parts += [f"{failed} {'does' if failed == 1 else 'do'} {fail}"] if failed else []
    parts += [f"{left} {'is' if left == 1 else 'are'} not judged{some}"] if left else []
    return "; ".join(parts)


def seconds(value: float, digits: int = 2) -> str:
    """A time for a table.

    >>> seconds(0.012), seconds(1.234), seconds(190), seconds(34560)
    ('0.01 s', '1.23 s', '190 s', '9.6 h')
    """
    if value < 1000:
        return f"{value:.{digits}f} s" if value < 10 else f"{value:.0f} s"
    return f"{value / 3600:.1f} h" if value >= 6000 else f"{value / 60:.0f} min"


def times(factor: float) -> str:
    """A factor for a table.

    >>> times(1.26), times(158.4), times(67890)
    ('1.3x', '158x', '67,890x')
    """
    return f"{factor:.1f}x" if factor < 10 else f"{factor:,.0f}x"


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
    live = Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden)
    with live, nullcontext() if hidden else compilation_told(live.console):
        yield Bars(live)


def print_list(experiments: Sequence[Experiment[Any]]) -> None:
    """All experiments as a table of at most 100 columns."""
    table = _table("id", "paper", "what it shows", "time", right=("time",))
    for each in experiments:
        table.add_row(each.id, each.source, escape(each.shows), seconds(each.seconds, 0))
    _console().print(table)
    typer.echo("Times are those of the full runs on one core; --quick makes all of them a matter of minutes.")


def print_summary(summaries: Sequence[FigureSummary], imports: float) -> None:
    """Expected against measured, what was left out, and where the CPU time went."""
    console = _console()
    checks = _checks("measured", 3, verdict=max(len(kind.value) for kind in Verdict) + 2)
    for each in summaries:
        checks.add_section()
        checks.add_row(Text(each.experiment, style="bold"))
        for check in each.checks:
            what = _what(check, [], failed=check.verdict is Verdict.FAILS, held=check.verdict is Verdict.HOLDS)
            mark, plain, style = _MARKS[check.verdict]
            shown = f"{mark if console.encoding.startswith('utf') else plain} {check.verdict.value}"
            checks.add_row(what, Text(check.expected), Text(check.measured), Text(shown, style=style))
    console.print(checks)

    if summaries:
        _print_counts(console, [(each.experiment, each.counts) for each in summaries])
    kinds = ("computing", "compiling", "importing", "drawing")
    spent = _table("CPU seconds", *kinds, right=kinds)
    for each in summaries:
        spent.add_row(each.experiment, *(f"{each.cpu_seconds[kind]:.2f}" for kind in kinds))
    console.print(spent)
    typer.echo(f"Starting Python and importing took {imports:.2f} s of CPU time besides.")
    for each in summaries:
        for note in [*([each.speed] if each.speed else []), *each.notes]:
            typer.echo(f"{each.experiment}: {note}")


def print_seeds(across: Sequence[AcrossSeeds]) -> None:
    """In how many seeds each check holds, does not and is not judged; what was measured where it does not hold."""
    console = _console()
    checks = _checks("measured, all seeds", 4, holds=5, **{"does not": 8, "not judged": 10})
    for each in across:
        checks.add_section()
        checks.add_row(Text(each.experiment, style="bold"), Text(f"seeds {', '.join(map(str, each.seeds))}"))
        for row in each.rows:
            places = [place for place, verdict in enumerate(row.verdicts) if verdict is Verdict.FAILS]
            failed = [f"seed {each.seeds[place]}: {row.measured[place]}" for place in places]
            what = _what(row, failed, failed=bool(failed), held=row.count(Verdict.HOLDS) == len(each.seeds))
            numbers = [Text(str(row.count(kind) or "-"), justify="right") for kind in _JUDGED]
            checks.add_row(what, Text(row.expected), Text(row.range), *numbers)
    console.print(checks)
    _print_counts(console, [(each.experiment, {why: sum(by) for why, by in each.counts.items()}) for each in across])


def _what(row: Any, lines: Sequence[str], *, failed: bool, held: bool) -> Padding:
    """What a check is about, and below it where it failed, what would make it fail, and why it does not hold."""
    what = Text(row.what)
    for line in lines:
        what.append(f"\n{line}", style=_MARKS[Verdict.FAILS][2])
    if failed and row.fails_if:
        what.append(f"\nfails if {row.fails_if}", style="dim")
    if row.why and not held:
        what.append(f"\n{row.why}", style="dim")
    return Padding(what, (0, 0, 0, 2))


def _checks(measured: str, wide: int, **widths: int) -> Table:
    """An empty table of checks: what each is about, columns that wrap, and narrow ones."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=True)
    for name, ratio in (("", 5), ("expected", 3), (measured, wide)):
        table.add_column(name, ratio=ratio)
    for name, width in widths.items():
        table.add_column(name, width=width, no_wrap=True)
    return table


def _print_counts(console: Console, found: Sequence[tuple[str, Mapping[str, int]]]) -> None:
    counts = _table("discarded or failed", "", "instances", right=("instances",))
    for name, by_reason in found:
        rows = [(reason, count) for reason, count in by_reason.items() if count]
        for number, (reason, count) in enumerate(rows):
            counts.add_row("" if number else name, escape(reason), f"{count:,}")
    console.print(counts if counts.row_count else "Nothing was discarded, and nothing failed.")


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
