"""Rows of a batch, scaled by powers of two: margins, Gram matrices, and the way back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.base import RowList


@dataclass(frozen=True, eq=False)
class ScaledRows(RowList):
    """Rows a_k = d_k z_k^T with ||d_k|| and ||z_k|| in [1, 2), scaled by powers of two (exact)."""

    reach: Tensor  #: the problem's largest |b| in the units of each row, ``[batch, m]``


class Guess(NamedTuple):
    """Where the active rows of each problem, or a ray, may be; `polish` decides."""

    multipliers: Tensor  #: a row is guessed active where this beats its slack, ``[batch, m]``
    slacks: Tensor  #: ``[batch, m]``
    hopeless: Tensor  #: where the multipliers look like a ray, ``[batch]``
    steps: Tensor  #: that the guess took, ``[batch]``


@dataclass(frozen=True, eq=False)
class Scaling:
    """What leads from scaled rows back to the problem.

    With W' and lam' the scaled answer, W = W' / unit and lam = lam' factor / unit, or lam' factor unit for a ray.
    """

    index: Tensor  #: place of each row in n * T, ``[batch, m]``
    factor: Tensor  #: row scale, ``[batch, m]``
    unit: Tensor  #: scale of the right-hand sides, ``[batch, 1]``
    lone: Tensor  #: a ray of zero rows that ask for something, ``[batch, m]``; 0 where there are none


def scale(problem: AttentionSVM, m: int) -> tuple[ScaledRows, Scaling]:
    """The rows of every problem in a list of m (padding where fewer exist), scaled, and the way back.

    A zero row holds by itself or is a ray by itself, and is taken out.
    """
    index = torch.argsort((~problem.rows).flatten(1).to(torch.int8), dim=1, stable=True)[:, :m]
    all_rows = RowList.of(problem, index)
    d, z, b = all_rows.differences, all_rows.queries, all_rows.right_hand_side
    d_norm, z_norm = d.norm(dim=2), z.norm(dim=2)
    zero = (d_norm * z_norm) == 0
    hopeless = all_rows.asking & zero
    lone = torch.where(hopeless, 1.0 / torch.where(b == 0, 1.0, b), 0.0) / hopeless.sum(1, keepdim=True).clamp(min=1)
    present, asks = all_rows.present & ~zero, all_rows.asking & ~zero
    d_scale, z_scale = _power_of_two(d_norm), _power_of_two(z_norm)
    factor = z_scale * d_scale
    b = torch.where(present, b, 0.0)
    unit = _power_of_two(torch.where(asks, (b * factor).abs(), 0.0).amax(1, keepdim=True))
    widest = torch.where(asks, b.abs(), 0.0).amax(1, keepdim=True)
    scaled = ScaledRows(
        differences=torch.where(present[..., None], d * d_scale[..., None], 0.0),
        queries=z * z_scale[..., None],
        right_hand_side=b * factor * unit,
        inequalities=all_rows.inequalities & ~zero,
        equalities=all_rows.equalities & ~zero,
        reach=widest * factor * unit,
    )
    return scaled, Scaling(index, factor, unit, lone)


def _power_of_two(x: Tensor) -> Tensor:
    """The power of two p with p x in [1, 2); 1 where x = 0."""
    exponent = torch.frexp(x).exponent
    return torch.where(x > 0, torch.ldexp(torch.ones_like(x), 1 - exponent), 1.0)
