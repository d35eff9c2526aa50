"""What is trained on what: all that `fit` is told about a run, checked in one place before anything is computed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attsvm.attention import Head, Loss, Parameterization
from attsvm.attention.gradient import Attended, attend
from attsvm.data import TokenDataset
from attsvm.data.checks import check_kind, check_not_negative
from attsvm.data.streams import Purpose, streams
from attsvm.descent.fingerprint import data_digest, head_digest
from attsvm.descent.optimizers.base import Optimizer
from attsvm.descent.schedules import StoppingRule


@dataclass(frozen=True, eq=False)
class Task:
    """A training task; a ValueError for the first part that does not fit the others.

    The data have one batch axis, parameters are ``[starts, batch, ...]``.
    """

    data: TokenDataset
    head: Head
    loss: Loss
    parameterization: Parameterization
    optimizer: Optimizer
    train_head: bool = False  # whether the prediction head's parameters are trained as well
    ridge: float = 0.0  # weight of the penalty ``ridge/2 ||.||_F^2`` on W, or on K and on Q
    batches: InputBatches | None = None  # the inputs of each step; None means all of them
    stop: StoppingRule | None = None  # ends the runs that it calls done
    seeds: tuple[tuple[int, int], ...] = ()  # the random stream (seed, element) of each data set

    def __post_init__(self) -> None:
        check_kind(self.parameterization, Parameterization, "parameterization", "Weights() or KeyQuery(rank)")
        if not isinstance(self.optimizer, Optimizer):
            given = _named(self.optimizer)
            raise ValueError(f"optimizer must be an optimizer such as GradientDescent(0.1); got {given}")
        check_kind(self.stop, StoppingRule | None, "stop", "a rule such as Saturated() or Settled()")
        check_not_negative(self.ridge, "ridge")
        object.__setattr__(self, "ridge", float(self.ridge))
        if self.batches is not None and self.parameterization.kept is not None:
            raise ValueError("TwoScales is made for all inputs, it takes no mini-batches; leave batch_size out")
        self.optimizer.check(self)

    def describe(self, steps: int) -> dict[str, Any]:
        """How a run of so many steps is made, JSON-able."""
        from attsvm import __version__

        return {
            "version": __version__,
            "data": repr(self.data),
            "head": type(self.head).__name__,
            "train_head": self.train_head,
            **{name: repr(getattr(self, name)) for name in ("parameterization", "optimizer", "loss", "stop")},
            "steps": steps,
            "seed": list(self.seeds),
            "batch_size": None if self.batches is None else self.batches.size,
            "ridge": self.ridge,
            "fingerprint": {"data": data_digest(self.data), "head": head_digest(self.head)},
        }

    @cached_property
    def factors(self) -> Tensor:
        """What the step size of each data set is multiplied with ``[batch]``."""
        return self.optimizer.schedule.factors(self.data, self.head, self.loss)

    def weights(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """The combined W ``[starts, batch, d, dq]``."""
        return self.parameterization.weights(parameters)

    def head_at(self, parameters: Mapping[str, Tensor]) -> Head:
        """The prediction head, with its trained parameters where it is trained."""
        own = {name: value for name, value in parameters.items() if name == "head" or name.startswith("head.")}
        return self.head.with_parameters(own) if self.train_head else self.head

    def forward(self, parameters: Mapping[str, Tensor]) -> Attended:
        """One pass over all inputs."""
        return attend(self.data, self.head_at(parameters), self.parameterization.logits(self.data, parameters))

    @cached_property
    def _reach(self) -> Tensor:
        """No logit of an element is larger than this times the largest entry of its W ``[batch]``."""
        data = self.data
        sizes = (part.flatten(1).abs().amax(1).double() for part in (data.tokens, data.queries))
        return math.prod(sizes, start=torch.tensor(data.d * data.dq, dtype=torch.float64, device=data.device))

    def in_range(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """Whether parameters, and the logits that they make, are numbers of floating point ``[starts, batch]``."""
        finite = torch.stack([torch.isfinite(value).flatten(2).all(-1) for value in parameters.values()]).all(0)
        largest = self.weights(parameters).flatten(2).abs().amax(-1).double() * self._reach
        # A quarter leaves room for the difference of two logits; NaN is not smaller either.
        return finite & (largest < torch.finfo(self.data.dtype).max / 4)


@dataclass(frozen=True, eq=False)
class InputBatches:
    """Shuffled passes over the inputs, `size` of them in each step, in an order for each data set and pass.

    The inputs of step k depend on the seed and k alone, so a resumed run sees the batches it would have seen.
    """

    n: int
    size: int
    keys: tuple[tuple[int, int], ...]
    device: torch.device

    def __post_init__(self) -> None:
        if not isinstance(self.size, int) or isinstance(self.size, bool) or not 1 <= self.size <= self.n:
            raise ValueError(f"batch_size must be an integer from 1 to n = {self.n}; got {self.size!r}")

    def inputs(self, step: int) -> Tensor:
        """Indices ``[batch, size]`` of the inputs used at `step`; a pass that does not divide evenly drops its rest."""
        per_pass = self.n // self.size
        number, place = divmod(step, per_pass)
        return _orders(self, number)[:, place * self.size : (place + 1) * self.size]


@lru_cache(maxsize=4)
def _orders(batches: InputBatches, number: int) -> Tensor:
    draws = streams(batches.keys, (len(batches.keys),), purpose=Purpose.INPUT_ORDER, number=number)
    return torch.from_numpy(np.stack([stream.permutation(batches.n) for stream in draws])).to(batches.device)


def check_data(data: TokenDataset) -> None:
    """Raise unless this is a data set, or a batch of at least one."""
    check_kind(data, TokenDataset, "data", "a TokenDataset")
    if 0 in data.batch_shape:
        raise ValueError(f"data must hold at least one data set; its batch is {list(data.batch_shape)}")


def _named(given: object) -> str:
    """What was given in the place of an optimizer, and the optimizer that its name resembles."""
    shown = given.__name__ if isinstance(given, type) else repr(given)
    from attsvm import descent

    names = {name.lower(): name for name in descent.__all__ if name.endswith(("Descent", "Adam"))}
    near = get_close_matches(shown.strip("'").lower(), names, n=1)
    return f"{shown}; did you mean {names[near[0]]}(...)?" if near else shown
