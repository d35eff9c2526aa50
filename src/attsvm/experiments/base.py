"""What an experiment is: a sweep with words about it, and checks that hold its result against what was expected."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from attsvm.svm import ActiveSet, Conic, InteriorPoint, LinearProgram, NuclearInteriorPoint
from attsvm.sweep.configuration import Configuration
from attsvm.sweep.task import Sweep

if TYPE_CHECKING:
    from attsvm.sweep.result import SweepResult

C = TypeVar("C", bound=Configuration)


class Verdict(enum.Enum):
    """What a check says; its value is what the summary prints."""

    HOLDS = "holds"
    FAILS = "does not hold"
    OPEN = "not judged"
    MEASURED = "only measured"

    @staticmethod
    def of(answer: bool, *, enough: bool = True) -> Verdict:
        """Holds, or does not; `OPEN` unless there was `enough` to judge by."""
        if not enough:
            return Verdict.OPEN
        return Verdict.HOLDS if answer else Verdict.FAILS


@dataclass(frozen=True)
class Check:
    """One row of the summary.

    Arguments:
        what: what is looked at. It is the same for every seed and size of the run, so that runs can be compared.
        expected: what should come out, and who says so.
        measured: what came out.
        verdict: `OPEN` where a smaller run cannot decide, never where something came out wrong; `MEASURED` for a number
            that nobody predicted.
        fails_if: the clause that decides, with its threshold: "a cosine is at most .999". Empty only for `MEASURED`.
        why: printed below `what`, as `fails_if` is, unless the check holds.
    """

    what: str
    expected: str
    measured: str
    verdict: Verdict
    fails_if: str = ""
    why: str = ""


def _tolerances() -> dict[str, float]:
    """By solver, the relative gap that a certificate must reach for an SVM to count as solved."""
    solvers = (ActiveSet(), NuclearInteriorPoint(), InteriorPoint(), LinearProgram(), Conic())
    return {type(each).__name__: each.accuracy for each in solvers}


@dataclass(frozen=True, kw_only=True)
class Experiment(Sweep[C]):
    """One figure of the papers, or one of ours: a sweep, and what its result must show.

    Arguments:
        id, default, columns, tasks, compute, more, imports: as for every `Sweep`; the default has the paper's values.
        source: "MMTS", "TaSVM", "talk" or "new".
        title: a short name.
        shows: one sentence on what to see.
        seconds: rough time of the full run on one core, for `attsvm figure list`.
        checks: what the result must show, from stored tables and arrays alone.
        public_seconds: CPU time of the public notebooks' code for the paper's configuration, where it was measured.
        public_tasks: what the names of the tasks that do the same work start with; by default all tasks do it.
        public_factor: how many times less CPU time than the public code is expected, if something is expected.
    """

    source: str
    title: str
    shows: str
    seconds: float
    checks: Callable[[SweepResult], Sequence[Check]]
    public_seconds: float | None = None
    public_tasks: str = ""
    public_factor: float | None = None
    imports: Sequence[str] = ("numba",)
    tolerances: Mapping[str, float] = field(default_factory=_tolerances)
