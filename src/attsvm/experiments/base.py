"""What an experiment is: a sweep with words about it, and checks that hold its result against what was expected.

The checks and allowances that several experiments share are here too.
"""

from __future__ import annotations

import enum
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import torch

from attsvm.svm import ActiveSet, Conic, InteriorPoint, LinearProgram, NuclearInteriorPoint
from attsvm.sweep import Configuration, Done, Piece, Sweep, SweepResult, Task, chunked
from attsvm.sweep.manifest import from_plain, to_plain

C = TypeVar("C", bound=Configuration)

CATALOGUE: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("catalogue.toml").read_text("utf-8"))
"""What every experiment is called and shows, and what its columns hold, by its id."""


STUDIES: dict[str, type[Study]] = {}
"""What computes each experiment, by its id."""

_SOLVERS = (ActiveSet(), NuclearInteriorPoint(), InteriorPoint(), LinearProgram(), Conic())
_TOLERANCES = {type(each).__name__: each.accuracy for each in _SOLVERS}
"""By solver, the relative gap that a certificate must reach for an SVM to count as solved."""


class Verdict(enum.Enum):
    """What a check says; its value is what the summary prints."""

    HOLDS = "holds"
    FAILS = "does not hold"
    OPEN = "not judged"
    MEASURED = "only measured"

    @staticmethod
    def of(answer: bool, *, enough: bool = True) -> Verdict:
        """Holds, or does not; `OPEN` unless there was `enough` to judge by."""
        return (Verdict.HOLDS if answer else Verdict.FAILS) if enough else Verdict.OPEN


@dataclass(frozen=True)
class Check:
    """One row of the summary.

    The verdict is `OPEN` where a smaller run cannot decide, never where something came out wrong, and `MEASURED` for a
    number that nobody predicted.
    """

    what: str  # is looked at: the same for every seed and size of the run, so that runs can be compared
    expected: str  # what should come out, and who says so
    measured: str  # what came out
    verdict: Verdict
    fails_if: str = ""  # the clause that decides, with its threshold: "a cosine is at most .999"
    why: str = ""  # printed below `what`, as `fails_if` is, unless the check holds


@dataclass(frozen=True, kw_only=True)
class Experiment(Sweep[C]):
    """One figure of the papers, or one of ours: a sweep, and what its result must show.

    Its default has the paper's values. Where the public notebooks' code was timed, its CPU time is told beside ours.
    """

    source: str  # "MMTS", "TaSVM", "talk" or "new"
    title: str  # a short name
    shows: str  # one sentence on what to see
    seconds: float  # rough time of the full run on one core, for `attsvm figure list`
    checks: Callable[[SweepResult], Sequence[Check]]  # what it must show, from stored tables and arrays alone
    public_seconds: float | None = None  # CPU time of the public code for the paper's configuration
    public_tasks: str = ""  # what the names of the tasks that do the same work start with
    public_factor: float | None = None  # how many times less CPU time is expected, if something is
    imports: Sequence[str] = ("numba",)
    tolerances: Mapping[str, float] = field(default_factory=lambda: _TOLERANCES)


@dataclass(frozen=True, kw_only=True)
class Study(Configuration):
    """A configuration with the methods that make it an experiment; those of a `Sweep` are described there.

    A class that states the `identity` of an experiment computes it; others are bases of several.
    """

    smaller: ClassVar[Mapping[str, Any]] = {}  # what `quick` changes
    imports: ClassVar[Sequence[str]] = ("numba",)  # modules that `compute` imports late

    def __init_subclass__(cls, identity: str | None = None) -> None:
        if identity is not None:
            STUDIES[identity] = cls

    def quick(self) -> Self:
        return self.with_values(**self.smaller)

    def tasks(self) -> Sequence[Task]:
        raise NotImplementedError

    def compute(self, task: Task, device: torch.device) -> Piece:
        raise NotImplementedError

    def more(self, done: Sequence[Done]) -> Sequence[Task]:
        return ()

    def checks(self, result: SweepResult) -> Sequence[Check]:
        """What a result of this configuration must show, from stored tables and arrays alone."""
        raise NotImplementedError

    def numbers(self, task: Task) -> range:
        """Of the data sets of a chunk."""
        return range(task.values["first"], task.values["last"])

    def seeds(self, task: Task) -> list[tuple[int, int]]:
        """The stream (seed, number) of every data set of a chunk: cutting the chunks otherwise draws the same data."""
        return [(self.seed, number) for number in self.numbers(task)]

    def judged(self, result: SweepResult) -> Sequence[Check]:
        """The checks of a result of whatever configuration it has; an earlier version may have known fewer fields."""
        stored: Self = from_plain(type(self), to_plain(self) | dict(result.configuration))
        return stored.checks(result)

    def experiment(self, identity: str) -> Experiment[Self]:
        """The experiment of this id in the catalogue, of which this is the default."""
        own, words = type(self), dict(CATALOGUE[identity])
        words.setdefault("columns", CATALOGUE[words.pop("like", identity)]["columns"])
        return Experiment(
            id=identity, default=self, tasks=own.tasks, compute=own.compute, more=own.more, checks=self.judged,
            imports=own.imports, **words,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class DataSets(Study):
    """Base of an experiment on many data sets; by default each task computes a chunk of them."""

    datasets: int = 100  # how many
    chunk_size: int = 50  # how many of them one task computes

    runs_field = "datasets"
    smaller: ClassVar = {"datasets": 20}

    def tasks(self) -> Sequence[Task]:
        return self.chunks()

    def chunks(self, name: str = "datasets", **values: Any) -> list[Task]:
        """Tasks that share out the data sets, named after `name`; each of them knows `values`."""
        return chunked(name, self.datasets, self.chunk_size, **values)


def claim(
    what: str,
    expected: str,
    measured: str,
    holds: bool | np.bool_,
    fails_if: str,
    *,
    enough: bool | np.bool_ = True,
    why: str = "",
    predicted: bool = True,
) -> Check:
    """A check that holds or does not; not judged, and `why`, unless there was `enough` to judge by.

    Where nobody `predicted` it, it is only measured.
    """
    verdict = Verdict.of(bool(holds), enough=bool(enough)) if predicted else Verdict.MEASURED
    return Check(what, expected, measured, verdict, fails_if if predicted else "", "" if enough else why)


def reported(what: str, expected: str, measured: str) -> Check:
    """A number that nobody predicted."""
    return Check(what, expected, measured, Verdict.MEASURED)


def allowance(deviation: float, count: int, public: int) -> float:
    """Three standard errors of the difference between a mean of `count` values and a public one: what chance explains.

    `deviation` is that of one value, sqrt(p (1 - p)) for a share p; `public` values are behind the public mean.

    >>> round(allowance(0.5, 100, 100), 3)
    0.212
    """
    return float(3 * deviation * np.sqrt(1 / count + 1 / public))


def rises(shares: Sequence[float], count: int) -> bool:
    """Whether shares of `count` draws each rise, from the first to the last and as far as chance lets one say.

    The last must lie above the first, and none below an earlier one, each time by more than three standard errors.

    >>> rises([0.1, 0.5, 0.45, 0.9], 100), rises([0.1, 0.9, 0.5], 100), rises([0.5, 0.5], 100)
    (True, False, False)
    """

    def climb(before: float, after: float) -> float:
        middle = (before + after) / 2
        return (after - before) / allowance(max(np.sqrt(middle * (1 - middle)), 1e-9), count, count)

    return climb(shares[0], shares[-1]) > 1 and all(climb(a, b) >= -1 for a, b in combinations(shares, 2))


NOT_RISING = "the last share is not above the first, or one is below an earlier one, by more than three standard errors"


def turning(
    what: str, expected: str, cosines: Callable[..., np.ndarray], recorded: np.ndarray, last: int, *, enough: bool
) -> Check:
    """A check that the directions of all runs tend to their limits, the slowest included.

    A run that is not there yet, at a cosine of .99 or less, must be on its way: while attention saturates the angle
    falls like the inverse of the norm, 1 - cosine like its square. Half that pace is asked for, over the last half of
    the steps, since a run may turn late. `cosines` gives those of every run at a recorded step; `enough` says whether
    the runs are long enough to judge those that are not there yet.
    """
    half = int(recorded[recorded <= last / 2].max())
    after, growth = cosines(step=last), last / half
    there = after > 0.99
    stuck = ~there & ~(1 - after <= (1 - cosines(step=half)) / growth)  # so is a run without a cosine
    decided = len(after) > 0 and (enough or bool(there.all()))
    found = f"; median {np.median(after):.5f}, least {after.min():.4f}" if len(after) else ""
    return claim(
        what, expected, f"{there.sum()} of {len(after)} above .99, {stuck.sum()} stuck{found}", not stuck.any(),
        f"a run ends at a cosine of .99 or less, and 1 - cosine fell less than {growth:.2f}-fold from step {half:,} to"
        f" {last:,}", enough=decided, why="so few runs or steps do not decide",
    )  # fmt: skip
