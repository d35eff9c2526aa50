"""The risk as a function of one flat vector per data set, with gradients that never underflow.

A chart says which vector stands for the weights: W in the span of its rows, entry by entry, or by factors. A landscape
is the function to be made small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Self

import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.attention import Head, LinearHead, Loss, ScaledTensor
from attsvm.attention.gradient import Attended, attend, fixed_scores, risk_gradient
from attsvm.attention.linear_maps import flat_adjoint, flat_logits, flat_mixture
from attsvm.attention.scores import log_excess
from attsvm.data import TokenDataset
from attsvm.data.dataset import replace_unchecked


@dataclass(frozen=True, eq=False)
class Elements:
    """A record whose parts have one entry for each element on their first axis; ``record[index]`` takes some."""

    def __getitem__(self, index: Any) -> Self:
        kinds = (Tensor, ScaledTensor, TokenDataset, Head, Elements)
        parts = {each.name: getattr(self, each.name) for each in fields(self)}
        return replace(self, **{name: part[index] for name, part in parts.items() if isinstance(part, kinds)})


@dataclass(frozen=True, eq=False)
class Chart(Elements):
    """Coordinates theta of the weights: those of the reduced W in a basis, its entries where there is none.

    ``W = left reduced right^T``, and `reduced` are the data in these bases.
    """

    reduced: TokenDataset
    left: Float[Tensor, "elements d kd"]
    right: Float[Tensor, "elements dq kq"]
    basis: Float[Tensor, "elements entries size"] | None = None

    def small(self, theta: Float[Tensor, "points elements size"]) -> Float[Tensor, "points elements kd kq"]:
        """The reduced W."""
        entries = theta if self.basis is None else torch.einsum("bdr,pbr->pbd", self.basis, theta)
        return entries.unflatten(-1, (self.left.shape[-1], self.right.shape[-1]))

    def pull(self, theta: Tensor, gradient: Float[Tensor, "points elements kd kq"]) -> Tensor:
        """The chain rule from the gradient in the reduced W to one in theta."""
        entries = gradient.flatten(-2)
        return entries if self.basis is None else torch.einsum("bdr,pbd->pbr", self.basis, entries)

    def coordinates(self, weights: Float[Tensor, "points elements d dq"]) -> Float[Tensor, "points elements size"]:
        """theta of given weights W."""
        return self.pull(weights, self.left.mT @ weights @ self.right)

    def sphere(self, radius: float) -> float:
        """Euclidean length of theta on the boundary of the ball of this radius."""
        return radius

    def sensitivity(self, theta: Float[Tensor, "elements size"]) -> Float[Tensor, "elements"]:
        """A bound on the change of a logit for a unit change of theta."""
        return self.row_size

    def weights(self, theta: Tensor) -> Float[Tensor, "points elements d dq"]:
        """W of every point."""
        return self.left @ self.small(theta) @ self.right.mT

    @property
    def row_size(self) -> Float[Tensor, "elements"]:
        """The largest ``||x_it - x_is|| ||z_i||`` up to a factor of two."""
        data = self.reduced
        centred = data.tokens - data.tokens.mean(-2, keepdim=True)
        tokens = torch.linalg.vector_norm(centred, dim=-1).amax(-1).repeat_interleave(data.queries_per_sequence, -1)
        size = (2 * tokens * torch.linalg.vector_norm(data.queries, dim=-1)).amax(-1)
        return torch.where(size > 0, size, torch.ones_like(size))


@dataclass(frozen=True, eq=False)
class FactorChart(Chart):
    """theta = (K, Q): the ball ``||K||_F^2 + ||Q||_F^2 <= 2 R`` is the nuclear ball of radius R, cut at rank m."""

    rank: int = field(kw_only=True)

    def _factors(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        rows, columns = self.left.shape[-1], self.right.shape[-1]
        key, query = theta.split([rows * self.rank, columns * self.rank], -1)
        return key.unflatten(-1, (rows, self.rank)), query.unflatten(-1, (columns, self.rank))

    def small(self, theta: Tensor) -> Tensor:
        key, query = self._factors(theta)
        return key @ query.mT

    def pull(self, theta: Tensor, gradient: Tensor) -> Tensor:
        key, query = self._factors(theta)
        return torch.cat([(gradient @ query).flatten(-2), (gradient.mT @ key).flatten(-2)], -1)

    def coordinates(self, weights: Tensor) -> Tensor:
        # A factor that starts at zero stays there: keep every direction alive by a little of the largest.
        key, query = balanced_factors(self.left.mT @ weights @ self.right, self.rank, least=1e-6)
        return torch.cat([key.flatten(-2), query.flatten(-2)], -1)

    def sphere(self, radius: float) -> float:
        return math.sqrt(2 * radius)

    def sensitivity(self, theta: Tensor) -> Tensor:
        return self.row_size * torch.linalg.vector_norm(theta, dim=-1)


def balanced_factors(weights: Tensor, rank: int, least: float = 0.0) -> tuple[Tensor, Tensor]:
    """K and Q of `rank` columns with K^T K = Q^T Q and K Q^T the weights, none shorter than `least` of the longest."""
    left, sizes, right = torch.linalg.svd(weights, full_matrices=False)
    roots = sizes[..., :rank].sqrt()
    roots = torch.maximum(roots, least * roots[..., :1]).unsqueeze(-2)
    width = roots.shape[-1]
    key, query = left[..., :width] * roots, right[..., :width, :].mT * roots
    return torch.nn.functional.pad(key, (0, rank - width)), torch.nn.functional.pad(query, (0, rank - width))


def reduced_spans(data: TokenDataset) -> tuple[TokenDataset, Tensor, Tensor]:
    """The data in orthonormal bases of span{x_it - x_is} and span{z_i}, and the bases: exact for invariant norms."""
    first = data.tokens - data.tokens[..., :1, :]
    left = torch.linalg.svd(first.flatten(1, 2), full_matrices=False)[2].mT
    right = torch.linalg.svd(data.queries, full_matrices=False)[2].mT
    small = replace_unchecked(data, tokens=first @ left.unsqueeze(-3), queries=data.queries @ right, head=None)
    return small, left, right


def row_chart(data: TokenDataset) -> Chart:
    """Coordinates in the span of the rows (x_it - x_is) z_i^T, where every stationary W of a Frobenius ball lies."""
    small, left, right = reduced_spans(data)
    rows = torch.einsum("bntd,bnq->bntdq", small.input_tokens, small.queries).flatten(-2).flatten(1, 2)
    return Chart(small, left, right, torch.linalg.svd(rows, full_matrices=False)[2].mT)


def whole_chart(data: TokenDataset) -> Chart:
    """The entries of W itself, for norms that a change of basis would spoil."""
    left, right = (torch.eye(size).to(data.tokens).expand(len(data.tokens), -1, -1) for size in (data.d, data.dq))
    return Chart(replace_unchecked(data, tokens=data.tokens - data.tokens[..., :1, :], head=None), left, right)


@dataclass(frozen=True, eq=False)
class WeightsLandscape(Elements):
    """The risk as a function of the weights; the head is fixed, one for each element."""

    data: TokenDataset
    head: Head
    loss: Loss
    chart: Chart

    @cached_property
    def _scores(self) -> Float[Tensor, "1 elements n T"] | None:
        return fixed_scores(self.data, self.head)

    def with_head(self, vector: Float[Tensor, "elements dv"]) -> WeightsLandscape:
        """The same with another linear head."""
        return replace(self, head=self.head.with_parameters({"head": vector}))

    def attend(self, theta: Tensor) -> Attended:
        """The forward pass."""
        return attend(self.data, self.head, flat_logits(self.chart.reduced, self.chart.small(theta)), self._scores)

    def _inside(self, theta: Tensor) -> ScaledTensor:
        """Gradient in the reduced W."""
        rows = risk_gradient(self.data, self.head, self.loss, self.attend(theta), scores=self._scores).logits
        return rows.map(flat_adjoint(self.chart.reduced, rows.mantissa))

    def gradient(self, theta: Float[Tensor, "points elements size"]) -> ScaledTensor:
        """Gradient of the risk as mantissa ``[points, elements, size]`` and log-scale."""
        inside = self._inside(theta)
        return inside.map(self.chart.pull(theta, inside.mantissa))

    def gradient_in_weights(self, theta: Float[Tensor, "elements size"]) -> ScaledTensor:
        """Gradient with respect to W itself ``[elements, d, dq]``."""
        inside = self._inside(theta[None])[0]
        return inside.map(self.chart.left @ inside.mantissa @ self.chart.right.mT)

    def value(self, theta: Float[Tensor, "points elements size"]) -> Float[Tensor, "points elements"]:
        """An increasing function of the risk: log(L - L_*) for a linear head, L itself for others."""
        attended = self.attend(theta)
        if not isinstance(self.head, LinearHead):
            return self.loss.value(attended.margin).mean(-1)
        return log_excess(self.data, self.head, self.loss, attended.log_attention)

    def sensitivity(self, theta: Float[Tensor, "elements size"]) -> Float[Tensor, "elements"]:
        """How fast the exponents move with theta; sets the steps of difference quotients."""
        return self.chart.sensitivity(theta)


@dataclass(frozen=True, eq=False)
class HeadLandscape(Elements):
    """The risk as a function of a linear head v, the attention fixed: convex."""

    signed: Float[Tensor, "elements n dv"]
    loss: Loss
    ceiling: Float[Tensor, "elements"]

    @classmethod
    def at(cls, weights: WeightsLandscape, theta: Float[Tensor, "elements size"], radius: float) -> HeadLandscape:
        """At given weights; `radius` bounds the heads to come."""
        mixed = flat_mixture(weights.data, weights.data.values, weights.attend(theta[None]).attention)[0]
        ceiling = radius * torch.linalg.vector_norm(mixed, dim=-1).amax(-1) + 50
        return cls(weights.data.labels.unsqueeze(-1) * mixed, weights.loss, ceiling)

    def gradient(self, theta: Tensor) -> ScaledTensor:
        """As that of the weights."""
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
        """How fast the margins move with theta."""
        return torch.linalg.vector_norm(self.signed, dim=-1).amax(-1).clamp(min=1e-300)


Landscape = WeightsLandscape | HeadLandscape
