"""Steps along the gradient: its true size, size one, or the size that Polyak's rule gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attsvm.attention import LinearHead
from attsvm.data.checks import check_positive
from attsvm.descent.optimizers.base import Optimizer, State, Step
from attsvm.descent.schedules import Schedule

if TYPE_CHECKING:
    from attsvm.descent.task import Task


@dataclass(frozen=True, repr=False)
class GradientDescent(Optimizer):
    """``W <- W - step_size * grad``, with the gradient's true size.

    ``step_size=LipschitzStep()`` takes the bound of the theory for each data set.
    """

    step_size: float | Schedule = 0.1

    def step(self, now: Step, state: State) -> tuple[dict[str, Tensor], State]:
        return {
            name: value - now.spread(now.size, name) * now.gradients[name].tensor()
            for name, value in now.parameters.items()
        }, state


@dataclass(frozen=True, repr=False)
class NormalizedGradientDescent(Optimizer):
    """``W <- W - step_size * grad / ||grad||_F``, each parameter by its own gradient norm, as in the papers.

    A gradient that is exactly zero leaves the parameter where it is.
    """

    step_size: float | Schedule = 0.1

    def step(self, now: Step, state: State) -> tuple[dict[str, Tensor], State]:
        return {
            name: value - now.spread(now.size, name) * now.gradients[name].normalized()
            for name, value in now.parameters.items()
        }, state


@dataclass(frozen=True, repr=False)
class PolyakDescent(Optimizer):
    """``W <- W - step_size * (L - L_*) / ||grad||^2 * grad``, L_* the best risk of a linear head (arXiv 2402.05738).

    Risk above the best and gradient norm are taken in logarithms, so the ratio is right long after both underflow.
    Where descent settles on a selection that is only locally optimal, L - L_* stays positive while the gradient
    vanishes: the displacement is therefore capped.

    Arguments:
        step_size: a factor on Polyak's step, a number or a `Schedule`; 1 is Polyak's own.
        largest_displacement: cap on the Frobenius norm of one step.
    """

    step_size: float | Schedule = 1.0
    largest_displacement: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self.largest_displacement, "largest_displacement")

    def check(self, task: Task) -> None:
        super().check(task)
        if task.train_head or not isinstance(task.head, LinearHead):
            raise ValueError(
                "PolyakDescent needs a fixed linear head, whose best risk is known;"
                " use NormalizedGradientDescent instead"
            )
        if task.ridge > 0:
            raise ValueError(
                "PolyakDescent needs the best risk, which a ridge changes; use NormalizedGradientDescent instead"
            )

    def step(self, now: Step, state: State) -> tuple[dict[str, Tensor], State]:
        log_norms = torch.stack([gradient.log_norm() for gradient in now.gradients.values()])
        total = 0.5 * torch.logsumexp(2 * log_norms, dim=0)
        log_step = now.log_excess() - total
        length = (now.size * log_step.clamp(max=100.0).exp()).clamp(max=self.largest_displacement)
        still = torch.isinf(total)
        length = torch.where(still, torch.zeros_like(length), length)
        moved: dict[str, Tensor] = {}
        for name, value in now.parameters.items():
            gradient = now.gradients[name]
            share = torch.where(still, torch.zeros_like(total), (gradient.log_norm() - total).exp())
            moved[name] = value - now.spread(length * share, name) * gradient.normalized()
        return moved, state
