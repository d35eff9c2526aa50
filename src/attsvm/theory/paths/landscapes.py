"""The risk as a function of one flat vector per data set, with gradients that never underflow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.attention import Head, LinearHead, Loss, ScaledTensor
from attsvm.attention.gradient import Attended, attend, fixed_scores, risk_gradient
from attsvm.attention.linear_maps import flat_adjoint, flat_mixture
from attsvm.attention.scores import log_excess
from attsvm.data import TokenDataset
from attsvm.theory.paths.charts import Chart

L = TypeVar("L", bound="Landscape")


@dataclass(frozen=True, eq=False)
class Landscape(ABC):
    """A function of theta ``[points, elements, size]`` to be made small, and its gradient."""

    @abstractmethod
    def take(self: L, index: Tensor) -> L:
        """The landscapes of some elements."""

    @abstractmethod
    def gradient(self, theta: Float[Tensor, "points elements size"]) -> ScaledTensor:
        """Gradient of the risk as mantissa ``[points, elements, size]`` and log-scale."""

    def gradient_at(self, theta: Float[Tensor, "elements size"]) -> ScaledTensor:
        """The gradient at one point per element."""
        found = self.gradient(theta[None])
        return ScaledTensor(found.mantissa[0], found.log_scale[0])

    @abstractmethod
    def value(self, theta: Float[Tensor, "points elements size"]) -> Float[Tensor, "points elements"]:
        """An increasing function of the risk, with as many digits as can be had."""

    @abstractmethod
    def sensitivity(self, theta: Float[Tensor, "elements size"]) -> Float[Tensor, "elements"]:
        """How fast the exponents move with theta; sets the steps of difference quotients."""


@dataclass(frozen=True, eq=False)
class WeightsLandscape(Landscape):
    """The risk as a function of the weights, the head fixed."""

    data: TokenDataset
    head: Head
    loss: Loss
    chart: Chart
    scores: Tensor | None

    @classmethod
    def of(cls, data: TokenDataset, head: Head, loss: Loss, chart: Chart) -> WeightsLandscape:
        """With one head for each element."""
        own = head.broadcast((data.tokens.shape[0],))
        return cls(data, own, loss, chart, fixed_scores(data, own))

    def take(self, index: Tensor) -> WeightsLandscape:
        scores = None if self.scores is None else self.scores[:, index]
        return WeightsLandscape(self.data[index], self.head[index], self.loss, self.chart.take(index), scores)

    def with_head(self, vector: Float[Tensor, "elements dv"]) -> WeightsLandscape:
        """The same with another linear head."""
        head = self.head.with_parameters({"head": vector})
        return replace(self, head=head, scores=fixed_scores(self.data, head))

    def attend(self, theta: Tensor) -> Attended:
        """The forward pass."""
        return attend(self.data, self.head, self.chart.logits(theta), self.scores)

    def gradient(self, theta: Tensor) -> ScaledTensor:
        risk = risk_gradient(self.data, self.head, self.loss, self.attend(theta), scores=self.scores)
        return risk.logits.map(self.chart.adjoint(theta, risk.logits.mantissa))

    def gradient_in_weights(self, theta: Float[Tensor, "elements size"]) -> ScaledTensor:
        """Gradient with respect to W itself ``[elements, d, dq]``."""
        risk = risk_gradient(self.data, self.head, self.loss, self.attend(theta[None]), scores=self.scores)
        inside = flat_adjoint(self.chart.reduced, risk.logits.mantissa)
        return ScaledTensor((self.chart.left @ inside @ self.chart.right.mT)[0], risk.logits.log_scale[0])

    def value(self, theta: Tensor) -> Tensor:
        """log(L - L_*) for a linear head, L itself for others."""
        attended = self.attend(theta)
        if not isinstance(self.head, LinearHead):
            return self.loss.value(attended.margin).mean(-1)
        return self.log_excess(attended)

    def log_excess(self, attended: Attended) -> Tensor:
        """log(L - L_*) of a linear head."""
        return log_excess(self.data, self.head, self.loss, attended.log_attention)

    def sensitivity(self, theta: Tensor) -> Tensor:
        return self.chart.sensitivity(theta)


@dataclass(frozen=True, eq=False)
class HeadLandscape(Landscape):
    """The risk as a function of a linear head v, the attention fixed: convex."""

    signed: Float[Tensor, "elements n dv"]
    loss: Loss
    ceiling: Float[Tensor, "elements"]

    @classmethod
    def at(cls, weights: WeightsLandscape, theta: Float[Tensor, "elements size"], radius: Tensor) -> HeadLandscape:
        """At given weights; `radius` bounds the heads to come."""
        attention = weights.attend(theta[None]).attention
        mixed = flat_mixture(weights.data, weights.data.values, attention)[0]
        signed = weights.data.labels.unsqueeze(-1) * mixed
        return cls(signed, weights.loss, radius * torch.linalg.vector_norm(mixed, dim=-1).amax(-1) + 50)

    def take(self, index: Tensor) -> HeadLandscape:
        return HeadLandscape(self.signed[index], self.loss, self.ceiling[index])

    def gradient(self, theta: Tensor) -> ScaledTensor:
        log_slope = self.loss.log_slope(torch.einsum("bnd,pbd->pbn", self.signed, theta))
        scale = log_slope.amax(-1)
        pull = (log_slope - scale.unsqueeze(-1)).exp() / self.signed.shape[-2]
        return ScaledTensor(-torch.einsum("pbn,bnd->pbd", pull, self.signed), scale)

    def value(self, theta: Tensor) -> Tensor:
        """log of the risk above that of a margin out of reach."""
        margin = torch.einsum("bnd,pbd->pbn", self.signed, theta)
        top = self.ceiling.unsqueeze(-1).expand_as(margin)
        return self.loss.log_excess(top, (top - margin).clamp(min=1e-300).log()).logsumexp(-1)

    def sensitivity(self, theta: Tensor) -> Tensor:
        return torch.linalg.vector_norm(self.signed, dim=-1).amax(-1).clamp(min=1e-300)


@dataclass(frozen=True, eq=False)
class EdgeLandscape(Landscape):
    """The risk on the edge of a cap, ``offset + theta`` with theta orthogonal to the centre of the cone."""

    inner: Landscape
    centre: Float[Tensor, "elements size"]
    offset: Float[Tensor, "elements size"]

    def take(self, index: Tensor) -> EdgeLandscape:
        return EdgeLandscape(self.inner.take(index), self.centre[index], self.offset[index])

    def gradient(self, theta: Tensor) -> ScaledTensor:
        found = self.inner.gradient(self.offset + across(theta, self.centre))
        return found.map(across(found.mantissa, self.centre))

    def value(self, theta: Tensor) -> Tensor:
        return self.inner.value(self.offset + across(theta, self.centre))

    def sensitivity(self, theta: Tensor) -> Tensor:
        return self.inner.sensitivity(theta)


def across(points: Tensor, centre: Tensor) -> Tensor:
    """The part of points orthogonal to unit centres."""
    return points - (points * centre).sum(-1, keepdim=True) * centre
