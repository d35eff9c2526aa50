"""Engines advance a batch of runs by some steps; this one is PyTorch and can do everything on any device."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from attsvm.attention import Head, Loss, Parameterization, ScaledTensor, Weights
from attsvm.attention.gradient import Attended, attend, fixed_scores, risk_gradient
from attsvm.attention.linear_maps import flat_adjoint, flat_logits
from attsvm.attention.prediction_heads import LinearHead
from attsvm.attention.scores import flat_scores
from attsvm.data import TokenDataset
from attsvm.descent.batches import InputBatches
from attsvm.descent.optimizers import Optimizer, PolyakDescent
from attsvm.descent.optimizers.base import State, Step
from attsvm.descent.schedules import LipschitzStep


@dataclass(frozen=True, eq=False)
class Task:
    """What is trained on what; data have one batch axis and parameters ``[starts, batch, ...]``."""

    data: TokenDataset
    head: Head
    loss: Loss
    parameterization: Parameterization
    optimizer: Optimizer
    train_head: bool
    factors: Tensor
    batches: InputBatches | None = None
    ridge: float = 0.0

    def weights(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """The combined W ``[starts, batch, d, dq]``."""
        return self.parameterization.weights(parameters)

    def head_at(self, parameters: Mapping[str, Tensor]) -> Head:
        """The head, with its trained parameters where it is trained."""
        return self.head.with_parameters(_head_part(parameters)) if self.train_head else self.head

    def forward(self, parameters: Mapping[str, Tensor]) -> Attended:
        """One pass over all inputs."""
        return attend(self.data, self.head_at(parameters), flat_logits(self.data, self.weights(parameters)))

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


def _head_part(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value for name, value in parameters.items() if name == "head" or name.startswith("head.")}


@dataclass(eq=False)
class Progress:
    """The moving part of a run: parameters, optimizer state, and what happened to each element on the way."""

    parameters: dict[str, Tensor]
    state: State
    active: Tensor
    stalled: Tensor
    overflowed: Tensor
    memory: dict[str, Tensor] = field(default_factory=dict)


Advance = Callable[[Progress, int, np.ndarray], None]
"""Called with (progress, first, sizes): takes ``len(sizes)`` steps, numbered from `first`, in place."""


class Engine(ABC):
    """Advances runs; all engines give the same iterates up to rounding."""

    @abstractmethod
    def refusal(self, task: Task, starts: int) -> str | None:
        """Why this engine cannot run the task, as a clause; None if it can."""

    @abstractmethod
    def prepare(self, task: Task, starts: int) -> Advance:
        """Lay out the task once; the result advances it, stretch by stretch."""


@dataclass(frozen=True)
class TorchEngine(Engine):
    """Batched PyTorch operations: every head, loss, optimizer, device and dtype."""

    def refusal(self, task: Task, starts: int) -> str | None:
        return None

    def prepare(self, task: Task, starts: int) -> Advance:
        scores = None if task.train_head else fixed_scores(task.data, task.head)

        def advance(progress: Progress, first: int, sizes: np.ndarray) -> None:
            for offset, size in enumerate(sizes):
                self._one_step(task, progress, first + offset, float(size), scores)

        return advance

    def _one_step(self, task: Task, progress: Progress, number: int, size: float, scores: Tensor | None) -> None:
        data = task.data
        if task.batches is not None:
            data = data.take_inputs(task.batches.inputs(number))
            scores = None
        parameters = progress.parameters
        head = task.head_at(parameters)
        attended = attend(data, head, flat_logits(data, task.weights(parameters)), scores)
        risk = risk_gradient(data, head, task.loss, attended, train_head=task.train_head, scores=scores)
        in_weights = risk.logits.map(flat_adjoint(data, risk.logits.mantissa))
        in_factors = task.parameterization.gradients(parameters, in_weights)
        if task.ridge > 0:
            in_factors = _with_ridge(parameters, in_factors, task.ridge)
        gradients = {**in_factors, **risk.head}

        def log_excess() -> Tensor:
            return _log_excess(data, head, task.loss, attended)

        lengths = (size * task.factors).expand(progress.active.shape)
        step = Step(parameters, gradients, lengths, number, log_excess)
        moved, state = task.optimizer.step(step, progress.state)

        zero = torch.stack([(part.mantissa == 0).flatten(2).all(-1) for part in gradients.values()]).all(0)
        finite = task.in_range(moved)
        progress.stalled |= zero & progress.active
        progress.overflowed |= ~finite & progress.active
        progress.active &= finite
        taken = progress.active
        progress.parameters = _choose(taken, moved, parameters)
        progress.state = _choose(taken, state, progress.state)


def _with_ridge(
    parameters: Mapping[str, Tensor], gradients: Mapping[str, ScaledTensor], ridge: float
) -> dict[str, ScaledTensor]:
    """``gradient + ridge * parameter``, at the larger scale of the two: far out the ridge is all that is left."""
    return {
        name: gradient.blend(ScaledTensor(parameters[name], torch.zeros_like(gradient.log_scale)), 1.0, ridge)
        for name, gradient in gradients.items()
    }


def _choose(taken: Tensor, new: Mapping[str, Tensor], old: Mapping[str, Tensor]) -> dict[str, Tensor]:
    if taken.device.type == "cpu" and bool(taken.all()):  # elsewhere asking would make the host wait for the device
        return dict(new)
    return {
        name: torch.where(taken.reshape(taken.shape + (1,) * (value.ndim - 2)), value, old[name])
        for name, value in new.items()
    }


def _log_excess(data: TokenDataset, head: Head, loss: Loss, attended: Attended) -> Tensor:
    """log(L - L_*) for a linear head, from the shortfalls D_i = sum_t s_it (gamma_i,opt - gamma_it)."""
    scores = flat_scores(data, head)
    best = scores.amax(-1)
    gaps = (best.unsqueeze(-1) - scores).clamp(min=0)
    log_shortfall = (
        (attended.log_attention + gaps.log().where(torch.isfinite(gaps), gaps))
        .masked_fill(~torch.isfinite(scores), -torch.inf)
        .logsumexp(-1)
    )
    return loss.log_excess(best.expand_as(log_shortfall), log_shortfall).logsumexp(-1) - float(np.log(data.n))


def check_optimizer_fits(
    optimizer: Optimizer, head: Head, parameterization: Parameterization, train_head: bool, ridge: float
) -> None:
    """Raise where an optimizer needs what the task cannot give."""
    if isinstance(optimizer, PolyakDescent) and (train_head or not isinstance(head, LinearHead)):
        raise ValueError(
            "PolyakDescent needs a fixed linear head, whose best risk is known; use NormalizedGradientDescent instead"
        )
    if isinstance(optimizer, PolyakDescent) and ridge > 0:
        raise ValueError(
            "PolyakDescent needs the best risk, which a ridge changes; use NormalizedGradientDescent instead"
        )
    if isinstance(optimizer.schedule, LipschitzStep):
        if ridge > 0:
            raise ValueError("LipschitzStep() bounds the gradient of the risk alone; it needs ridge=0")
        if not isinstance(parameterization, Weights):
            raise ValueError(f"LipschitzStep() bounds the gradient in W; it needs Weights(), got {parameterization!r}")
        if train_head:
            raise ValueError("LipschitzStep() bounds the gradient in W; it needs a fixed head, not train_head=True")
