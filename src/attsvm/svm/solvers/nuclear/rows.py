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

FACE = 1e-7
"""Singular values of M this close to 1 belong to the face of the dual ball on which every solution lies."""


@dataclass(frozen=True, eq=False)
class ReducedRows(RowList):
    """Normalised rows of a batch, in coordinates of the spans of differences (rx) and queries (rz).

    Attributes:
        input_queries: z_i, ``[batch, n, rz]``, when the m rows are n equal blocks, one for each input: then
            Schur matrices are cheaper.
    """

    input_queries: Tensor | None = None


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

    def duals(self, reduced: Tensor, n: int, length: int) -> Tensor:
        """Multipliers of the original rows, ``[batch, n, T]``."""
        flat = reduced.new_zeros(len(reduced), n * length)
        return flat.scatter_add_(1, self.index, reduced * self.dual_scale).view(-1, n, length)


def unit(x: Tensor) -> tuple[Tensor, Tensor]:
    """x / ||x|| and ||x|| along the last axis; zero vectors stay zero, and squares cannot overflow."""
    top = x.abs().amax(-1, keepdim=True)
    x = x / torch.where(top > 0, top, torch.ones_like(top))
    norm = x.norm(dim=-1, keepdim=True)
    return x / torch.where(norm > 0, norm, torch.ones_like(norm)), (norm * top)[..., 0]


def orthonormal(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Orthonormal columns that span the rows of `vectors` ``[batch, count, width]``, and the rows' coordinates.

    Gram and Schmidt's method, repeated until nothing is left of earlier columns; one batched product after the other,
    where a GPU's QR takes the matrices one by one.
    """
    basis = torch.zeros_like(vectors)
    for i in range(vectors.shape[1]):
        one, before = vectors[:, i, :, None], basis[:, :i]
        for _ in range(3):
            one = one - before.mT @ (before @ one)
            size = one.norm(dim=1, keepdim=True)
            one = one / torch.where(size > 0, size, 1.0)
        basis[:, i] = one[..., 0]
    return basis.mT, vectors @ basis.mT


def reduce(rows: Rows, sizes: Tensor, spans: bool) -> tuple[ReducedRows, Reduction]:
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
        right_basis, queries = orthonormal(rows.queries)
        rows = replace(rows, queries=queries)
    listed = rows.listed(index)
    real = listed.present
    left = listed.differences * real[..., None]
    if spans and m < dim:
        left_basis, left = orthonormal(left)
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


def normalise(rows: Rows, spans: bool = True) -> tuple[Tensor, Tensor, ReducedRows | None, Reduction | None]:
    """Duals that settle problems with a zero row that asks for something (a ray by itself), 0 elsewhere; where rows are
    left that ask for something; and the rows of those problems, reduced, with the way back (None where there are none).
    """
    (differences, d_norm), (queries, z_norm) = unit(rows.differences), unit(rows.queries)
    zero = rows.present & ((d_norm == 0) | (z_norm == 0)[..., None])
    impossible = zero & rows.asking
    duals = impossible * torch.sign(rows.right_hand_side)
    rows = Rows(differences, queries, rows.right_hand_side, rows.inequalities & ~zero, rows.equalities & ~zero)
    where = torch.nonzero(rows.asking.flatten(1).any(1) & ~impossible.flatten(1).any(1))[:, 0]
    if where.numel() == 0:
        return duals, where, None, None
    return duals, where, *reduce(rows[where], (d_norm * z_norm[..., None])[where], spans)
