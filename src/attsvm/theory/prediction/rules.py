"""The prediction rule that ships: the optimizer's own steps, few and growing.

The rules it is compared with, those that take no step of descent among them, are in ``benchmarks/prediction_rules.py``;
``python -m benchmarks.prediction`` measures them all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from torch import Tensor

from attsvm.attention import Head, Loss
from attsvm.data import TokenDataset
from attsvm.data.checks import check_count
from attsvm.descent import Schedule, fit
from attsvm.theory.prediction.situation import Rule, Situation


@dataclass(frozen=True)
class GrowingSteps(Rule):
    """Descent itself in a few hundred steps: the first as large as the optimizer's own, the last as many at once.

    The selection is decided early, while attention is still soft; later on only the length of the weights grows. So
    `horizon` steps of the optimizer are taken in `steps` blocks whose lengths grow geometrically from one step on, each
    block as one step of the sum of its step sizes. It costs ``steps / horizon`` of the training that it predicts.

    Arguments:
        steps: how many steps are taken.
        horizon: how many steps of the optimizer they stand for.

    Confidence: the smallest probability of a winning token at the end.
    """

    steps: int = 270
    horizon: int = 10_000
    family: ClassVar[str] = "descent"

    def __post_init__(self) -> None:
        check_count(self.steps, "steps")
        check_count(self.horizon, "horizon")

    @property
    def name(self) -> str:
        return f"{self.steps} growing steps"

    def select(self, problem: Situation) -> tuple[Tensor, Tensor]:
        schedule = Blocks(problem.optimizer.schedule, self.steps, self.horizon)
        optimizer = replace(problem.optimizer, step_size=schedule)  # type: ignore[type-var]
        run = fit(
            problem.data,
            problem.head,
            parameterization=problem.parameterization,
            optimizer=optimizer,
            loss=problem.loss,
            steps=schedule.count,
            initial=problem.start,
            record=(schedule.count,),
            keep=(),
        )
        return run.selected[0], run.attention[0].amax(-1).amin(-1)


@dataclass(frozen=True)
class Blocks(Schedule):
    """Another schedule's first `horizon` steps, in at most `blocks` steps that each add up a block of them.

    Blocks begin with single steps and grow geometrically.

    >>> from attsvm.descent import Constant
    >>> Blocks(Constant(1.0), 4, 15).sizes(0, 4).round(9).tolist()
    [1.0, 2.0, 4.0, 8.0]
    """

    schedule: Schedule
    blocks: int
    horizon: int

    @property
    def count(self) -> int:
        """How many steps there are."""
        return min(self.blocks, self.horizon)

    def sizes(self, first: int, count: int) -> np.ndarray:
        whole = self.schedule.sizes(0, self.horizon)
        if self.count == self.horizon:
            return whole[first : first + count]
        # Ends of the blocks as real numbers of steps: (g^k - 1) / (g - 1), the last one the horizon.
        growth = _growth(self.count, self.horizon)
        ends = np.expm1(np.arange(self.count + 1) * np.log(growth)) / (growth - 1)
        sums = np.interp(ends, np.arange(self.horizon + 1), np.concatenate([[0.0], np.cumsum(whole)]))
        return np.diff(sums)[first : first + count]

    def factors(self, data: TokenDataset, head: Head, loss: Loss) -> Tensor:
        return self.schedule.factors(data, head, loss)


def _growth(count: int, total: int) -> float:
    """The g > 1 with 1 + g + ... + g^(count - 1) = total, for count < total."""
    # At this g the last term alone exceeds the total.
    low, high = 0.0, float(np.log(total)) / max(1, count - 1)
    for _ in range(100):
        rate = (low + high) / 2
        low, high = (low, rate) if np.expm1(count * rate) / np.expm1(rate) > total else (rate, high)
    return float(np.exp(high))
