"""Tensors too small or too large for floating point: a mantissa, and one logarithm of its scale per element."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class ScaledTensor:
    """The tensor ``exp(log_scale) * mantissa``, one scale for each element of the leading axes.

    Gradients of a saturated softmax are smaller than the smallest float; their direction lives in the mantissa and
    their size in the logarithm. A zero tensor has mantissa 0 and log-scale 0.

    >>> tiny = ScaledTensor(torch.tensor([[3.0, 4.0]]), torch.tensor([-2000.0]))
    >>> tiny.log_norm().tolist(), tiny.normalized().tolist(), tiny.tensor().tolist()
    ([-1998.3905...], [[0.6..., 0.8...]], [[0.0, 0.0]])
    """

    mantissa: Tensor
    log_scale: Tensor

    def _spread(self, per_element: Tensor) -> Tensor:
        return per_element.reshape(per_element.shape + (1,) * (self.mantissa.ndim - self.log_scale.ndim))

    def _largest(self) -> Tensor:
        return self.mantissa.flatten(self.log_scale.ndim).abs().amax(-1)

    def tensor(self) -> Tensor:
        """The plain tensor; what is too small becomes 0, what is too large the largest finite number."""
        limit = torch.finfo(self.mantissa.dtype).max
        # Half of the scale at a time, so that a large mantissa meets a small scale without underflow on the way.
        half = self._spread((self.log_scale / 2).clamp(max=math.log(limit)).exp())
        return (self.mantissa * half * half).clamp(-limit, limit)

    def norm_of_mantissa(self) -> Tensor:
        """Frobenius norm of the mantissa, without overflow or underflow of its squares: one number per element."""
        largest = self._largest()
        safe = torch.where(largest > 0, largest, torch.ones_like(largest))
        unit = (self.mantissa / self._spread(safe)).flatten(self.log_scale.ndim)
        return torch.linalg.vector_norm(unit, dim=-1) * largest

    def log_norm(self) -> Tensor:
        """Logarithm of the Frobenius norm, -inf for zero."""
        return self.norm_of_mantissa().log() + self.log_scale

    def normalized(self) -> Tensor:
        """The direction, of Frobenius norm 1; zero stays zero."""
        norm = self.norm_of_mantissa()
        return self.mantissa / self._spread(torch.where(norm > 0, norm, torch.ones_like(norm)))

    def __getitem__(self, index: Any) -> ScaledTensor:
        return ScaledTensor(self.mantissa[index], self.log_scale[index])

    def map(self, mantissa: Tensor) -> ScaledTensor:
        """Another mantissa at the same scale (for linear maps)."""
        return ScaledTensor(mantissa, self.log_scale)

    def blend(self, other: ScaledTensor, own: float, others: float) -> ScaledTensor:
        """``own * self + others * other`` for non-negative factors, at the larger of the two scales."""

        def scale_of(part: ScaledTensor, factor: float) -> Tensor:
            size = part.log_scale.masked_fill(part._largest() == 0, -math.inf)
            return size + (math.log(factor) if factor > 0 else -math.inf)

        mine, theirs = scale_of(self, own), scale_of(other, others)
        scale = torch.maximum(mine, theirs).nan_to_num(0.0, 0.0, 0.0)
        first, second = self._spread((mine - scale).exp()), self._spread((theirs - scale).exp())
        return ScaledTensor(self.mantissa * first + other.mantissa * second, scale)
