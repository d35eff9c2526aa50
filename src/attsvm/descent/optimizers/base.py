"""What every optimizer has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from attsvm.attention import ScaledTensor
from attsvm.data.checks import check_not_negative, check_number, check_positive
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
    largest_logit: Callable[[], Tensor]  # computes the largest |logit| of the iterate ``[starts, batch]``

    def spread(self, per_element: Tensor, name: str) -> Tensor:
        """A number per element, shaped to multiply the parameter `name`."""
        return per_element.reshape(per_element.shape + (1,) * (self.parameters[name].ndim - per_element.ndim))

    def along(self, directions: Mapping[str, Tensor], lengths: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        """Each parameter less its direction times the step size, and times its length ``[starts, batch]`` if given."""
        sizes = {name: self.size if lengths is None else self.size * lengths[name] for name in self.parameters}
        return {name: old - self.spread(sizes[name], name) * directions[name] for name, old in self.parameters.items()}


class _Sized(ABC):
    """Declares the field that every optimizer has in a place of its own among its arguments."""

    step_size: float | Schedule


@dataclass(frozen=True, repr=False)
class Optimizer(_Sized):
    """A rule that turns gradients into the next iterate, each parameter (W, K, Q, head) by itself unless it says so.

    Every optimizer takes a `step_size`, a positive number or a `Schedule`, and two options, these for W or for K and Q
    (a trained head has neither).
    """

    #: lambda of decoupled decay: what the rule makes of W, less ``step_size * lambda * W`` (with `Adam` this is AdamW);
    #: it ends the growth of the weights
    weight_decay: float = field(default=0.0, kw_only=True)
    #: tau of QK-clip (arXiv 2507.20534): where a |logit| of the iterate that a step leaves is above tau, the next K and
    #: Q are multiplied by the square root of tau over the largest one, W by the ratio itself
    clip: float | None = field(default=None, kw_only=True)

    past_weights: ClassVar[tuple[str, ...]] = ()  # names of fields that must lie in [0, 1)
    positive: ClassVar[tuple[str, ...]] = ()  # of those that must be positive
    not_negative: ClassVar[tuple[str, ...]] = ()  # and of those that may also be zero
    decays_itself: ClassVar[bool] = False  # whether `step` decays the weights already
    means: ClassVar[tuple[str, ...]] = ()  # kinds of running means that it remembers, see `blended`

    def __post_init__(self) -> None:
        as_schedule(self.step_size)  # says what is wrong with it
        for name in ("weight_decay", *self.not_negative):
            check_not_negative(getattr(self, name), name)
        for name in (*self.positive, *(["clip"] if self.clip is not None else [])):
            check_positive(getattr(self, name), name)
        for name in self.past_weights:
            check_number(getattr(self, name), name, "lie in [0, 1)", lambda number: 0 <= number < 1)

    def __repr__(self) -> str:
        """Its arguments, options only where they are set: a run is told from others by this."""
        shown = sorted(fields(self), key=lambda each: bool(each.kw_only))
        given = [each.name for each in shown if not each.kw_only or getattr(self, each.name) != each.default]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in given)})"

    @property
    def option_words(self) -> str | None:
        """Which of the options of every optimizer are set; None if none is."""
        options = {"weight decay": self.weight_decay > 0, "QK-clip": self.clip}
        return " and ".join(name for name, on in options.items() if on) or None

    @property
    def schedule(self) -> Schedule:
        """The step sizes as a schedule; a number means `Constant`."""
        return as_schedule(self.step_size)

    def start(self, parameters: Mapping[str, Tensor]) -> State:
        """State before the first step: a running mean of zero of each kind and parameter; empty if it has none."""
        state: State = {}
        for name, value in parameters.items():
            for kind in self.means:
                state[f"{kind}/{name}"] = torch.zeros_like(value)
                state[f"{kind}_scale/{name}"] = torch.zeros(value.shape[:2], dtype=value.dtype, device=value.device)
        return state

    def check(self, task: Task) -> None:
        """Raise a ValueError where the task lacks what this rule, or its step size, needs."""
        self.schedule.check(task)

    @abstractmethod
    def step(self, now: Step, state: State) -> tuple[dict[str, Tensor], State]:
        """The next parameters and the next state, without the options of every optimizer."""

    def advance(self, now: Step, state: State) -> tuple[dict[str, Tensor], State]:
        """The next parameters and the next state, with weight decay and clipping."""
        moved, kept = self.step(now, state)
        factors = [name for name in moved if not name.startswith("head")]
        if self.weight_decay > 0 and not self.decays_itself:
            for name in factors:
                moved[name] = moved[name] - now.spread(now.size * self.weight_decay, name) * now.parameters[name]
        if self.clip is not None:
            ratio = (self.clip / now.largest_logit().clamp(min=self.clip)) ** (1 / len(factors))
            for name in factors:
                moved[name] = now.spread(ratio, name) * moved[name]
        return moved, kept


def blended(state: State, kept: State, kind: str, name: str, new: ScaledTensor, past: float) -> ScaledTensor:
    """``past * mean + (1 - past) * new``, stored in `kept` too; a mantissa and a log-scale, so that it outlives
    gradients below the smallest float."""
    before = ScaledTensor(state[f"{kind}/{name}"], state[f"{kind}_scale/{name}"])
    mean = before.blend(new, past, 1 - past)
    kept[f"{kind}/{name}"], kept[f"{kind}_scale/{name}"] = mean.mantissa, mean.log_scale
    return mean


def joint_size(logs: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """Of logarithms of sizes: that of ``(sum_k size_k^2)^(1/2)``, and the share of each size in it, 0 if all are."""
    total = torch.logsumexp(2 * torch.stack(list(logs.values())), 0) / 2
    return total, {name: (log - total).exp().masked_fill(torch.isinf(total), 0.0) for name, log in logs.items()}


def as_matrix(parameter: Tensor) -> Tensor:
    """A parameter ``[starts, batch, ...]`` as matrices, the form in which norms take it; vectors become columns."""
    rows = parameter.shape[2] if parameter.ndim > 2 else 1
    return parameter if parameter.ndim == 4 else parameter.reshape(*parameter.shape[:2], rows, -1)
