"""Gradient descent, plain and normalized."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from attsvm.descent.optimizers.base import Optimizer, State, Step
from attsvm.descent.schedules import Schedule


@dataclass(frozen=True)
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


@dataclass(frozen=True)
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
