"""What a prediction rule may look at, and what it must answer."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from attsvm.attention import Head, Loss, Parameterization, token_scores
from attsvm.attention.gradient import Attended, attend, fixed_scores, risk_gradient
from attsvm.attention.linear_maps import flat_adjoint, flat_logits
from attsvm.data import TokenDataset
from attsvm.descent import NormalizedGradientDescent, Optimizer

Parameters = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Situation:
    """What a rule may look at.

    Attributes:
        data: data sets with one batch axis, in float64.
        head: the prediction head, one for all data sets or one for each.
        loss: whose risk descent lowers.
        parameterization: what is trained.
        start: its parameters at the start, ``[1, batch, ...]``.
        optimizer: how it is trained.
    """

    data: TokenDataset
    head: Head
    loss: Loss
    parameterization: Parameterization
    start: Parameters
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
    """A way to name the selection that descent reaches. A rule holds its few numbers, never data.

    Attributes:
        family: what kind of work it does, such as "path" or "descent"; ``benchmarks/prediction_rules.py`` lists them.
    """

    family: ClassVar[str]

    @property
    @abstractmethod
    def name(self) -> str:
        """What a person calls it."""

    @abstractmethod
    def select(self, problem: Situation) -> tuple[Int[Tensor, "batch n"], Float[Tensor, "batch"]]:
        """The selection of each data set, and how sure the rule is of it."""
