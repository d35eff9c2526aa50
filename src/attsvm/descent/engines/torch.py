"""The PyTorch engine: batched operations that can do every task, on any device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from attsvm.attention import ScaledTensor
from attsvm.attention.gradient import attend, fixed_scores, risk_gradient
from attsvm.attention.scores import log_excess
from attsvm.data import TokenDataset
from attsvm.descent.engines.base import Advance, Engine, Progress
from attsvm.descent.optimizers.base import Step
from attsvm.descent.task import Task


@dataclass(frozen=True)
class TorchEngine(Engine):
    """Batched PyTorch operations: every head, loss, optimizer, device and dtype."""

    torch_threads = True

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
        kind = task.parameterization
        logits = kind.logits(data, parameters)
        attended = attend(data, head, logits, scores)
        risk = risk_gradient(data, head, task.loss, attended, train_head=task.train_head, scores=scores, kept=kind.kept)
        in_factors = kind.from_logits(data, parameters, risk)
        if task.ridge > 0:
            in_factors = _with_ridge(parameters, in_factors, task.ridge)
        gradients = {**in_factors, **risk.head}

        lengths = (size * task.factors).expand(progress.active.shape)
        excess = partial(log_excess, data, head, task.loss, attended.log_attention)
        step = Step(parameters, gradients, lengths, number, excess, partial(_largest, data, logits))
        moved, state = task.optimizer.advance(step, progress.state)

        zero = torch.stack([(part.mantissa == 0).flatten(2).all(-1) for part in gradients.values()]).all(0)
        finite = task.in_range(moved)
        progress.stalled |= zero & progress.active
        progress.overflowed |= ~finite & progress.active
        progress.active &= finite
        if "underflowed" in state:  # the optimizer cannot go on with gradients this small
            ended = state["underflowed"] & progress.active
            progress.active &= ~ended
            state["underflowed"] = progress.state["underflowed"] | ended
        taken = progress.active
        progress.parameters = _choose(taken, moved, parameters)
        progress.state = _choose(taken, state, progress.state)
        if "underflowed" in state:
            progress.state["underflowed"] = state["underflowed"]


def _largest(data: TokenDataset, logits: Tensor) -> Tensor:
    """The largest |logit| of every run ``[starts, batch]``, masked tokens left out."""
    return data.fill_masked(logits, 0.0).abs().flatten(2).amax(-1)


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
        name: torch.where(taken.reshape(taken.shape + (1,) * (value.ndim - 2)), value, old.get(name, value))
        for name, value in new.items()
    }
