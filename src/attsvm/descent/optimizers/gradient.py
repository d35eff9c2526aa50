"""Steps along the gradient, of its true size, size one or Polyak's; along running means of it, Adam and Lion; and for
weights in two parts, one that converges and one that grows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attsvm.attention import LinearHead, ScaledTensor, TwoScales
from attsvm.descent.optimizers.base import Optimizer, State, Step, blended, joint_size
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
        return now.along({name: gradient.tensor() for name, gradient in now.gradients.items()}), state


@dataclass(frozen=True, repr=False)
class NormalizedGradientDescent(Optimizer):
    """``W <- W - step_size * grad / ||grad||_F``, each parameter by its own gradient norm, as in the papers.

    A gradient that is exactly zero leaves the parameter where it is.
    """

    step_size: float | Schedule = 0.1

    def step(self, now: Step, state: State) -> tuple[dict[str, Tensor], State]:
        return now.along({name: gradient.normalized() for name, gradient in now.gradients.items()}), state


@dataclass(frozen=True, repr=False)
class PolyakDescent(Optimizer):
    """``W <- W - step_size * (L - L_*) / ||grad||^2 * grad``, L_* the best risk of a linear head (arXiv 2402.05738).

    Risk above the best and gradient norm are taken in logarithms, so the ratio is right long after both underflow.
    Where descent settles on a selection that is only locally optimal, L - L_* stays positive while the gradient
    vanishes: the displacement is therefore capped.
    """

    step_size: float | Schedule = 1.0  #: a factor on Polyak's step; 1 is Polyak's own
    largest_displacement: float = 10.0  #: cap on the Frobenius norm of one step

    positive = ("largest_displacement",)

    def check(self, task: Task) -> None:
        super().check(task)
        if task.train_head or not isinstance(task.head, LinearHead):
            needed = "a fixed linear head, whose best risk is known"
        elif task.ridge > 0:
            needed = "the best risk, which a ridge changes"
        else:
            return
        raise ValueError(f"PolyakDescent needs {needed}; use NormalizedGradientDescent instead")

    def step(self, now: Step, state: State) -> tuple[dict[str, Tensor], State]:
        total, shares = joint_size({name: gradient.log_norm() for name, gradient in now.gradients.items()})
        polyak = now.size * (now.log_excess() - total).clamp(max=100.0).exp().nan_to_num(0.0)  # NaN where both are zero
        step = replace(now, size=polyak.clamp(max=self.largest_displacement))
        return step.along({name: gradient.normalized() for name, gradient in now.gradients.items()}, shares), state


@dataclass(frozen=True, repr=False)
class Adam(Optimizer):
    """Adam with bias correction, and AdamW with `weight_decay`; both moments are kept as mantissa and log-scale.

    `epsilon` is 0 by default: any positive value turns Adam into momentum gradient descent once the softmax saturates
    and gradients fall below it.
    """

    step_size: float | Schedule = 0.1
    beta1: float = 0.9  #: decay of the first moment, in [0, 1)
    beta2: float = 0.999  #: and of the second
    epsilon: float = 0.0  #: added to the root of the second moment

    past_weights = ("beta1", "beta2")
    not_negative = ("epsilon",)
    means = ("first", "second")

    def step(self, now: Step, state: State) -> tuple[dict[str, Tensor], State]:
        directions: dict[str, Tensor] = {}
        lengths: dict[str, Tensor] = {}
        kept: State = {}
        count = now.number + 1
        for name, gradient in now.gradients.items():
            first = blended(state, kept, "first", name, gradient, self.beta1)
            square = ScaledTensor(gradient.mantissa.square(), 2 * gradient.log_scale)
            second = blended(state, kept, "second", name, square, self.beta2)
            root = (second.mantissa / (1 - self.beta2**count)).sqrt()
            if self.epsilon > 0:
                root = root + self.epsilon * now.spread((-second.log_scale / 2).exp(), name)
            mean = first.mantissa / (1 - self.beta1**count)
            directions[name] = torch.where(root > 0, mean / root.masked_fill(root == 0, 1.0), torch.zeros_like(root))
            lengths[name] = (first.log_scale - second.log_scale / 2).exp()
        return now.along(directions, lengths), kept


@dataclass(frozen=True, repr=False)
class Lion(Optimizer):
    """``W <- W - step_size * sign(beta1 M + (1 - beta1) grad)``, then ``M <- beta2 M + (1 - beta2) grad``.

    Lion of arXiv 2302.06675; `weight_decay` is its own.
    """

    step_size: float | Schedule = 0.1
    beta1: float = 0.9  #: weight of the past in the step, in [0, 1)
    beta2: float = 0.99  #: and in the running mean M

    past_weights = ("beta1", "beta2")
    means = ("mean",)

    def step(self, now: Step, state: State) -> tuple[dict[str, Tensor], State]:
        directions: dict[str, Tensor] = {}
        kept: State = {}
        for name, gradient in now.gradients.items():
            directions[name] = blended(state, {}, "mean", name, gradient, self.beta1).mantissa.sign()
            blended(state, kept, "mean", name, gradient, self.beta2)
        return now.along(directions), kept


@dataclass(frozen=True, repr=False)
class TwoPartDescent(Optimizer):
    """Accelerated steps for both parts of `TwoScales`.

    Plain gradient descent comes near W_fin only like 1/t, since the pull of tokens outside the kept sets fades so
    slowly, and its norm grows like log t. Here the growing part descends on the logarithm of that pull, with momentum
    that is accelerated in the dual (arXiv 2107.00595): its norm grows like t^2 and its margin tends to the best one
    like 1/t^2, proved there for linear models. The finite part takes Nesterov's steps, with momentum dropped whenever
    it points uphill. The defaults suit the log loss on tokens and queries of length at most 1.
    """

    step_size: float | Schedule = 0.25  #: of the growing part, at most 1/B, B the largest ||x_it - x_iu||^2 ||z_i||^2
    finite_step: float = 1.0  #: of the finite part, at most 1/L, L the largest curvature of the risk

    positive = ("finite_step",)

    def check(self, task: Task) -> None:
        super().check(task)
        if not isinstance(task.parameterization, TwoScales):
            raise ValueError(f"TwoPartDescent trains TwoScales(data, kept); got {task.parameterization!r}")
        if self.option_words:
            raise ValueError(f"TwoPartDescent follows weights that grow without bound; it takes no {self.option_words}")
        if task.train_head:
            raise ValueError("TwoPartDescent trains attention weights alone; leave train_head out")

    def start(self, parameters: Mapping[str, Tensor]) -> State:
        finite = parameters["finite"]
        one = torch.ones(finite.shape[:2], dtype=finite.dtype, device=finite.device)
        return {"before": finite.clone(), "momentum": one, "pull": torch.zeros_like(finite), "count": one - 1}

    def step(self, now: Step, state: State) -> tuple[dict[str, Tensor], State]:
        relative = now.gradients["growing"].mantissa
        pull = now.spread(state["count"] / (state["count"] + 1), "growing") * (state["pull"] + relative)
        growing = now.parameters["growing"] - now.spread(now.size, "growing") * (pull + relative)
        slope = now.gradients["finite"].tensor()
        reached = now.parameters["finite"] - self.finite_step * slope
        ahead = reached - state["before"]
        uphill = (slope * ahead).flatten(2).sum(-1) > 0
        pace = torch.where(uphill, torch.ones_like(state["momentum"]), state["momentum"])
        later = (1 + (1 + 4 * pace.square()).sqrt()) / 2
        carried = torch.where(uphill, torch.zeros_like(pace), (pace - 1) / later)
        finite = reached + now.spread(carried, "finite") * ahead
        return {"finite": finite, "growing": growing}, {
            "before": reached, "momentum": later, "pull": pull, "count": state["count"] + 1
        }  # fmt: skip
