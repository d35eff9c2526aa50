"""What a prediction rule may look at, what it must answer, and the rule that ships: few, growing steps.

The rules it is compared with, those that take no step of descent among them, are in ``benchmarks/prediction_rules.py``;
``python -m benchmarks.prediction`` measures them all.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from attsvm.attention import Head, Loss, Parameterization, token_scores
from attsvm.attention.gradient import Attended, attend, fixed_scores, risk_gradient
from attsvm.attention.linear_maps import flat_adjoint, flat_logits
from attsvm.data import TokenDataset
from attsvm.data.checks import check_count
from attsvm.descent import NormalizedGradientDescent, Optimizer, Schedule, fit

Parameters = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Situation:
    """What a rule may look at."""

    data: TokenDataset  #: data sets with one batch axis, in float64
    head: Head  #: the prediction head, one for all data sets or one for each
    loss: Loss  #: whose risk descent lowers
    parameterization: Parameterization  #: what is trained
    start: Parameters  #: its parameters at the start, ``[1, batch, ...]``
    optimizer: Optimizer = NormalizedGradientDescent(0.1)  # noqa: RUF009 (it is frozen)

    @cached_property
    def scores(self) -> Float[Tensor, "batch n T"]:
        """Score of every token taken alone; -inf at masked ones."""
        return token_scores(self.data, self.head)

    @cached_property
    def _fixed(self) -> Tensor | None:
        return fixed_scores(self.data, self.head)

    def _attended(self, at: Mapping[str, Tensor]) -> Attended:
        return attend(self.data, self.head, flat_logits(self.data, self.parameterization.weights(at)), self._fixed)

    def direction(self, at: Mapping[str, Tensor]) -> Parameters:
        """The normalized descent direction of each parameter."""
        rows = risk_gradient(self.data, self.head, self.loss, self._attended(at), scores=self._fixed).logits
        gradients = self.parameterization.gradients(at, rows.map(flat_adjoint(self.data, rows.mantissa)))
        return {name: -value.normalized() for name, value in gradients.items()}

    def looked_at(self, at: Mapping[str, Tensor]) -> tuple[Int[Tensor, "batch n"], Float[Tensor, "batch"]]:
        """The most probable token of each input, and the smallest of their probabilities."""
        attended = self._attended(at)
        return attended.winner[0], attended.attention[0].amax(-1).amin(-1)

    def stride(self, radius: float) -> Tensor:
        """How far from the start parameters lie where logits differ by about `radius`: ``[1, batch, 1, 1]``.

        For W it is radius sqrt(n) / rms_it(||x_it - mean_t x_it|| ||z_i||): n inputs share the norm of W. Both factors
        of a product go the square root of the way.
        """
        data = self.data
        tokens, real = data.input_tokens, data.real.to(data.dtype)
        count = real.sum(-1, keepdim=True)
        centre = (tokens * real.unsqueeze(-1)).sum(-2) / count
        spread = (tokens - centre.unsqueeze(-2)).square().sum(-1) * real
        squared = (spread * data.queries.square().sum(-1, keepdim=True)).sum((-1, -2)) / real.sum((-1, -2))
        reach = radius * math.sqrt(data.n) / squared.sqrt().clamp(min=1e-12)
        return (reach if len(self.start) == 1 else _PRODUCT * reach.sqrt())[None, :, None, None]


_PRODUCT = 2.0  # tuned on seeds below 1000, at n=6 T=8 d=10


class Rule(ABC):
    """A way to name the selection that descent reaches. A rule holds its few numbers, never data."""

    #: what kind of work it does, such as "path" or "descent"; ``benchmarks/prediction_rules.py`` lists them
    family: ClassVar[str]

    @property
    @abstractmethod
    def name(self) -> str:
        """What a person calls it."""

    @abstractmethod
    def select(self, problem: Situation) -> tuple[Int[Tensor, "batch n"], Float[Tensor, "batch"]]:
        """The selection of each data set, and how sure the rule is of it."""


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
        optimizer = replace(problem.optimizer, step_size=schedule)  # type: ignore[call-arg]
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
