"""Descent in another geometry: steepest descent in a norm (sign, spectral, any other), and mirror descent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from attsvm.attention import ScaledTensor
from attsvm.data.checks import check_count, check_number
from attsvm.descent.optimizers.base import Optimizer, State, Step, as_matrix, blended, joint_size
from attsvm.descent.schedules import Schedule
from attsvm.norms import Entrywise, Norm, Spectral


@dataclass(frozen=True, repr=False)
class SteepestDescent(Optimizer):
    """``W <- W - step_size * argmax_{N(D) <= 1} <M, D>`` with M the gradient or its running mean.

    Blockwise: K and Q each take the step of their own gradient, of length 1 in N. `MaxEntry` gives sign descent
    (Signum with momentum), `Spectral` the exact polar factor (Muon with momentum), `Frobenius` normalized descent;
    `LargestRow` and `LargestColumn` normalize each row or each column of a factor. For separable linear models the
    direction tends to the max-margin solution in N (arXiv 2502.04664); for attention this is open.
    """

    norm: Norm  #: N
    step_size: float | Schedule = 0.1
    momentum: float = 0.0  #: weight of the past in ``M <- momentum M + (1 - momentum) grad``, in [0, 1)

    past_weights = ("momentum",)
    means = ("mean",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.norm, Norm):
            raise ValueError(f"norm must be a norm such as Spectral() or MaxEntry(); got {self.norm!r}")

    def start(self, parameters: Mapping[str, Tensor]) -> State:
        return super().start(parameters) if self.momentum > 0 else {}

    def step(self, now: Step, state: State) -> tuple[dict[str, Tensor], State]:
        kept: State = {}
        means = dict(now.gradients)
        if self.momentum > 0:
            means = {name: blended(state, kept, "mean", name, new, self.momentum) for name, new in means.items()}
        directions = {
            name: self.direction(as_matrix(mean.mantissa)).reshape(mean.mantissa.shape) for name, mean in means.items()
        }
        return now.along(directions, self.lengths(means)), kept

    def direction(self, matrix: Tensor) -> Tensor:
        """The step of length 1 for one parameter's gradient ``[starts, batch, d, m]``."""
        return self.norm.steepest(matrix)

    def lengths(self, means: Mapping[str, ScaledTensor]) -> dict[str, Tensor] | None:
        """How long the step of each parameter is ``[starts, batch]``, in units of the step size; None means 1."""
        return None


@dataclass(frozen=True, repr=False)
class JointSteepestDescent(SteepestDescent):
    """Steepest descent of all trained parameters together, in the norm ``(N(K)^2 + N(Q)^2)^(1/2)``.

    Each factor moves in the direction of `SteepestDescent` by its share, for K the dual norm N°(grad_K) over
    ``(N°(grad_K)^2 + N°(grad_Q)^2)^(1/2)``. `Frobenius` gives gradient descent with one length for K and Q together; on
    W alone it is `SteepestDescent`.
    """

    def lengths(self, means: Mapping[str, ScaledTensor]) -> dict[str, Tensor]:
        sizes = {name: self.norm.dual_value(as_matrix(mean.mantissa)) for name, mean in means.items()}
        return joint_size({name: size.log() + means[name].log_scale for name, size in sizes.items()})[1]


@dataclass(frozen=True, repr=False)
class NewtonSchulzDescent(SteepestDescent):
    """Muon as it is run: spectral steps whose polar factor is only approximated, by a quintic iteration.

    The gradient X over its Frobenius norm goes `iterations` times through ``X <- a X + (b A + c A^2) X``, A = X X^T.
    With the published coefficients (Keller Jordan, "Muon: an optimizer for hidden layers in neural networks", 2024)
    singular values end near 1, between about .7 and 1.2, unless they are small from the start.
    ``SteepestDescent(Spectral())`` is exact.
    """

    norm: Norm = field(default=Spectral(), init=False, repr=False)
    momentum: float = 0.95
    iterations: int = 5
    coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315)  #: (a, b, c)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.iterations, "iterations")
        if len(self.coefficients) != 3:
            raise ValueError(f"coefficients must be three numbers (a, b, c); got {self.coefficients!r}")

    def direction(self, matrix: Tensor) -> Tensor:
        a, b, c = self.coefficients
        x = matrix if matrix.shape[-2] <= matrix.shape[-1] else matrix.mT
        x = ScaledTensor(x, torch.zeros_like(x[..., 0, 0])).normalized()
        for _ in range(self.iterations):
            square = x @ x.mT
            x = a * x + (b * square + c * square @ square) @ x
        return x if x.shape == matrix.shape else x.mT


@dataclass(frozen=True, repr=False)
class MirrorDescent(Optimizer):
    """Mirror descent with potential ``(1/p) sum_ij |w_ij|^p`` and the gradient's true size (arXiv 2410.14581).

    ``sign(w)|w|^(p-1) <- sign(w)|w|^(p-1) - step_size * grad``; p = 2 is gradient descent. Its direction tends to the
    entrywise l_p max-margin solution, slowly, as plain gradient descent does; `NormalizedMirrorDescent` is fast.
    """

    p: float  #: 1 < p < inf
    step_size: float | Schedule = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        expected = f"be strictly between 1 and infinity, as in {type(self).__name__}(p=3, step_size=0.1)"
        check_number(self.p, "p", expected, lambda p: 1 < p < math.inf)

    def step(self, now: Step, state: State) -> tuple[dict[str, Tensor], State]:
        moved: dict[str, Tensor] = {}
        for name, value in now.parameters.items():
            dual = _power(value, self.p - 1) - now.spread(now.size, name) * now.gradients[name].tensor()
            moved[name] = _power(dual, 1 / (self.p - 1))
        return moved, state


@dataclass(frozen=True, repr=False)
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
    return size * _power(matrix / size.masked_fill(size == 0, 1.0), norm.p - 1)


def _power(value: Tensor, exponent: float) -> Tensor:
    """sign(x) |x|^exponent."""
    return value.sign() * value.abs().pow(exponent)
