"""Rows of a batch of attention SVMs in the normalised, compact and reduced form of the nuclear solver.

A row k belongs to one input i and one token t:  A_k = d_k z_k^T,  d_k = x_i,selected - x_it,  z_k = z_i.

* normalised: ||d_k|| = ||z_k|| = 1, so that b_k becomes b_k / (||d_k|| ||z_k||), and then max |b_k| = 1 in every
  problem. Tokens of any scale give the same normalised problem.
* compact: missing rows are dropped; what padding remains (equal blocks per input, or equal lists per problem) reads
  0^T W 0 >= -1, which every W meets (multiplier 0).
* reduced: coordinates in orthonormal bases of span{d_k} and span{z_i}, which is exact for a unitarily invariant norm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attsvm.svm.solvers.base import RowList, Rows


@dataclass(frozen=True, eq=False)
class ReducedRows(RowList):
    """Normalised rows of a batch, in coordinates of the spans of differences (rx) and queries (rz).

    Attributes:
        input_queries: z_i, ``[batch, n, rz]``, when the m rows are n equal blocks, one for each input: then `schur` is
            cheaper.
    """

    input_queries: Tensor | None = None

    def margins(self, weights: Tensor) -> Tensor:
        """d_k^T W z_k, ``[batch, m]``."""
        return ((self.differences @ weights) * self.queries).sum(-1)

    def schur(self, y: Tensor, g: Tensor) -> Tensor:
        """tr(F_k Y F_l G), ``[batch, m, m]``, for symmetric Y, G; F_k = [[0, d_k z_k^T], [z_k d_k^T, 0]].

        Four Hadamard products of m x m matrices.
        """
        if self.input_queries is not None:
            return self._schur_by_blocks(y, g, self.input_queries)
        d, z, rx = self.differences, self.queries, self.differences.shape[-1]
        cross_y, cross_g = d @ y[:, :rx, rx:] @ z.mT, d @ g[:, :rx, rx:] @ z.mT
        out = (d @ y[:, :rx, :rx] @ d.mT).mul_(z @ g[:, rx:, rx:] @ z.mT)
        out.add_((d @ g[:, :rx, :rx] @ d.mT).mul_(z @ y[:, rx:, rx:] @ z.mT))
        cross_y.mul_(cross_g.mT)
        return out.add_(cross_y).add_(cross_y.mT)

    def _schur_by_blocks(self, y: Tensor, g: Tensor, z: Tensor) -> Tensor:
        """`schur` where z_k^T . z_l and d_k^T . z_l depend on l through its input alone."""
        d, rx = self.differences, self.differences.shape[-1]
        batch, n, m = len(self), z.shape[1], d.shape[1]
        if d.device.type == "cpu":
            from attsvm.svm.solvers.nuclear.schur_kernel import schur_blocks  # Numba starts only where it is used

            out = d.new_empty(batch, m, m)
            schur_blocks(*(x.contiguous().numpy() for x in (d, z, y, g)), out.numpy())
            return out

        def product(tokens: Tensor, queries: Tensor) -> Tensor:
            blocks = (d @ tokens @ d.mT).view(batch, n, m // n, n, m // n)
            return blocks.mul_((z @ queries @ z.mT)[:, :, None, :, None]).view(batch, m, m)

        cross_y, cross_g = ((d @ (x[:, :rx, rx:] @ z.mT)).view(batch, n, -1, n) for x in (y, g))
        cross = (cross_y[..., None] * cross_g.permute(0, 3, 1, 2)[:, :, None]).view(batch, m, m)
        out = product(y[:, :rx, :rx], g[:, rx:, rx:])
        out += cross
        out += cross.mT
        return out.add_(product(g[:, :rx, :rx], y[:, rx:, rx:]))


@dataclass(frozen=True, eq=False)
class Reduction:
    """How a normalised problem maps back to the original one.

    Attributes:
        index: place of each compact row in n * T, ``[batch, m]``.
        dual_scale: original lam = normalised lam * dual_scale, ``[batch, m]``.
        weight_scale: original W = normalised W * weight_scale, ``[batch]``.
        left_basis: ``[batch, d, rx]``; None where the tokens' coordinates were kept.
        right_basis: ``[batch, dq, rz]``; None where the queries' were.
    """

    index: Tensor
    dual_scale: Tensor
    weight_scale: Tensor
    left_basis: Tensor | None
    right_basis: Tensor | None

    def weights(self, reduced: Tensor) -> Tensor:
        """W in the original coordinates."""
        out = reduced * self.weight_scale[:, None, None]
        if self.left_basis is not None:
            out = self.left_basis @ out
        if self.right_basis is not None:
            out = out @ self.right_basis.mT
        return out

    def duals(self, reduced: Tensor, shape: torch.Size) -> Tensor:
        """Multipliers of the original rows, in their shape ``[batch, n, T]``."""
        flat = reduced.new_zeros(shape).flatten(1)
        return flat.scatter_add_(1, self.index, reduced * self.dual_scale).view(shape)

    def unreduced(self, rows: Rows, reduced: ReducedRows) -> ReducedRows:
        """The normalised rows in the original coordinates, from the unit vectors `rows`."""
        listed, real = rows.listed(self.index), reduced.present[..., None]
        masks = reduced.inequalities, reduced.equalities
        return ReducedRows(listed.differences * real, listed.queries * real, reduced.right_hand_side, *masks)


def unit(x: Tensor) -> tuple[Tensor, Tensor]:
    """x / ||x|| and ||x|| along the last axis; zero vectors stay zero, and squares cannot overflow."""
    top = x.abs().amax(-1, keepdim=True)
    x = x / torch.where(top > 0, top, torch.ones_like(top))
    norm = x.norm(dim=-1, keepdim=True)
    return x / torch.where(norm > 0, norm, torch.ones_like(norm)), (norm * top)[..., 0]


def reduce(rows: Rows, sizes: Tensor, spans: bool = True) -> tuple[ReducedRows, Reduction]:
    """Normalised, compact, reduced rows, and the way back.

    Arguments:
        rows: with unit vectors as differences and queries.
        sizes: ||d_it|| ||z_i|| before they were made unit vectors, ``[batch, n, T]``.
        spans: whether the norm allows coordinates of the spans; without, the rows keep their own.
    """
    _, n, length, dim = rows.differences.shape
    block = int(rows.present.sum(-1).max())
    m = max(int(rows.present.flatten(1).sum(-1).max()), 1)
    blocks = n * block <= 1.2 * m
    if blocks:  # the existing rows first within every input
        m = n * block
        index = torch.argsort(~rows.present, dim=-1, stable=True)[..., :block]
        index = (index + length * torch.arange(n, device=index.device)[:, None]).reshape(len(rows), m)
    else:
        index = torch.argsort(~rows.present.flatten(1), dim=-1, stable=True)[:, :m]
    left_basis = right_basis = None
    if spans and n < rows.queries.shape[-1]:
        right_basis, upper = torch.linalg.qr(rows.queries.mT)
        rows = replace(rows, queries=upper.mT)
    listed = rows.listed(index)
    real = listed.present
    left = listed.differences * real[..., None]
    if spans and m < dim:
        left_basis, upper = torch.linalg.qr(left.mT)
        left = upper.mT
    size = torch.where(real, sizes.flatten(1).gather(1, index), torch.ones_like(listed.right_hand_side))
    b = torch.where(real, listed.right_hand_side / size, torch.zeros_like(size))
    scale = b.abs().amax(-1)
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    reduced = ReducedRows(
        differences=left.contiguous(),
        queries=(listed.queries * real[..., None]).contiguous(),
        right_hand_side=torch.where(real, b / scale[:, None], -torch.ones_like(b)),
        inequalities=listed.inequalities,
        equalities=listed.equalities,
        input_queries=rows.queries.contiguous() if blocks else None,
    )
    return reduced, Reduction(index, real / size, scale, left_basis, right_basis)
