"""What every matrix norm of the library offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.data.checks import ArrayLike, as_floating, as_tensor, type_name


@dataclass(frozen=True)
class Norm(ABC):
    """A norm N on matrices ``[*batch, d, dq]``, its dual norm N°, steepest direction, prox and projection.

    The same object says which steepest descent to run and which max-margin problem it should converge to:

        N°(G) = max { <G, D> : N(D) <= 1 },        <G, D> = sum_ij G_ij D_ij.

    Inputs are float32 or float64, tensors or NumPy arrays, with at least one row and one column; results are tensors of
    the same type on the same device, and a ValueError says what does not fit. An element of the batch that holds a NaN
    or an infinity gives NaN, the others are untouched. Values neither overflow nor underflow unless the result itself
    does. A radius or a step is a number >= 0, or one for each element, ``[*batch]``.

    A new norm states its `name` and `dual` and implements `_value`, `_steepest` and `_project`. These get checked
    tensors, scaled by a power of two so that the largest |entry| lies in [1, 2), or zero matrices; everything else
    follows by duality. Norms are immutable, hashable, and equal when their parameters are.
    """

    unitarily_invariant: ClassVar[bool] = False
    """Whether N(U W V) = N(W) for orthogonal U, V; only then may a problem be projected onto spans.

    False, the default, is always safe."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What a person calls it, for titles and messages."""

    @property
    @abstractmethod
    def dual(self) -> Norm:
        """The dual norm N°, itself a norm of the library; ``norm.dual.dual == norm``."""

    def value(self, matrix: ArrayLike) -> Float[Tensor, "*batch"]:
        """N(W) of `matrix` W ``[*batch, d, dq]``."""
        scaled, scale = split_scale(as_matrix(matrix, "matrix"))
        return self._value(scaled) * scale[..., 0, 0]

    def value_beside(self, matrix: ArrayLike, dual_point: ArrayLike) -> Float[Tensor, "*batch"]:
        """N(W), or a bound above it where the value is costly: tight if `dual_point` G attains <G, W> = N°(G) N(W)."""
        return self.value(matrix)

    def dual_value(self, matrix: ArrayLike) -> Float[Tensor, "*batch"]:
        """N°(W) = max { <W, D> : N(D) <= 1 } of `matrix` W ``[*batch, d, dq]``."""
        return self.dual.value(matrix)

    def steepest(self, gradient: ArrayLike) -> Float[Tensor, "*batch d dq"]:
        """A maximiser D of <G, D> over N(D) <= 1 for `gradient` G ``[*batch, d, dq]``; steepest descent walks along -D.

        Returns:
            D with <G, D> = N°(G) and N(D) = 1, exactly zero where G is zero. Where there are several, one of them.
        """
        scaled, scale = split_scale(as_matrix(gradient, "gradient"))
        return torch.where(scale.isnan(), scale, self._steepest(scaled))

    def project(self, matrix: ArrayLike, radius: float | ArrayLike) -> Float[Tensor, "*batch d dq"]:
        """The nearest point to `matrix` W, argmin { ||X - W||_F : N(X) <= radius }.

        A matrix inside the ball comes back unchanged, bit for bit.
        """
        return self._project_checked(as_matrix(matrix, "matrix"), radius, "radius")

    def prox(self, matrix: ArrayLike, step: float | ArrayLike) -> Float[Tensor, "*batch d dq"]:
        """The proximal map argmin_X  step N(X) + ||X - W||_F^2 / 2 of `matrix` W, by Moreau's decomposition.

        It is W minus its projection onto the dual ball N° <= step, exactly zero if W lies in it.
        """
        tensor = as_matrix(matrix, "matrix")
        return tensor - self.dual._project_checked(tensor, step, "step")

    def _project_checked(self, tensor: Tensor, radius: float | ArrayLike, argument: str) -> Tensor:
        bound = _as_size(radius, argument, tensor)
        scaled, scale = split_scale(tensor)
        inside = self._value(scaled) * scale[..., 0, 0] <= bound
        nearest = self._project(scaled, bound / scale[..., 0, 0])
        nearest = torch.where((bound > 0)[..., None, None], nearest, torch.zeros_like(nearest))
        return torch.where(inside[..., None, None], tensor, nearest * scale)

    @abstractmethod
    def _value(self, matrix: Tensor) -> Tensor:
        """N(W)."""

    @abstractmethod
    def _steepest(self, gradient: Tensor) -> Tensor:
        """A maximiser of <G, D> over N(D) <= 1; zero at zero."""

    @abstractmethod
    def _project(self, matrix: Tensor, radius: Tensor) -> Tensor:
        """The projection of matrices outside the ball; what it gives for those inside or for radius 0 is not read."""


def split_scale(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """`matrix` as scaled * scale, with scale ``[*batch, 1, 1]`` a power of two, so that no bit is lost.

    The largest |entry| of scaled lies in [1, 2), or the matrix is zero and scale is 1. An element that holds a NaN or
    an infinity gets scaled = 0 and scale = NaN: products with scale then say so, and no decomposition ever sees it.
    """
    largest = matrix.abs().amax(dim=(-2, -1), keepdim=True)
    mantissa = torch.frexp(largest).mantissa
    scale = torch.where(largest > 0, largest / (2 * mantissa), torch.ones_like(largest))
    scale = torch.where(largest.isfinite(), scale, torch.full_like(largest, torch.nan))
    return torch.where(largest.isfinite(), matrix / scale, torch.zeros_like(matrix)), scale


def as_matrix(value: object, name: str) -> Tensor:
    """`value` as a floating tensor ``[*batch, d, dq]`` with at least one row and one column."""
    tensor = as_floating(value, name)
    if tensor.ndim < 2:
        raise ValueError(f"{name} must have shape [*batch, d, dq]; got {list(tensor.shape)}")
    if 0 in tensor.shape[-2:]:
        raise ValueError(f"{name} must have at least one row and one column; got shape {list(tensor.shape)}")
    return tensor


def _as_size(value: object, name: str, matrix: Tensor) -> Tensor:
    """A radius or step >= 0, one number or ``[*batch]``, as ``[*batch]`` beside `matrix`."""
    size = as_tensor(value, name)
    batch = matrix.shape[:-2]
    if size.dtype == torch.bool or size.is_complex():
        raise ValueError(f"{name} must be a number or numbers; got {type_name(size)}")
    if size.ndim and size.shape != batch:
        raise ValueError(f"{name} must be one number or have the batch's shape {list(batch)}; got {list(size.shape)}")
    if size.ndim and size.device != matrix.device:
        raise ValueError(f"{name} must be on {matrix.device}, like the matrix; got {size.device}")
    wrong = ~(size >= 0)
    if bool(wrong.any()):
        where = torch.nonzero(wrong)[0].tolist()
        place = f" at element {', '.join(map(str, where))}" if where else ""
        raise ValueError(f"{name} must be at least 0; got {size[tuple(where)].item()}{place}")
    return size.to(dtype=matrix.dtype, device=matrix.device).expand(batch)
