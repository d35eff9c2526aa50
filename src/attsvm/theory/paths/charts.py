"""Coordinates of the weights: W in the span of its rows, entry by entry, or by factors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attsvm.attention.linear_maps import flat_adjoint, flat_logits
from attsvm.data import TokenDataset
from attsvm.data.dataset import replace_unchecked


@dataclass(frozen=True, eq=False)
class Chart(ABC):
    """Coordinates theta of the weights: how they make logits, and how a gradient in logits reaches them."""

    reduced: TokenDataset
    left: Float[Tensor, "elements d kd"]
    right: Float[Tensor, "elements dq kq"]

    @abstractmethod
    def small(self, theta: Float[Tensor, "points elements size"]) -> Float[Tensor, "points elements kd kq"]:
        """W in the reduced bases: ``W = left small right^T``."""

    @abstractmethod
    def pull(self, theta: Tensor, gradient: Float[Tensor, "points elements kd kq"]) -> Tensor:
        """The chain rule from the gradient in the reduced W to one in theta."""

    @abstractmethod
    def coordinates(self, weights: Float[Tensor, "points elements d dq"]) -> Float[Tensor, "points elements size"]:
        """theta of given weights W."""

    @abstractmethod
    def sphere(self, radius: Tensor) -> Tensor:
        """Euclidean length of theta on the boundary of the ball of this radius."""

    @abstractmethod
    def sensitivity(self, theta: Float[Tensor, "elements size"]) -> Float[Tensor, "elements"]:
        """A bound on the change of a logit for a unit change of theta."""

    def take(self, index: Int[Tensor, "some"]) -> Self:
        """The chart of some elements."""
        parts = ((field.name, getattr(self, field.name)) for field in fields(self))
        taken: dict[str, Any] = {name: part[index] for name, part in parts if isinstance(part, (Tensor, TokenDataset))}
        return replace(self, **taken)

    def weights(self, theta: Tensor) -> Float[Tensor, "points elements d dq"]:
        """W of every point."""
        return self.left @ self.small(theta) @ self.right.mT

    def logits(self, theta: Tensor) -> Float[Tensor, "points elements n T"]:
        """Attention logits of every point."""
        return flat_logits(self.reduced, self.small(theta))

    def adjoint(self, theta: Tensor, rows: Float[Tensor, "points elements n T"]) -> Tensor:
        """Gradient in theta from one in the logits."""
        return self.pull(theta, flat_adjoint(self.reduced, rows))

    @property
    def row_size(self) -> Float[Tensor, "elements"]:
        """The largest ``||x_it - x_is|| ||z_i||`` up to a factor of two."""
        data = self.reduced
        centred = data.tokens - data.tokens.mean(-2, keepdim=True)
        tokens = torch.linalg.vector_norm(centred, dim=-1).amax(-1).repeat_interleave(data.queries_per_sequence, -1)
        size = (2 * tokens * torch.linalg.vector_norm(data.queries, dim=-1)).amax(-1)
        return torch.where(size > 0, size, torch.ones_like(size))


@dataclass(frozen=True, eq=False)
class MatrixChart(Chart):
    """theta = the entries of W."""

    def small(self, theta: Tensor) -> Tensor:
        return theta.unflatten(-1, (self.left.shape[-1], self.right.shape[-1]))

    def pull(self, theta: Tensor, gradient: Tensor) -> Tensor:
        return gradient.flatten(-2)

    def coordinates(self, weights: Tensor) -> Tensor:
        return (self.left.mT @ weights @ self.right).flatten(-2)

    def sphere(self, radius: Tensor) -> Tensor:
        return radius

    def sensitivity(self, theta: Tensor) -> Tensor:
        return self.row_size


@dataclass(frozen=True, eq=False)
class RowChart(MatrixChart):
    """theta = coordinates of W in the span of the rows (x_it - x_is) z_i^T, where every stationary W lies."""

    basis: Float[Tensor, "elements entries size"]

    def small(self, theta: Tensor) -> Tensor:
        return super().small(torch.einsum("bdr,pbr->pbd", self.basis, theta))

    def pull(self, theta: Tensor, gradient: Tensor) -> Tensor:
        return self._projected(super().pull(theta, gradient))

    def coordinates(self, weights: Tensor) -> Tensor:
        return self._projected(super().coordinates(weights))

    def _projected(self, entries: Tensor) -> Tensor:
        return torch.einsum("bdr,pbd->pbr", self.basis, entries)


@dataclass(frozen=True, eq=False)
class FactorChart(Chart):
    """theta = (K, Q): the ball ``||K||_F^2 + ||Q||_F^2 <= 2 R`` is the nuclear ball of radius R, cut at rank m."""

    rank: int

    def factors(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """K and Q in the reduced bases."""
        cut = self.left.shape[-1] * self.rank
        return (
            theta[..., :cut].unflatten(-1, (self.left.shape[-1], self.rank)),
            theta[..., cut:].unflatten(-1, (self.right.shape[-1], self.rank)),
        )

    def small(self, theta: Tensor) -> Tensor:
        key, query = self.factors(theta)
        return key @ query.mT

    def pull(self, theta: Tensor, gradient: Tensor) -> Tensor:
        key, query = self.factors(theta)
        return torch.cat([(gradient @ query).flatten(-2), (gradient.mT @ key).flatten(-2)], -1)

    def coordinates(self, weights: Tensor) -> Tensor:
        # A factor that starts at zero stays there: keep every direction alive by a little of the largest.
        key, query = balanced_factors(self.left.mT @ weights @ self.right, self.rank, least=1e-6)
        return torch.cat([key.flatten(-2), query.flatten(-2)], -1)

    def sphere(self, radius: Tensor) -> Tensor:
        return (2 * radius).sqrt()

    def sensitivity(self, theta: Tensor) -> Tensor:
        return self.row_size * torch.linalg.vector_norm(theta, dim=-1)


def balanced_factors(
    weights: Float[Tensor, "*lead d dq"], rank: int, least: float = 0.0
) -> tuple[Float[Tensor, "*lead d rank"], Float[Tensor, "*lead dq rank"]]:
    """K and Q of `rank` columns with K^T K = Q^T Q and K Q^T the weights, none shorter than `least` of the longest."""
    left, sizes, right = torch.linalg.svd(weights, full_matrices=False)
    roots = sizes[..., :rank].sqrt()
    roots = torch.maximum(roots, least * roots[..., :1]).unsqueeze(-2)
    width = roots.shape[-1]
    missing = (0, rank - width)
    key = torch.nn.functional.pad(left[..., :width] * roots, missing)
    return key, torch.nn.functional.pad(right[..., :width, :].mT * roots, missing)


def reduced_spans(data: TokenDataset) -> tuple[TokenDataset, Tensor, Tensor]:
    """The data in orthonormal bases of span{x_it - x_is} and span{z_i}, and the bases: exact for invariant norms."""
    first = data.tokens - data.tokens[..., :1, :]
    left = torch.linalg.svd(first.flatten(1, 2), full_matrices=False)[2].mT
    right = torch.linalg.svd(data.queries, full_matrices=False)[2].mT
    return (
        replace_unchecked(data, tokens=first @ left.unsqueeze(-3), queries=data.queries @ right, head=None),
        left,
        right,
    )


def whole_spans(data: TokenDataset) -> tuple[TokenDataset, Tensor, Tensor]:
    """The data as they are, with identity bases, for norms that a change of basis would spoil."""
    batch = data.tokens.shape[0]
    eye = [torch.eye(size, dtype=data.dtype, device=data.device) for size in (data.d, data.dq)]
    left, right = (one.expand(batch, *one.shape) for one in eye)
    return replace_unchecked(data, tokens=data.tokens - data.tokens[..., :1, :], head=None), left, right


def row_chart(data: TokenDataset) -> RowChart:
    """The chart for the Frobenius ball."""
    small, left, right = reduced_spans(data)
    rows = torch.einsum("bntd,bnq->bntdq", small.input_tokens, small.queries).flatten(-2).flatten(1, 2)
    basis = torch.linalg.svd(rows, full_matrices=False)[2].mT
    return RowChart(small, left, right, basis)
