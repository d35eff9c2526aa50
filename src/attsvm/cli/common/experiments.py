"""Finished experiments: expected against measured, in tables and in summary.json; and bars while they run."""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.markup import escape
from rich.padding import Padding
from rich.progress import Progress, ProgressColumn, Task, TaskID
from rich.table import Column
from rich.text import Text

from attsvm.cli.common.files import write_text
from attsvm.cli.common.report import live_bars, print_table
from attsvm.experiments import AcrossSeeds, Check, Experiment, Judged, SweepResult, Verdict
from attsvm.sweep.manifest import to_plain

SUMMARY = "summary.json"
_MARKS = {
    Verdict.HOLDS: ("✓", "+", "green"),
    Verdict.FAILS: ("✗", "x", "bold red"),
    Verdict.OPEN: ("·", ".", "yellow"),
    Verdict.MEASURED: ("·", ".", "dim"),
}


@dataclass(frozen=True)
class FigureSummary(Judged):
    """What one finished experiment comes to, for tables and summary.json."""

    pictures: Sequence[Path]
    cpu_seconds: Mapping[str, float]  # computing, compiling, importing, drawing
    wall_seconds: float
    public_code: Mapping[str, float] | None  # its CPU seconds, ours, and how many times less that is
    notes: Sequence[str]

    @property
    def speed(self) -> str | None:
        """CPU seconds of computing against those of the public code, for the paper's configuration on a CPU."""
        if (code := self.public_code) is None:
            return None
        return f"CPU {seconds(code['ours'])}, public code {seconds(code['seconds'])}: {times(code['factor'])}"

    def to_json(self) -> dict[str, Any]:
        plain = {name: value for name, value in to_plain(self).items() if name != "configuration"}
        pictures = [path.name for path in self.pictures]
        return plain | {"folder": str(self.folder), "seed": self.seed, "pictures": pictures}

    def save(self) -> Path:
        text = json.dumps(self.to_json() | {"folder": "."}, indent=2, allow_nan=False) + "\n"
        return write_text(self.folder / SUMMARY, text)


def summarize(
    experiment: Experiment[Any], result: SweepResult, pictures: Sequence[Path], drawing: float
) -> FigureSummary:
    """Judge a stored result; `drawing` is the CPU time that its pictures took.

    The speed is known only for the paper's configuration, whatever the seed, and on a CPU as the public code was; it is
    one of the checks where a factor is expected.
    """
    checks, public = list(experiment.checks(result)), None
    paper = experiment.default.to_json() | {"seed": result.configuration["seed"]}
    if experiment.public_seconds is not None and (result.configuration, result.manifest["device"]) == (paper, "cpu"):
        ours, wanted = result.cpu_seconds(experiment.public_tasks), experiment.public_factor
        factor = experiment.public_seconds / max(ours, 1e-9)
        public = {"seconds": experiment.public_seconds, "ours": round(ours, 4), "factor": round(factor, 1)}
        if wanted is not None:
            expected = f"public code {seconds(experiment.public_seconds)}, at least {times(wanted)} less"
            measured, fails = f"{seconds(ours)}, {times(factor)} less", f"it is less than {times(wanted)} below that"
            verdict = Verdict.of(factor >= wanted)
            checks.append(Check("CPU time of computing", expected, measured, verdict, f"{fails} of the public code"))
    return FigureSummary(
        experiment.id, result.folder, result.configuration, checks, dict(result.counts), pictures,
        {**result.manifest["cpu_seconds"], "drawing": round(drawing, 4)}, result.manifest["wall_seconds"], public,
        list(result.manifest["notes"]),
    )  # fmt: skip


def verdict_line(summaries: Sequence[FigureSummary]) -> str:
    """How many checks hold, in a clause."""
    return _counted([[check.verdict] for each in summaries for check in each.checks], "hold", "not", "")


def seeds_line(across: Sequence[AcrossSeeds]) -> str:
    """How many checks hold in every seed, in a clause."""
    rows = [row.verdicts for each in across for row in each.rows]
    return _counted(rows, "hold in every seed", "not hold in some", " in some")


def _counted(rows: Sequence[Sequence[Verdict]], hold: str, fail: str, some: str) -> str:
    """The clause about rows that hold the verdicts of a check, one for each seed."""
    judged = [row for row in rows if Verdict.MEASURED not in row]
    failed, left = (sum(kind in row for row in judged) for kind in (Verdict.FAILS, Verdict.OPEN))
    parts = [f"{sum({*row} == {Verdict.HOLDS} for row in judged)} of {len(judged)} checks {hold}"]
    parts += [f"{failed} {'does' if failed == 1 else 'do'} {fail}"] if failed else []
    parts += [f"{left} {'is' if left == 1 else 'are'} not judged{some}"] if left else []
    return "; ".join(parts) if judged else "no checks"


def seconds(value: float, digits: int = 2) -> str:
    """A time for a table: 0.01 s, 190 s, 83 min, 9.6 h."""
    if value < 1000:
        return f"{value:.{digits}f} s" if value < 10 else f"{value:.0f} s"
    return f"{value / 3600:.1f} h" if value >= 6000 else f"{value / 60:.0f} min"


def times(factor: float) -> str:
    """A factor for a table: 1.3x, 158x, 67,890x."""
    return f"{factor:.1f}x" if factor < 10 else f"{factor:,.0f}x"


class TimeLeft(ProgressColumn):
    """Time left, from all chunks computed so far; rich's own column would wait for a second one, of minutes perhaps."""

    def render(self, task: Task) -> Text:
        computed = task.completed - task.fields["found"]
        if not computed or task.elapsed is None or task.total is None:
            return Text("?")
        left = task.elapsed / computed * (task.total - task.completed)
        return Text(str(datetime.timedelta(seconds=round(left))))


@dataclass(frozen=True)
class Bars:
    """One bar for each experiment, from the moment it starts."""

    live: Progress

    def reporter(self, name: str) -> Callable[[int, int], None]:
        """Takes the chunks done and the chunks known of the experiment `name`."""
        begun: list[TaskID] = []

        def report(done: int, total: int) -> None:
            if not begun:  # what was there already is no measure of speed
                begun.append(self.live.add_task(name, found=done))
            self.live.update(begun[0], completed=done, total=total)

        return report

    def say(self, sentence: str) -> None:
        """A line on stderr, above the bars."""
        if self.live.disable:
            typer.echo(sentence, err=True)
        else:
            self.live.console.print(Text(sentence))


@contextmanager
def progress_bars(*, quiet: bool) -> Iterator[Bars]:
    """Bars of experiments, in chunks."""
    with live_bars("chunks", quiet=quiet, left=TimeLeft()) as live:
        yield Bars(live)


def print_list(experiments: Sequence[Experiment[Any]]) -> None:
    """All experiments as a table of at most 100 columns."""
    rows = [[each.id, each.source, escape(each.shows), seconds(each.seconds, 0)] for each in experiments]
    print_table("", [("id", "left"), Column("paper"), Column("what it shows"), ("time", "right")], rows, page=True)
    typer.echo("Times are those of the full runs on one core; --quick makes all of them a matter of minutes.")


def print_summary(summaries: Sequence[FigureSummary], imports: float) -> None:
    """Expected against measured, what was left out, and where the CPU time went."""
    sign = 0 if (sys.stdout.encoding or "").lower().startswith("utf") else 1
    rows: list[list[Any]] = []
    for each in summaries:
        rows += [[], [Text(each.experiment, style="bold")]]
        for check in each.checks:
            marks = _MARKS[check.verdict]
            verdict = Text(f"{marks[sign]} {check.verdict.value}", style=marks[2])
            rows.append([_what(check, [check.verdict], []), Text(check.expected), Text(check.measured), verdict])
    _print_checks("measured", 3, rows, verdict=max(len(kind.value) for kind in Verdict) + 2)
    if summaries:
        _print_counts([(each.experiment, each.counts) for each in summaries])
    kinds = ("computing", "compiling", "importing", "drawing")
    spent = [[each.experiment, *(f"{each.cpu_seconds[kind]:.2f}" for kind in kinds)] for each in summaries]
    print_table("", [("CPU seconds", "left"), *((kind, "right") for kind in kinds)], spent, page=True)
    typer.echo(f"Starting Python and importing took {imports:.2f} s of CPU time besides.")
    for each in summaries:
        for note in [*([each.speed] if each.speed else []), *each.notes]:
            typer.echo(f"{each.experiment}: {note}")


def print_seeds(across: Sequence[AcrossSeeds]) -> None:
    """In how many seeds each check holds, does not and is not judged; what was measured where it does not hold."""
    rows: list[list[Any]] = []
    for each in across:
        rows += [[], [Text(each.experiment, style="bold"), Text(f"seeds {', '.join(map(str, each.seeds))}")]]
        for row in each.rows:
            places = [place for place, verdict in enumerate(row.verdicts) if verdict is Verdict.FAILS]
            failed = [f"seed {each.seeds[place]}: {row.measured[place]}" for place in places]
            kinds = (Verdict.HOLDS, Verdict.FAILS, Verdict.OPEN)
            numbers = [Text(str(row.count(kind) or "-"), justify="right") for kind in kinds]
            rows.append([_what(row, row.verdicts, failed), Text(row.expected), Text(row.range), *numbers])
    _print_checks("measured, all seeds", 4, rows, holds=5, **{"does not": 8, "not judged": 10})
    _print_counts([(each.experiment, {why: sum(by) for why, by in each.counts.items()}) for each in across])


def _what(row: Any, verdicts: Sequence[Verdict], failed: Sequence[str]) -> Padding:
    """What a check is about, and below it where it failed, what would make it fail, and why it does not hold."""
    what = Text(row.what)
    for line in failed:
        what.append(f"\n{line}", style=_MARKS[Verdict.FAILS][2])
    if Verdict.FAILS in verdicts and row.fails_if:
        what.append(f"\nfails if {row.fails_if}", style="dim")
    if row.why and {*verdicts} != {Verdict.HOLDS}:
        what.append(f"\n{row.why}", style="dim")
    return Padding(what, (0, 0, 0, 2))


def _print_checks(measured: str, wide: int, rows: Sequence[Sequence[Any]], **widths: int) -> None:
    """What each check is about, expected and measured, which wrap, and narrow columns."""
    columns = [Column("", ratio=5), Column("expected", ratio=3), Column(measured, ratio=wide)]
    narrow = [Column(name, width=width, no_wrap=True) for name, width in widths.items()]
    print_table("", [*columns, *narrow], rows, page=True)


def _print_counts(found: Sequence[tuple[str, Mapping[str, int]]]) -> None:
    rows: list[list[str]] = []
    for name, by_reason in found:
        counts = [[escape(reason), f"{count:,}"] for reason, count in by_reason.items() if count]
        rows += [["" if place else name, *row] for place, row in enumerate(counts)]
    if rows:
        print_table("", [("discarded or failed", "left"), Column(""), ("instances", "right")], rows, page=True)
    else:
        typer.echo("Nothing was discarded, and nothing failed.")
