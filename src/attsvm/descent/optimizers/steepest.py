"""Steepest descent in a norm: sign, spectral (Muon), any other, with and without momentum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from attsvm.attention import ScaledTensor
from attsvm.descent.optimizers.base import Optimizer, State, Step, as_matrix
from attsvm.descent.schedules import Schedule
from attsvm.norms import Norm


@dataclass(frozen=True)
class SteepestDescent(Optimizer):
    """``W <- W - step_size * argmax_{N(D) <= 1} <M, D>`` with M the gradient or its running mean.

    `MaxEntry` gives sign descent (Signum with momentum), `Spectral` the exact polar factor (Muon with momentum),
    `Frobenius` normalized descent. For separable linear models the direction tends to the max-margin solution in N
    (arXiv 2502.04664); for attention this is open.

    Arguments:
        norm: N.
        step_size: a positive number or a `Schedule`.
        momentum: weight of the past in ``M <- momentum M + (1 - momentum) grad``, in [0, 1); 0 means none. The mean is
            kept as mantissa and log-scale, so it outlives gradients below the smallest float.
    """

    norm: Norm
    step_size: float | Schedule = 0.1
    momentum: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.norm, Norm):
            raise ValueError(f"norm must be a norm such as Spectral() or MaxEntry(); got {self.norm!r}")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must lie in [0, 1); got {self.momentum!r}")

    def start(self, parameters: Mapping[str, Tensor]) -> State:
        if self.momentum == 0:
            return {}
        state: State = {}
        for name, value in parameters.items():
            state[f"mean/{name}"] = torch.zeros_like(value)
            state[f"mean_scale/{name}"] = torch.zeros(value.shape[:2], dtype=value.dtype, device=value.device)
        return state

    def step(self, now: Step, state: State) -> tuple[dict[str, Tensor], State]:
        moved: dict[str, Tensor] = {}
        kept: State = {}
        for name, value in now.parameters.items():
            mean = now.gradients[name]
            if self.momentum > 0:
                past = ScaledTensor(state[f"mean/{name}"], state[f"mean_scale/{name}"])
                mean = past.blend(mean, self.momentum, 1 - self.momentum)
                kept[f"mean/{name}"], kept[f"mean_scale/{name}"] = mean.mantissa, mean.log_scale
            direction = self.norm.steepest(as_matrix(mean.mantissa)).reshape(value.shape)
            moved[name] = value - now.spread(now.size, name) * direction
        return moved, kept
