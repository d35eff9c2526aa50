"""Steps along the gradient, of its true size, size one or Polyak's; and along running means of it: Adam, Lion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attsvm.attention import LinearHead, ScaledTensor
from attsvm.data.checks import check_positive
from attsvm.descent.optimizers.base import Optimizer, State, Step, blank, blended
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


@dataclass(frozen=True, repr=False)
class Adam(Optimizer):
    """Adam with bias correction, and AdamW with `weight_decay`; both moments are kept as mantissa and log-scale.

    Arguments:
        step_size: a positive number or a `Schedule`.
        beta1, beta2: decay of the first and second moment, in [0, 1).
        epsilon: added to the root of the second moment. 0 by default: any positive value turns Adam into momentum
            gradient descent once the softmax saturates and gradients fall below it.
    """

    step_size: float | Schedule = 0.1
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_decays(self.beta1, self.beta2)
        if not 0 <= self.epsilon < float("inf"):
            raise ValueError(f"epsilon must be finite and not negative; got {self.epsilon!r}")

    def start(self, parameters: Mapping[str, Tensor]) -> State:
        return blank(parameters, "first", "second")

    def step(self, now: Step, state: State) -> tuple[dict[str, Tensor], State]:
        moved: dict[str, Tensor] = {}
        kept: State = {}
        count = now.number + 1
        for name, value in now.parameters.items():
            gradient = now.gradients[name]
            first = blended(state, kept, "first", name, gradient, self.beta1)
            square = ScaledTensor(gradient.mantissa.square(), 2 * gradient.log_scale)
            second = blended(state, kept, "second", name, square, self.beta2)
            root = (second.mantissa / (1 - self.beta2**count)).sqrt()
            if self.epsilon > 0:
                root = root + self.epsilon * now.spread((-second.log_scale / 2).exp(), name)
            mean = first.mantissa / (1 - self.beta1**count)
            ratio = torch.where(root > 0, mean / root.masked_fill(root == 0, 1.0), torch.zeros_like(root))
            factor = now.size * (first.log_scale - second.log_scale / 2).exp()
            moved[name] = value - now.spread(factor, name) * ratio
        return moved, kept


@dataclass(frozen=True, repr=False)
class Lion(Optimizer):
    """``W <- W - step_size * sign(beta1 M + (1 - beta1) grad)``, then ``M <- beta2 M + (1 - beta2) grad``.

    Lion of arXiv 2302.06675; `weight_decay` is its own.

    Arguments:
        step_size: a positive number or a `Schedule`.
        beta1, beta2: weight of the past in the step and in the running mean M, in [0, 1).
    """

    step_size: float | Schedule = 0.1
    beta1: float = 0.9
    beta2: float = 0.99

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_decays(self.beta1, self.beta2)

    def start(self, parameters: Mapping[str, Tensor]) -> State:
        return blank(parameters, "mean")

    def step(self, now: Step, state: State) -> tuple[dict[str, Tensor], State]:
        moved: dict[str, Tensor] = {}
        kept: State = {}
        for name, value in now.parameters.items():
            leading = blended(state, {}, "mean", name, now.gradients[name], self.beta1)
            blended(state, kept, "mean", name, now.gradients[name], self.beta2)
            moved[name] = value - now.spread(now.size, name) * leading.mantissa.sign()
        return moved, kept


def _check_decays(beta1: float, beta2: float) -> None:
    for name, value in (("beta1", beta1), ("beta2", beta2)):
        if not 0 <= value < 1:
            raise ValueError(f"{name} must lie in [0, 1); got {value!r}")
