"""What every optimizer has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from attsvm.attention import ScaledTensor
from attsvm.descent.schedules import Schedule, as_schedule

if TYPE_CHECKING:
    from attsvm.descent.task import Task

State = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Step:
    """All that one step may look at; tensors are ``[starts, batch, ...]``."""

    parameters: Mapping[str, Tensor]  # the current iterate
    gradients: Mapping[str, ScaledTensor]  # of the risk, one for each parameter
    size: Tensor  # step size of each element ``[starts, batch]``
    number: int  # 0 for the first step of a run
    log_excess: Callable[[], Tensor]  # computes log(risk - best risk) ``[starts, batch]``

    def spread(self, per_element: Tensor, name: str) -> Tensor:
        """A number per element, shaped to multiply the parameter `name`."""
        return per_element.reshape(per_element.shape + (1,) * (self.parameters[name].ndim - per_element.ndim))


class Optimizer(ABC):
    """A rule that turns gradients into the next iterate, each parameter (W, K, Q, head) by itself."""

    step_size: float | Schedule

    def __post_init__(self) -> None:
        as_schedule(self.step_size)  # says what is wrong with it

    @property
    def schedule(self) -> Schedule:
        """The step sizes as a schedule."""
        return as_schedule(self.step_size)

    def start(self, parameters: Mapping[str, Tensor]) -> State:
        """State before the first step; empty unless the rule remembers."""
        return {}

    def check(self, task: Task) -> None:
        """Raise a ValueError where the task lacks what this rule, or its step size, needs."""
        self.schedule.check(task)

    @abstractmethod
    def step(self, now: Step, state: State) -> tuple[dict[str, Tensor], State]:
        """The next parameters and the next state."""


def as_matrix(parameter: Tensor) -> Tensor:
    """A parameter ``[starts, batch, ...]`` as matrices, the form in which norms take it; vectors become columns."""
    trailing = parameter.shape[2:]
    if len(trailing) == 2:
        return parameter
    return parameter.reshape(*parameter.shape[:2], trailing[0] if trailing else 1, -1)
