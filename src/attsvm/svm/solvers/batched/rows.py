"""Problems of one batch as tensors of rows, scaled by powers of two; the two maps and the Gram matrix."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows a_k = d_k z_k^T with ||d_k|| and ||z_k|| in [1, 2), scaled by powers of two (exact), m a problem.

    Attributes:
        D: d_k, ``[batch, m, d]``.
        Z: each row's own query z_k, ``[batch, m, dq]``.
        b: right-hand sides, ``[batch, m]``.
        reach: the problem's largest |b| in the units of each row, ``[batch, m]``.
        present: False on padding, ``[batch, m]``.
        equal: equality rows, ``[batch, m]``.
    """

    D: Tensor
    Z: Tensor
    b: Tensor
    reach: Tensor
    present: Tensor
    equal: Tensor

    def margins(self, weights: Tensor) -> Tensor:
        """d_k^T W z_k."""
        return ((self.Z @ weights.mT) * self.D).sum(-1)

    def adjoint(self, multipliers: Tensor) -> Tensor:
        """sum_k lam_k d_k z_k^T."""
        return (self.D * multipliers[..., None]).mT @ self.Z

    def gram(self) -> Tensor:
        """<a_k, a_l> = (d_k . d_l)(z_k . z_l)."""
        return (self.D @ self.D.mT) * (self.Z @ self.Z.mT)

    def __getitem__(self, index: Tensor) -> Rows:
        return Rows(*(getattr(self, field.name)[index] for field in fields(self)))


class Guess(NamedTuple):
    """Where the active rows of each problem, or a ray, may be; `polish` decides.

    A row is guessed active where its multiplier ``[batch, m]`` beats its slack ``[batch, m]``; `hopeless` ``[batch]``
    says where the multipliers look like a ray.
    """

    multipliers: Tensor
    slacks: Tensor
    hopeless: Tensor
    steps: Tensor


@dataclass(frozen=True, eq=False)
class Scaling:
    """What leads from scaled rows back to the problem.

    Attributes:
        index: place of each row in n * T, ``[batch, m]``.
        factor: row scale, ``[batch, m]``, and unit: scale of the right-hand sides, ``[batch, 1]``; with W' and lam' the
            scaled answer, W = W' / unit and lam = lam' factor / unit, or lam' factor unit for a ray.
        lone: a ray of zero rows that ask for something, ``[batch, m]``; 0 where there are none.
    """

    index: Tensor
    factor: Tensor
    unit: Tensor
    lone: Tensor


def gather(
    differences: Tensor, present: Tensor, equal: Tensor, queries: Tensor, values: Tensor, m: int
) -> tuple[Rows, Scaling]:
    """The rows of ``[batch, n, T]`` problems, m each (padding where fewer exist), and the way back.

    A zero row holds by itself or is a ray by itself, and is taken out.
    """
    batch, _, length, _ = differences.shape
    index = torch.argsort((~present).flatten(1).to(torch.int8), dim=1, stable=True)[:, :m]
    element = torch.arange(batch, device=differences.device)[:, None]
    d, z = differences.flatten(1, 2)[element, index], queries[element, index // length]
    present, equal, b = (torch.gather(x.flatten(1), 1, index) for x in (present, equal, values))
    d_norm, z_norm = d.norm(dim=2), z.norm(dim=2)
    zero = (d_norm * z_norm) == 0
    hopeless = present & zero & ((b > 0) | (equal & (b != 0)))
    lone = torch.where(hopeless, 1.0 / torch.where(b == 0, 1.0, b), 0.0) / hopeless.sum(1, keepdim=True).clamp(min=1)
    present, equal = present & ~zero, equal & ~zero
    d_scale, z_scale = _power_of_two(d_norm), _power_of_two(z_norm)
    factor = z_scale * d_scale
    asks = present & ((b > 0) | equal)
    b = torch.where(present, b, 0.0)
    unit = _power_of_two(torch.where(asks, (b * factor).abs(), 0.0).amax(1, keepdim=True))
    widest = torch.where(asks, b.abs(), 0.0).amax(1, keepdim=True)
    rows = Rows(
        D=torch.where(present[..., None], d * d_scale[..., None], 0.0),
        Z=z * z_scale[..., None],
        b=b * factor * unit,
        reach=widest * factor * unit,
        present=present,
        equal=equal,
    )
    return rows, Scaling(index, factor, unit, lone)


def _power_of_two(x: Tensor) -> Tensor:
    """The power of two p with p x in [1, 2); 1 where x = 0."""
    exponent = torch.frexp(x).exponent
    return torch.where(x > 0, torch.ldexp(torch.ones_like(x), 1 - exponent), 1.0)
