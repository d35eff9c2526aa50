"""Rows of a batch of attention SVMs in the normalised, compact and reduced form of the nuclear solver.

A row k belongs to one input i and one token t:  A_k = d_k z_k^T,  d_k = x_i,selected - x_it,  z_k = z_i.

* normalised: ||d_k|| = ||z_k|| = 1, so that b_k becomes b_k / (||d_k|| ||z_k||), and then max |b_k| = 1 in every
  problem. Tokens of any scale give the same normalised problem.
* compact: missing rows are dropped; what padding remains (equal blocks per input, or equal lists per problem) reads
  0^T W 0 >= -1, which every W meets (multiplier 0).
* reduced: coordinates in orthonormal bases of span{d_k} and span{z_i}, which is exact for a unitarily invariant norm.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.base import RowList, unit

FACE = 1e-7
"""Singular values of M this close to 1 belong to the face of the dual ball on which every solution lies."""


@dataclass(frozen=True, eq=False)
class ReducedRows(RowList):
    """Normalised rows of a batch, in coordinates of the spans of differences (rx) and queries (rz)."""

    #: z_i, ``[batch, n, rz]``, when the rows are n equal blocks, one for each input: then Schur matrices are cheaper
    input_queries: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Reduction:
    """How a normalised problem maps back to the original one."""

    index: Tensor  #: place of each compact row in n * T, ``[batch, m]``
    dual_scale: Tensor  #: original lam = normalised lam * dual_scale, ``[batch, m]``
    weight_scale: Tensor  #: original W = normalised W * weight_scale, ``[batch]``
    left_basis: Tensor | None  #: ``[batch, d, rx]``; None where the tokens' coordinates were kept
    right_basis: Tensor | None  #: ``[batch, dq, rz]``; None where the queries' were

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


def normalise(problem: AttentionSVM, spans: bool = True) -> tuple[Tensor, Tensor, ReducedRows | None, Reduction | None]:
    """Duals that settle problems with a zero row that asks for something (a ray by itself), 0 elsewhere; where rows are
    left that ask for something; and the rows of those problems, reduced, with the way back (None where there are none).

    `spans` says whether the norm allows coordinates of the spans; without, the rows keep their own.
    """
    impossible = problem.vanishing & problem.asking
    duals = impossible * problem.right_hand_side.sign()
    asking = (problem.asking & ~problem.vanishing).flatten(1).any(1) & ~impossible.flatten(1).any(1)
    where = torch.nonzero(asking)[:, 0]
    if where.numel() == 0:
        return duals, where, None, None
    return duals, where, *_reduce(problem[where], spans)


def _reduce(problem: AttentionSVM, spans: bool) -> tuple[ReducedRows, Reduction]:
    """Normalised, compact, reduced rows, and the way back."""
    present, (n, length, d) = problem.rows & ~problem.vanishing, (problem.data.n, problem.data.T, problem.data.d)
    block, m = int(present.sum(-1).max()), int(present.flatten(1).sum(-1).max())
    blocks = n * block <= 1.2 * m
    if blocks:  # the existing rows first within every input
        m = n * block
        index = torch.argsort(~present, dim=-1, stable=True)[..., :block]
        index = (index + length * torch.arange(n, device=index.device)[:, None]).reshape(len(present), m)
    else:
        index = torch.argsort(~present.flatten(1), dim=-1, stable=True)[:, :m]
    listed, real = RowList.of(problem, index), present.flatten(1).gather(1, index)
    (left, d_norm), (queries, z_norm) = unit(listed.differences * real[..., None]), unit(problem.data.queries)
    left_basis = right_basis = None
    if spans and n < queries.shape[-1]:
        right_basis, queries = orthonormal(queries)
    if spans and m < d:
        left_basis, left = orthonormal(left)
    size = torch.where(real, d_norm * z_norm.gather(1, index // length), 1.0)
    b = torch.where(real, listed.right_hand_side / size, 0.0)
    scale = b.abs().amax(-1)
    scale = torch.where(scale > 0, scale, 1.0)
    own = queries[torch.arange(len(index), device=index.device)[:, None], index // length]
    reduced = ReducedRows(
        differences=left.contiguous(),
        queries=(own * real[..., None]).contiguous(),
        right_hand_side=torch.where(real, b / scale[:, None], -1.0),
        inequalities=listed.inequalities & real,
        equalities=listed.equalities & real,
        input_queries=queries.contiguous() if blocks else None,
    )
    return reduced, Reduction(index, real / size, scale, left_basis, right_basis)
