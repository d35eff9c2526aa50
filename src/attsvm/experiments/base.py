"""What an experiment is: a sweep with words about it, and checks that hold its result against what was expected."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import torch

from attsvm.experiments.checks import Check
from attsvm.svm import ActiveSet, Conic, InteriorPoint, LinearProgram, NuclearInteriorPoint
from attsvm.sweep.task import Configuration, Done, Piece, Sweep, Task, chunked

if TYPE_CHECKING:
    from attsvm.sweep.result import SweepResult

C = TypeVar("C", bound=Configuration)

CATALOGUE: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("catalogue.toml").read_text("utf-8"))
"""What every experiment is called and shows, and what its columns hold, by its id."""


def _tolerances() -> dict[str, float]:
    """By solver, the relative gap that a certificate must reach for an SVM to count as solved."""
    solvers = (ActiveSet(), NuclearInteriorPoint(), InteriorPoint(), LinearProgram(), Conic())
    return {type(each).__name__: each.accuracy for each in solvers}


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
    tolerances: Mapping[str, float] = field(default_factory=_tolerances)


@dataclass(frozen=True, kw_only=True)
class Study(Configuration):
    """A configuration with the methods that make it an experiment; those of a `Sweep` are described there."""

    smaller: ClassVar[Mapping[str, Any]] = {}  # what `quick` changes
    imports: ClassVar[Sequence[str]] = ("numba",)  # modules that `compute` imports late

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
        names = {each.name for each in dataclasses.fields(self)}
        stored = {name: _tuples(value) for name, value in result.configuration.items() if name in names}
        return self.with_values(**stored).checks(result)

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


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
