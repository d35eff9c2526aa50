"""Which iterates are recorded, and the recording."""

from __future__ import annotations

import numbers
from collections.abc import Collection, Sequence

import numpy as np
import torch
from torch import Tensor

from attsvm.descent.engine import Progress, Task
from attsvm.descent.run import RECORDABLE, History, norm_of


def record_steps(record: int | Sequence[int], first: int, steps: int) -> frozenset[int]:
    """The steps whose iterates are kept, between `first` and `steps`.

    Raises:
        ValueError: if `record` is neither a positive integer nor a sequence of steps within the run.

    >>> sorted(record_steps(40, 0, 100)), sorted(record_steps([1, 10], 0, 100))
    ([0, 40, 80, 100], [1, 10])
    """
    if isinstance(record, numbers.Integral) and not isinstance(record, bool):
        if record < 1:
            raise ValueError(f"record must be a positive number of steps or a sequence of steps; got {record}")
        return frozenset({first, *range(0, steps + 1, int(record)), steps}) & frozenset(range(first, steps + 1))
    if isinstance(record, (str, bytes, bool)) or (
        not isinstance(record, (Sequence, range)) and not hasattr(record, "__iter__")
    ):
        raise ValueError(f"record must be a positive number of steps or a sequence of steps; got {record!r}")
    given = record.tolist() if isinstance(record, (np.ndarray, Tensor)) else list(record)
    fractional = [step for step in given if not isinstance(step, numbers.Integral) or isinstance(step, bool)]
    if fractional:
        raise ValueError(f"record must hold whole numbers of steps; got {fractional[0]!r}")
    chosen = [int(step) for step in given]
    wrong = [step for step in chosen if not 0 <= step <= steps]
    if wrong:
        raise ValueError(f"record must hold steps from 0 to {steps}; got {wrong[0]}")
    return frozenset(step for step in chosen if step >= first)


class Recorder:
    """Collects recorded iterates; attention, weights and risk of a row are those of one iterate."""

    def __init__(self, task: Task, keep: Collection[str]) -> None:
        unknown = [keep] if isinstance(keep, str) else [name for name in keep if name not in RECORDABLE]
        if unknown:
            raise ValueError(f"keep must name some of {', '.join(RECORDABLE)}; got {unknown[0]!r}")
        self._task = task
        self._keep = frozenset(keep)
        self._steps: list[int] = []
        self._rows: dict[str, list[Tensor]] = {}

    @property
    def last_step(self) -> int | None:
        """The step recorded last."""
        return self._steps[-1] if self._steps else None

    def record(self, step: int, progress: Progress) -> None:
        """Keep what was asked for of the present iterate."""
        self._steps.append(step)
        weights = self._task.weights(progress.parameters)
        row: dict[str, Tensor] = {"weights": weights, "norm": norm_of(weights)}
        if self._keep & {"risk", "attention"}:
            attended = self._task.forward(progress.parameters)
            row |= {"risk": self._task.loss.value(attended.margin).mean(-1), "attention": attended.attention}
        kept = {name: value for name, value in row.items() if name in self._keep}
        if "parameters" in self._keep:
            kept |= {f"parameters/{name}": value for name, value in progress.parameters.items()}
        for name, value in kept.items():
            self._rows.setdefault(name, []).append(value.clone())

    def history(self, lead: tuple[int, ...]) -> History:
        """What was recorded, with the leading axes that the caller sees."""
        rows = {name: torch.stack(values) for name, values in self._rows.items()}
        shaped = {name: value.reshape(len(self._steps), *lead, *value.shape[3:]) for name, value in rows.items()}
        prefix = "parameters/"
        parameters = {name.removeprefix(prefix): value for name, value in shaped.items() if name.startswith(prefix)}
        plain = {name: value for name, value in shaped.items() if not name.startswith(prefix)}
        return History(step=torch.tensor(self._steps, dtype=torch.int64), **plain, parameters=parameters or None)
