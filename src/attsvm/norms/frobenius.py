"""The Frobenius norm: plain gradient descent, and the max-margin problem of the papers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attsvm.norms.base import Norm


@dataclass(frozen=True)
class Frobenius(Norm):
    """||W||_F = sqrt(sum_ij w_ij^2); its own dual, unitarily invariant. Its steepest direction is G / ||G||_F.

    >>> import torch
    >>> W = torch.tensor([[3.0, 4.0]])
    >>> Frobenius().value(W), Frobenius().project(W, 1.0)
    (tensor(5.), tensor([[0.6000, 0.8000]]))
    """

    name = "Frobenius"
    unitarily_invariant = True

    @property
    def dual(self) -> Norm:
        return self

    def _value(self, matrix: Tensor) -> Tensor:
        length: Tensor = torch.linalg.vector_norm(matrix, dim=(-2, -1))
        return length

    def _steepest(self, gradient: Tensor) -> Tensor:
        length = self._value(gradient)[..., None, None]
        return gradient / length.clamp(min=1)  # a scaled gradient has length >= 1, or is zero

    def _project(self, matrix: Tensor, radius: Tensor) -> Tensor:
        return self._steepest(matrix) * radius[..., None, None]
