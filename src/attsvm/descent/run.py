"""A run of descent: its end, what was recorded on the way, and going on from where it ended."""

from __future__ import annotations

import json
import math
import numbers
import os
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attsvm.data.files import read_arrays, write_arrays
from attsvm.descent.engines.base import Progress
from attsvm.descent.fingerprint import same_digest, same_setting
from attsvm.descent.task import Task
from attsvm.norms import Frobenius

RECORDABLE = ("risk", "norm", "attention", "weights", "parameters")


@dataclass(frozen=True, eq=False)
class History:
    """Recorded iterates: row r belongs to the iterate after ``step[r]`` steps; what was not kept is None."""

    step: Int[Tensor, "records"]
    risk: Float[Tensor, "records *lead"] | None = None
    norm: Float[Tensor, "records *lead"] | None = None
    attention: Float[Tensor, "records *lead n T"] | None = None
    weights: Float[Tensor, "records *lead d dq"] | None = None
    parameters: Mapping[str, Tensor] | None = None

    def __len__(self) -> int:
        return self.step.shape[0]

    def __repr__(self) -> str:
        kept = [name for name in RECORDABLE if getattr(self, name) is not None]
        if len(self) == 0:
            return "History(no records)"
        return f"History({len(self)} records of steps {int(self.step[0])}..{int(self.step[-1])}: {', '.join(kept)})"

    def tensors(self) -> dict[str, Tensor]:
        """All that was kept by name, parameters as ``parameters/NAME``; `of` makes a history of it again."""
        plain = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        return plain | {f"parameters/{name}": value for name, value in (self.parameters or {}).items()}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> History:
        """The history whose `tensors` these are."""
        plain = {name: value for name, value in tensors.items() if "/" not in name}
        return cls(**plain, parameters=_part(tensors, "parameters/") or None)

    def followed_by(self, later: History) -> History:
        """This history and a later part of the same run, whose first record repeats this one's last."""
        if len(self) == 0:
            return later
        fresh, mine = later.step > self.step[-1], self.tensors()
        both = {name: (mine[name], new) for name, new in later.tensors().items() if name in mine}
        # A loaded history is on the CPU.
        joined = {name: [old.to(new.device), new[fresh.to(new.device)]] for name, (old, new) in both.items()}
        return History.of({name: torch.cat(parts) for name, parts in joined.items()})


@dataclass(frozen=True, eq=False)
class Run:
    """The end of a descent run and the way there. Shapes: ``*lead`` is ``[*starts, *batch]``."""

    weights: Float[Tensor, "*lead d dq"]  #: final W (the product K Q^T where factors were trained)
    #: every trained parameter by name: ``weights``, or ``key`` and ``query``, and ``head`` (``head.*``)
    parameters: Mapping[str, Tensor]
    attention: Float[Tensor, "*lead n T"]  #: final softmax probabilities
    log_attention: Float[Tensor, "*lead n T"]  #: their logarithms, exact where the probability rounds to 0 or 1
    risk: Float[Tensor, "*lead"]  #: final risk
    history: History  #: the recorded iterates
    step: int  #: number of steps of the longest-running element
    steps_taken: Int[Tensor, "*lead"]  #: of each element (fewer where a stopping rule ended it)
    #: the gradient was exactly zero at some step (zero queries, T = 1, tied scores); most methods then stay
    stalled: Bool[Tensor, "*lead"]
    overflowed: Bool[Tensor, "*lead"]  #: a step would have left the range of floating point and was not taken
    invisible: Bool[Tensor, "*lead n T"]  #: tokens that the final gradient can no longer feel
    state: Mapping[str, Tensor]  #: what the optimizer remembers, for `fit(..., resume=run)`
    configuration: Mapping[str, Any]  #: how the run was made, JSON-able
    seconds: float  #: wall time of the computing part

    @cached_property
    def selected(self) -> Int[Tensor, "*lead n"]:
        """The token each input selects: the argmax of the final attention."""
        return self.log_attention.argmax(-1)

    @cached_property
    def norm(self) -> Float[Tensor, "*lead"]:
        """Frobenius norm of the final W."""
        return Frobenius().value(self.weights)

    @property
    def engine(self) -> str:
        """Which engine took the steps, and, where that is not a compiled one, why."""
        return str(self.configuration.get("engine", "unknown"))

    @property
    def notes(self) -> list[str]:
        """Plain sentences on what a reader of the numbers should know; empty when there is nothing to say."""
        invisible = self.invisible.flatten(self.stalled.ndim).any(-1)
        ended = self.state.get("underflowed", torch.zeros_like(self.stalled))
        sentences = {
            "met a gradient of exactly zero and stayed where they were (zero queries, one token, or tied"
            " scores)": self.stalled,
            "would have left the range of floating point and were held at their last finite weights": self.overflowed,
            "met gradients whose squares underflow, with which the optimizer cannot go on, and stopped": ended,
            "have tokens whose pull has fallen below the round-off of others that keep probability; their direction no"
            " longer improves": invisible,
        }
        total = self.stalled.numel()
        return [f"{int(has.sum())} of {total} runs {said}." for said, has in sentences.items() if bool(has.any())]

    def __repr__(self) -> str:
        batch = f"batch {list(self.risk.shape)}, " if self.risk.ndim else ""
        means = f"risk {self.risk.mean().item():.6g}, norm {self.norm.mean().item():.6g}"
        return f"Run({batch}{self.step} steps, {means}, {', '.join([f'{len(self.history)} records', *self.notes])})"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write everything to .npz or .safetensors, atomically."""
        arrays = {name: getattr(self, name) for name in _TENSORS}
        groups = {"parameters": self.parameters, "state": self.state, "history": self.history.tensors()}
        for group, values in groups.items():
            arrays |= {f"{group}/{name}": value for name, value in values.items()}
        about = {"kind": "Run", "step": self.step, "seconds": self.seconds}
        return write_arrays(path, arrays, {**about, "configuration": json.dumps(self.configuration)})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Run:
        """Read what `save` wrote; `fit(..., resume=run)` goes on from it."""
        arrays, metadata = read_arrays(path)
        if metadata.get("kind") != "Run":
            raise ValueError(f"{path} is not a saved run (its kind is {metadata.get('kind', 'unknown')!r})")
        return cls(
            **{name: arrays[name] for name in _TENSORS},
            parameters=_part(arrays, "parameters/"),
            state=_part(arrays, "state/"),
            history=History.of(_part(arrays, "history/")),
            step=int(str(metadata["step"])),
            seconds=float(str(metadata["seconds"])),
            configuration=json.loads(str(metadata["configuration"])),
        )


_TENSORS = ("weights", "attention", "log_attention", "risk", "steps_taken", "stalled", "overflowed", "invisible")


def record_steps(record: int | Sequence[int], first: int, steps: int) -> list[int]:
    """The steps whose iterates are kept, from `first` to `steps`, in order.

    >>> record_steps(40, 0, 100), record_steps([10, 1], 0, 100)
    ([0, 40, 80, 100], [1, 10])
    """
    if isinstance(record, numbers.Integral) and not isinstance(record, bool) and int(record) > 0:
        between = range(-(-first // int(record)) * int(record), steps + 1, int(record))
        return sorted({first, *between, steps})
    if isinstance(record, str | bytes) or not isinstance(record, Iterable):
        raise ValueError(f"record must be a positive number of steps or a sequence of steps; got {record!r}")
    given = record.tolist() if isinstance(record, np.ndarray | Tensor) else list(record)
    for step in given:
        if not isinstance(step, numbers.Integral) or isinstance(step, bool) or not 0 <= step <= steps:
            raise ValueError(f"record must hold whole numbers of steps from 0 to {steps}; got {step!r}")
    return sorted({int(step) for step in given if step >= first})


class Recorder:
    """Collects iterates at the steps `marks`; attention, weights and risk of a row are those of one iterate."""

    def __init__(self, task: Task, marks: Sequence[int], keep: Collection[str]) -> None:
        unknown = [] if isinstance(keep, str) else [name for name in keep if name not in RECORDABLE]
        if unknown or isinstance(keep, str):
            got = repr(unknown[0]) if unknown else f"the string {keep!r} where a tuple of names is due"
            raise ValueError(f"keep must name some of {', '.join(RECORDABLE)}; got {got}")
        self._task, self._marks, self._keep = task, marks, frozenset(keep)
        self._steps: list[int] = []
        self._rows: dict[str, list[Tensor]] = {}

    def next_mark(self, step: int) -> float:
        """The first step after this one that is to be recorded; infinity if there is none."""
        place = bisect_right(self._marks, step)
        return self._marks[place] if place < len(self._marks) else math.inf

    def wants(self, step: int) -> bool:
        """Whether this step is to be recorded."""
        return self.next_mark(step - 1) == step

    def record(self, step: int, progress: Progress) -> None:
        """Keep what was asked for of the present iterate, unless its step was the last one recorded."""
        if step in self._steps[-1:]:
            return
        self._steps.append(step)
        weights = self._task.weights(progress.parameters)
        row: dict[str, Tensor] = {"weights": weights, "norm": Frobenius().value(weights)}
        if self._keep & {"risk", "attention"}:
            attended = self._task.forward(progress.parameters)
            row |= {"risk": self._task.loss.value(attended.margin).mean(-1), "attention": attended.attention}
        row |= {f"parameters/{name}": value for name, value in progress.parameters.items()}
        for name, value in row.items():
            if name.partition("/")[0] in self._keep:
                self._rows.setdefault(name, []).append(value.clone())

    def history(self, lead: tuple[int, ...]) -> History:
        """What was recorded, with the leading axes that the caller sees."""
        rows = {name: torch.stack(values) for name, values in self._rows.items()}
        shaped = {name: value.reshape(len(self._steps), *lead, *value.shape[3:]) for name, value in rows.items()}
        return History.of({"step": torch.tensor(self._steps, dtype=torch.int64), **shaped})


def resumed(run: Run, task: Task, asked: Mapping[str, Any]) -> Progress:
    """Where a run stands, ready to go on with the task it was made from; a ValueError unless `asked` is that task."""
    said = {"ridge": 0.0, **run.configuration}  # which runs saved by early versions do not say
    for name in ("data", "head", "train_head", "parameterization", "optimizer", "loss", "batch_size", "ridge"):
        if not same_setting(before := said.get(name), now := asked[name]):
            raise ValueError(f"resume needs the same {name}; the run was made with {before}, now it is {now}")
    earlier = said.get("fingerprint", {})  # runs saved by earlier versions have none
    for name, digest in asked["fingerprint"].items():
        if not same_digest(earlier.get(name, digest), digest):
            raise ValueError(f"resume needs the same {name}; the run was made with another of the same shape")
    if task.batches is not None and [tuple(key) for key in run.configuration["seed"]] != asked["seed"]:
        raise ValueError("resume needs the same seed; mini-batches are drawn from it")
    if (steps := asked["steps"]) < run.step:
        counted = f"steps counts from the start of the run and must be at least the {run.step} already taken"
        raise ValueError(f"{counted}; got {steps}")
    device, batch = task.data.device, task.data.batch_shape[0]

    def folded(value: Tensor) -> Tensor:
        return value.to(device).reshape(-1, batch, *value.shape[run.risk.ndim :]).clone()

    memory = {name: folded(value) for name, value in _part(run.state, "stop/").items()}
    taken, overflowed = folded(run.steps_taken), folded(run.overflowed)
    active = (taken == run.step) & ~overflowed
    if run.configuration.get("stop") == asked["stop"]:
        active &= ~memory.get("stopped", torch.zeros_like(active))
    else:
        memory = {}  # another rule starts afresh on the elements that are not behind
    parameters = {name: folded(value) for name, value in run.parameters.items()}
    state = {name: folded(value) for name, value in run.state.items() if not name.startswith("stop/")}
    return Progress(parameters, state, active, folded(run.stalled), overflowed, taken, memory)


def _part(values: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The entries whose name begins with `prefix`, without it."""
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
