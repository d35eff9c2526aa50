"""Adam, with moments that do not underflow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from attsvm.attention import ScaledTensor
from attsvm.descent.optimizers.base import Optimizer, State, Step
from attsvm.descent.schedules import Schedule


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam with bias correction; both moments are kept as mantissa and log-scale.

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
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must lie in [0, 1); got {getattr(self, name)!r}")
        if not 0 <= self.epsilon < float("inf"):
            raise ValueError(f"epsilon must be finite and not negative; got {self.epsilon!r}")

    def start(self, parameters: Mapping[str, Tensor]) -> State:
        state: State = {}
        for name, value in parameters.items():
            scale = torch.zeros(value.shape[:2], dtype=value.dtype, device=value.device)
            for moment in ("first", "second"):
                state[f"{moment}/{name}"] = torch.zeros_like(value)
                state[f"{moment}_scale/{name}"] = scale.clone()
        return state

    def step(self, now: Step, state: State) -> tuple[dict[str, Tensor], State]:
        moved: dict[str, Tensor] = {}
        kept: State = {}
        count = now.number + 1
        for name, value in now.parameters.items():
            gradient = now.gradients[name]
            first = ScaledTensor(state[f"first/{name}"], state[f"first_scale/{name}"]).blend(
                gradient, self.beta1, 1 - self.beta1
            )
            square = ScaledTensor(gradient.mantissa.square(), 2 * gradient.log_scale)
            second = ScaledTensor(state[f"second/{name}"], state[f"second_scale/{name}"]).blend(
                square, self.beta2, 1 - self.beta2
            )
            for moment, scaled in (("first", first), ("second", second)):
                kept[f"{moment}/{name}"], kept[f"{moment}_scale/{name}"] = scaled.mantissa, scaled.log_scale
            root = (second.mantissa / (1 - self.beta2**count)).sqrt()
            if self.epsilon > 0:
                root = root + self.epsilon * now.spread((-second.log_scale / 2).exp(), name)
            mean = first.mantissa / (1 - self.beta1**count)
            ratio = torch.where(root > 0, mean / root.masked_fill(root == 0, 1.0), torch.zeros_like(root))
            factor = now.size * (first.log_scale - second.log_scale / 2).exp()
            moved[name] = value - now.spread(factor, name) * ratio
        return moved, kept
