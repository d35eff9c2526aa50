"""Steps for weights in two parts: one that converges, and one that grows and of which only the direction counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attsvm.attention import TwoScales
from attsvm.data.checks import check_positive
from attsvm.descent.optimizers.base import Optimizer, State, Step
from attsvm.descent.schedules import Schedule

if TYPE_CHECKING:
    from attsvm.descent.task import Task


@dataclass(frozen=True, repr=False)
class TwoPartDescent(Optimizer):
    """Accelerated steps for both parts of `TwoScales`.

    Plain gradient descent comes near W_fin only like 1/t, since the pull of tokens outside the kept sets fades so
    slowly, and its norm grows like log t. Here the growing part descends on the logarithm of that pull, with momentum
    that is accelerated in the dual (arXiv 2107.00595): its norm grows like t^2 and its margin tends to the best one
    like 1/t^2, proved there for linear models. The finite part takes Nesterov's steps, with momentum dropped whenever
    it points uphill.

    Arguments:
        step_size: of the growing part, a number or a `Schedule`; at most 1/B, B the largest
            ||x_it - x_iu||^2 ||z_i||^2, which is at most 4 for tokens and queries of length at most 1.
        finite_step: of the finite part; at most 1/L, L the largest curvature of the risk. For the log loss and tokens
            and queries of length at most 1 the curvature is at most 1.
    """

    step_size: float | Schedule = 0.25
    finite_step: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self.finite_step, "finite_step")

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
