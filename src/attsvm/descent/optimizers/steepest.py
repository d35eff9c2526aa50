"""Descent in another geometry: steepest descent in a norm (sign, spectral, any other), and mirror descent."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from attsvm.attention import ScaledTensor
from attsvm.descent.optimizers.base import Optimizer, State, Step, as_matrix
from attsvm.descent.schedules import Schedule
from attsvm.norms import Entrywise, Norm


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


@dataclass(frozen=True)
class MirrorDescent(Optimizer):
    """Mirror descent with potential ``(1/p) sum_ij |w_ij|^p`` and the gradient's true size (arXiv 2410.14581).

    ``sign(w)|w|^(p-1) <- sign(w)|w|^(p-1) - step_size * grad``; p = 2 is gradient descent. Its direction tends to the
    entrywise l_p max-margin solution, slowly, as plain gradient descent does; `NormalizedMirrorDescent` is fast.

    Arguments:
        p: 1 < p < inf.
        step_size: a positive number or a `Schedule`.
    """

    p: float
    step_size: float | Schedule = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.p, bool) or not isinstance(self.p, numbers.Real) or not 1 < self.p < math.inf:
            raise ValueError(
                f"p must be strictly between 1 and infinity; got {self.p!r} (the exponent p comes first, then the step"
                f" size: {type(self).__name__}(p=3, step_size=0.1))"
            )

    def step(self, now: Step, state: State) -> tuple[dict[str, Tensor], State]:
        moved: dict[str, Tensor] = {}
        for name, value in now.parameters.items():
            dual = _power(value, self.p - 1) - now.spread(now.size, name) * now.gradients[name].tensor()
            moved[name] = _power(dual, 1 / (self.p - 1))
        return moved, state


@dataclass(frozen=True)
class NormalizedMirrorDescent(MirrorDescent):
    """Mirror descent with potential ``(1/2) ||W||_p^2`` and the gradient scaled to dual norm 1.

    Both potentials have the same level sets, so the same limit; with this one ||W||_p grows by about `step_size` a step
    for every p (with the other like t^(1/(p-1)): t^10 for p = 1.1). p = 2 is normalized gradient descent.
    """

    def step(self, now: Step, state: State) -> tuple[dict[str, Tensor], State]:
        norm = Entrywise(self.p)
        moved: dict[str, Tensor] = {}
        for name, value in now.parameters.items():
            gradient = as_matrix(now.gradients[name].mantissa)
            size = norm.dual_value(gradient)[..., None, None]
            unit = gradient / size.masked_fill(size == 0, 1.0)
            dual = _gradient_of_half_square(norm, as_matrix(value)) - now.size[..., None, None] * unit
            moved[name] = _gradient_of_half_square(Entrywise(norm.p / (norm.p - 1)), dual).reshape(value.shape)
        return moved, state


def _gradient_of_half_square(norm: Entrywise, matrix: Tensor) -> Tensor:
    """Gradient of (1/2) ||W||_p^2, a map between a space and its dual whose inverse is the same map for q."""
    size = norm.value(matrix)[..., None, None]
    safe = size.masked_fill(size == 0, 1.0)
    return size * _power(matrix / safe, norm.p - 1)


def _power(value: Tensor, exponent: float) -> Tensor:
    """sign(x) |x|^exponent."""
    return value.sign() * value.abs().pow(exponent)
