"""Adam and Lion, with moments that do not underflow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from attsvm.attention import ScaledTensor
from attsvm.descent.optimizers.base import Optimizer, State, Step, blank, blended
from attsvm.descent.schedules import Schedule


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
