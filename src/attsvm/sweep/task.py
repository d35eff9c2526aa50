"""What a sweep is: a configuration, tasks that compute one chunk of its grid each, and what each of them finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from attsvm.sweep.configuration import Configuration

C = TypeVar("C", bound=Configuration)

Columns = Mapping[str, Tensor | np.ndarray | Sequence[Any] | bool | int | float]
"""A table by columns: one-dimensional, all of one length; a scalar is repeated for every row."""


@dataclass(frozen=True)
class Task:
    """One chunk of the grid: a name that is unique in the sweep, and what `compute` needs to know of it."""

    name: str  #: lower-case letters, digits, ``-``, ``.`` and ``_``; it becomes part of a file name
    values: Mapping[str, Any] = field(default_factory=dict)  #: plain; after `Sweep.prepare`, what a worker can be sent


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
    tolerances: Mapping[str, float] = field(
        default_factory=dict
    )  #: what the manifest says of solvers' accuracy, by name


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
