"""A cone around a direction, and the cap that it cuts from a sphere."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attsvm.attention import ScaledTensor
from attsvm.data import TokenDataset
from attsvm.data.checks import ArrayLike, as_floating, check_finite
from attsvm.theory.paths.problem import Landscape
from attsvm.theory.paths.solvers import tangent_part


@dataclass(frozen=True, eq=False)
class AngleCone:
    """{ W : cos(W, direction) >= 1 - opening }, the neighbourhood in which local results hold [TaSVM, local path].

    Arguments:
        direction: ``[d, dq]`` or ``[*batch, d, dq]``, for example the max-margin solution of a locally optimal
            selection.
        opening: mu, in (0, 1).

    Raises:
        ValueError: if the direction is zero or not finite, or the opening is out of range.
    """

    direction: Tensor
    opening: float

    def __init__(self, direction: ArrayLike, opening: float) -> None:
        matrix = as_floating(direction, "direction").to(torch.float64)
        check_finite(matrix, "direction", ("row", "column"))
        if matrix.ndim < 2 or bool((torch.linalg.matrix_norm(matrix) == 0).any()):
            raise ValueError(f"direction must be a matrix [*batch, d, dq] that is not zero; got {list(matrix.shape)}")
        if isinstance(opening, bool) or not isinstance(opening, int | float) or not 0 < opening < 1:
            raise ValueError(f"opening must lie strictly between 0 and 1; got {opening!r}")
        object.__setattr__(self, "direction", matrix)
        object.__setattr__(self, "opening", float(opening))

    def fitted(self, data: TokenDataset) -> AngleCone:
        """The cone with one unit direction for each element of `data`, batch axes flattened."""
        shape = (*data.batch_shape, data.d, data.dq)
        if tuple(self.direction.shape) not in (shape, shape[-2:]):
            raise ValueError(
                f"direction of the cone must have shape {list(shape[-2:])} or {list(shape)};"
                f" got {list(self.direction.shape)}"
            )
        unit = self.direction / torch.linalg.matrix_norm(self.direction)[..., None, None]
        return AngleCone(unit.to(data.device).expand(shape).reshape(-1, data.d, data.dq), self.opening)


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


def onto_cap(points: Tensor, centre: Tensor, cosine: float, radius: Tensor) -> Tensor:
    """The nearest point of the cap { ||x|| = radius, cos(x, centre) >= cosine }, for unit centres."""
    unit = points / torch.linalg.vector_norm(points, dim=-1, keepdim=True).clamp(min=1e-300)
    along = (unit * centre).sum(-1, keepdim=True)
    across = unit - along * centre
    across = across / torch.linalg.vector_norm(across, dim=-1, keepdim=True).clamp(min=1e-300)
    edge = cosine * centre + math.sqrt(1 - cosine**2) * across
    return torch.where(along < cosine, edge, unit) * radius.unsqueeze(-1)


def cap_residual(
    theta: Float[Tensor, "elements size"], gradient: ScaledTensor, centre: Float[Tensor, "elements size"], cosine: float
) -> tuple[Float[Tensor, "elements"], Bool[Tensor, "elements"]]:
    """Distance from stationarity on the cap, and whether its edge binds: there a pull outward is held by the cone."""
    tangent, multiplier = tangent_part(theta, gradient)
    unit = theta / torch.linalg.vector_norm(theta, dim=-1, keepdim=True)
    along = (unit * centre).sum(-1, keepdim=True)
    outward = along * unit - centre
    outward = outward / torch.linalg.vector_norm(outward, dim=-1, keepdim=True).clamp(min=1e-300)
    push = -(tangent * outward).sum(-1, keepdim=True)
    edge = (along <= cosine + 1e-9) & (push > 0)
    off = torch.where(edge, tangent + push * outward, tangent).square().sum(-1)
    edge = edge.squeeze(-1)
    residual = torch.where(edge | (multiplier > 0), off / (1 + multiplier.clamp(min=0)), 1 - multiplier)
    return residual, edge
