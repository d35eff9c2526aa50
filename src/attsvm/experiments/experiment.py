"""An experiment: a configuration, tasks that compute one chunk of its grid each, and what its result must show."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from attsvm.experiments.configuration import Configuration

if TYPE_CHECKING:
    from attsvm.experiments.result import ExperimentResult

C = TypeVar("C", bound=Configuration)

Columns = Mapping[str, Tensor | np.ndarray | Sequence[Any] | bool | int | float]
"""A table by columns: one-dimensional, all of one length; a scalar is repeated for every row."""


@dataclass(frozen=True)
class Task:
    """One chunk of the grid: a name that is unique in the experiment, and what `compute` needs to know of it.

    Arguments:
        name: lower-case letters, digits, ``-``, ``.`` and ``_``; it becomes part of a file name.
        values: numbers, strings and tuples of them.
    """

    name: str
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Piece:
    """What one task found.

    Arguments:
        tables: rows by table; the rows of all tasks are joined in the order of the tasks.
        arrays: what a plot needs besides; arrays of one name are joined along their first axis.
        counts: instances discarded or failed, by reason; summed over the tasks, zeros included.
    """

    tables: Mapping[str, Columns] = field(default_factory=dict)
    arrays: Mapping[str, Tensor | np.ndarray] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Done:
    """What is known of a finished task when more tasks are asked for."""

    task: Task
    counts: Mapping[str, int]


class Verdict(enum.Enum):
    """What a check says; its value is the word that the summary prints."""

    HOLDS = "holds"
    FAILS = "does not hold"
    OPEN = "not judged"

    @staticmethod
    def of(answer: bool) -> Verdict:
        """Holds, or does not."""
        return Verdict.HOLDS if answer else Verdict.FAILS


@dataclass(frozen=True)
class Check:
    """One row of the summary: what was expected (and by whom), what was measured, and the verdict.

    `OPEN` is for what a smaller run cannot decide, never for what came out wrong.
    """

    what: str
    expected: str
    measured: str
    verdict: Verdict
    why: str = ""


@dataclass(frozen=True)
class Experiment(Generic[C]):
    """One figure of the papers, or one of ours.

    Arguments:
        id: as in the list of experiments.
        source: "MMTS", "TaSVM", "talk" or "new".
        title: a short name.
        shows: one sentence on what to see.
        seconds: rough time of the full run on one core, for the list.
        default: the configuration with the paper's values.
        columns: by table, by column: what it holds. Tables must have exactly these columns.
        tasks: the grid cut into chunks, from the configuration alone.
        compute: one chunk on a device; it must not depend on other chunks, the time or global random state.
        checks: what the result must show, from stored tables and arrays alone.
        more: further tasks once all earlier ones are done (draw on until enough are accepted); none by default.
        public_seconds: CPU time of the public notebooks' code for the paper's configuration, where it was measured.
        public_tasks: what the names of the tasks that do the same work start with; all of them by default.
        public_factor: how many times less CPU time than that is expected, where something is expected.
    """

    id: str
    source: str
    title: str
    shows: str
    seconds: float
    default: C
    columns: Mapping[str, Mapping[str, str]]
    tasks: Callable[[C], Sequence[Task]]
    compute: Callable[[C, Task, torch.device], Piece]
    checks: Callable[[ExperimentResult], Sequence[Check]]
    more: Callable[[C, Sequence[Done]], Sequence[Task]] | None = None
    public_seconds: float | None = None
    public_tasks: str = ""
    public_factor: float | None = None


def cut(total: int, size: int) -> list[tuple[int, int]]:
    """Half-open ranges of at most `size` that make up ``range(total)``.

    >>> cut(5, 2)
    [(0, 2), (2, 4), (4, 5)]
    """
    return [(first, min(first + size, total)) for first in range(0, total, size)]
