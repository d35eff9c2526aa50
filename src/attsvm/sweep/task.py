"""What a sweep is: a configuration, tasks that compute one chunk of its grid each, and what each of them finds."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import numbers
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from attsvm import __version__
from attsvm.data.checks import check_count

_KINDS: Mapping[str, tuple[type, str]] = {
    "int": (numbers.Integral, "an integer"),
    "float": (numbers.Real, "a number"),
    "str": (str, "a string"),
}


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """Base of every sweep's configuration: a frozen dataclass of numbers, strings and tuples of them.

    A subclass gives every field a default and may override `quick`. If the number of data sets (or draws) is a field,
    `runs_field` names it, so that `with_runs` can change it. Chunk sizes are fields like all others: a result never
    depends on how many processes computed it.

    Raises:
        ValueError: if a field is not of its kind, the seed is negative, or the number of data sets is not positive.
    """

    seed: int = 0

    runs_field: ClassVar[str | None] = None

    def __post_init__(self) -> None:
        for each in dataclasses.fields(self):
            _check_kind(each.name, str(getattr(each.type, "__name__", each.type)), getattr(self, each.name))
        check_count(self.seed, "seed", 0)
        if self.runs_field is not None:
            check_count(getattr(self, self.runs_field), self.runs_field)

    def quick(self) -> Self:
        """A smaller version that shows the same in a few seconds; itself where it is quick already."""
        return self

    def with_runs(self, runs: int) -> Self:
        """A copy with this number of data sets; a ValueError if it is not positive, or there is none to change."""
        check_count(runs, "runs")
        if self.runs_field is None:
            raise ValueError(f"runs does not apply: {type(self).__name__} has no number of data sets")
        return self.with_values(**{self.runs_field: runs})

    def with_values(self, **values: Any) -> Self:
        """A copy with these fields changed, checked anew; a ValueError if there is no such field."""
        names = [each.name for each in dataclasses.fields(self)]
        if unknown := [name for name in values if name not in names]:
            raise ValueError(f"{type(self).__name__} has no field {unknown[0]!r}; it has {', '.join(names)}")
        return dataclasses.replace(self, **values)

    def to_json(self) -> dict[str, Any]:
        """All fields, as JSON can hold them; a ValueError if a number is not finite."""
        try:
            return json.loads(json.dumps(dataclasses.asdict(self), allow_nan=False))
        except (TypeError, ValueError) as error:
            kind = type(self).__name__
            raise ValueError(f"{kind} must hold finite numbers, strings and tuples of them ({error})") from None

    def fingerprint(self, sweep: str, device: str) -> str:
        """A hash that tells results apart: id of the sweep, every field, version of attsvm, kind of device."""
        # The first key keeps the name it had when only experiments were sweeps: stored chunks carry this hash.
        content = {"experiment": sweep, "device": device, "attsvm": __version__, "configuration": self.to_json()}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Which fields differ, in words: ``steps 2000 instead of 500``."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return ", ".join(f"{name} {after.get(name)} instead of {before.get(name)}" for name in names)


def _check_kind(name: str, kind: str, value: object) -> None:
    """Check a field that is declared int, float, str or a tuple of these; the subclass checks other declarations."""
    inner = kind.removeprefix("tuple[").removesuffix(", ...]")
    if inner != kind and inner in _KINDS:
        if not isinstance(value, tuple) or not value:
            raise ValueError(f"{name} must be a tuple with something in it; got {value!r}")
        for part in value:
            _check_kind(f"every part of {name}", inner, part)
    elif kind in _KINDS:
        expected, words = _KINDS[kind]
        if not isinstance(value, expected) or isinstance(value, bool):
            raise ValueError(f"{name} must be {words}; got {value!r}")


C = TypeVar("C", bound=Configuration)

Columns = Mapping[str, Tensor | np.ndarray | Sequence[Any] | bool | int | float]
"""A table by columns: one-dimensional, all of one length; a scalar is repeated for every row."""


@dataclass(frozen=True)
class Task:
    """One chunk of the grid: a name that is unique in the sweep, and what `compute` needs to know of it."""

    name: str  #: lower-case letters, digits, ``-``, ``.`` and ``_``; it becomes part of a file name
    values: Mapping[str, Any] = field(default_factory=dict)  #: plain; after `Sweep.prepare`, what a worker can be sent

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", self.name):
            raise ValueError(f"a task's name must be lower-case letters, digits, '.', '-' and '_'; got {self.name!r}")


@dataclass(frozen=True)
class Piece:
    """What one task found: rows by table, further arrays, and instances discarded or failed by reason.

    Those of all tasks are joined in the order of the tasks, arrays along their first axis; counts are summed, zeros
    included.
    """

    tables: Mapping[str, Columns] = field(default_factory=dict)
    arrays: Mapping[str, Tensor | np.ndarray] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Done:
    """What is known of a finished task when more tasks are asked for."""

    task: Task
    counts: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Sweep(Generic[C]):
    """A grid of tasks, each computed by itself and stored as one chunk."""

    id: str  #: its name, part of the manifest and of the fingerprint
    default: C  #: the configuration that runs unless another one is given
    columns: Mapping[str, Mapping[str, str]]  #: by table, by column: what it holds; tables have exactly these columns
    tasks: Callable[[C], Sequence[Task]]  #: the grid cut into chunks, from the configuration alone
    #: one chunk on a device; it must not depend on other chunks, the time or global random state
    compute: Callable[[C, Task, torch.device], Piece]
    #: further tasks once all earlier ones are done (draw on until enough are accepted)
    more: Callable[[C, Sequence[Done]], Sequence[Task]] | None = None
    #: the same tasks with larger values, for those that are not stored yet; it runs once for each round and not on the
    #: workers, which get the values with the task
    prepare: Callable[[C, Sequence[Task]], Sequence[Task]] | None = None
    imports: Sequence[str] = ()  #: modules that `compute` imports late; importing them is not counted as computing
    #: what the manifest says of solvers' accuracy, by name
    tolerances: Mapping[str, float] = field(default_factory=dict)


def cut(total: int, size: int) -> list[tuple[int, int]]:
    """Half-open ranges of at most `size` that make up ``range(total)``.

    >>> cut(5, 2)
    [(0, 2), (2, 4), (4, 5)]
    """
    return [(first, min(first + size, total)) for first in range(0, total, size)]


def chunked(name: str, total: int, size: int, **values: Any) -> list[Task]:
    """Tasks that share out ``range(total)``, at most `size` elements each, under the values ``first`` and ``last``.

    Their names are `name` and the number of the first element; `values` is what every one of them knows besides.

    >>> [(task.name, task.values["last"]) for task in chunked("w", 5, 3, kind="W")]
    [('w-00000', 3), ('w-00003', 5)]
    """
    return [Task(f"{name}-{first:05d}", {**values, "first": first, "last": last}) for first, last in cut(total, size)]
