"""Rows of a batch of attention SVMs in the normalised, compact and reduced form that the nuclear solvers share.

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

from attsvm.svm.solvers.nuclear.schur_kernel import schur_blocks


@dataclass(frozen=True, eq=False)
class Rows:
    """One batch of normalised problems  min ||W||_*  s.t.  d_k^T W z_k >= b_k,  = b_k where ``equal``.

    Attributes:
        left: d_k, ``[batch, m, rx]``.
        right: z_k, ``[batch, m, rz]``.
        values: b_k, ``[batch, m]``.
        equal: equality rows, ``[batch, m]``.
        real: False on padding, ``[batch, m]``.
        queries: z_i, ``[batch, n, rz]``, when the m rows are n equal blocks, one an input: a cheaper `schur`.
    """

    left: Tensor
    right: Tensor
    values: Tensor
    equal: Tensor
    real: Tensor
    queries: Tensor | None = None

    def __getitem__(self, index: Tensor | slice) -> Rows:
        left, right, values = self.left[index], self.right[index], self.values[index]
        queries = None if self.queries is None else self.queries[index]
        return Rows(left, right, values, self.equal[index], self.real[index], queries)

    def __len__(self) -> int:
        return self.left.shape[0]

    def adjoint(self, duals: Tensor) -> Tensor:
        """M = sum_k lam_k d_k z_k^T."""
        return (self.left * duals[..., None]).mT @ self.right

    def margins(self, weights: Tensor) -> Tensor:
        """d_k^T W z_k."""
        return ((self.left @ weights) * self.right).sum(-1)

    def schur(self, y: Tensor, g: Tensor) -> Tensor:
        """tr(F_k Y F_l G), ``[batch, m, m]``, for symmetric Y, G; F_k = [[0, d_k z_k^T], [z_k d_k^T, 0]].

        Four Hadamard products of m x m matrices.
        """
        if self.queries is not None:
            return self._schur_by_blocks(y, g, self.queries)
        d, z, rx = self.left, self.right, self.left.shape[-1]
        cross_y, cross_g = d @ y[:, :rx, rx:] @ z.mT, d @ g[:, :rx, rx:] @ z.mT
        out = (d @ y[:, :rx, :rx] @ d.mT).mul_(z @ g[:, rx:, rx:] @ z.mT)
        out.add_((d @ g[:, :rx, :rx] @ d.mT).mul_(z @ y[:, rx:, rx:] @ z.mT))
        cross_y.mul_(cross_g.mT)
        return out.add_(cross_y).add_(cross_y.mT)

    def _schur_by_blocks(self, y: Tensor, g: Tensor, z: Tensor) -> Tensor:
        """`schur` where z_k^T . z_l and d_k^T . z_l depend on l through its input alone."""
        d, rx = self.left, self.left.shape[-1]
        batch, n, m = len(self), z.shape[1], d.shape[1]
        if d.device.type == "cpu":
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

    def duals(self, reduced: Tensor, n: int, length: int) -> Tensor:
        """Multipliers [batch, n, T] of the original rows."""
        flat = reduced.new_zeros(reduced.shape[0], n * length)
        return flat.scatter_add_(1, self.index, reduced * self.dual_scale).view(-1, n, length)


def unit(x: Tensor) -> tuple[Tensor, Tensor]:
    """x / ||x|| and ||x|| along the last axis; zero vectors stay zero, and squares cannot overflow."""
    top = x.abs().amax(-1, keepdim=True)
    x = x / torch.where(top > 0, top, torch.ones_like(top))
    norm = x.norm(dim=-1, keepdim=True)
    return x / torch.where(norm > 0, norm, torch.ones_like(norm)), (norm * top)[..., 0]


def reduce(
    d: Tensor, d_norm: Tensor, z: Tensor, z_norm: Tensor, values: Tensor, keep: Tensor, equal: Tensor
) -> tuple[Rows, Reduction]:
    """Compact rows of unit vectors d ``[batch, n, T, d]``, z ``[batch, n, dq]``, and the way back.

    The rows are those in `keep` ``[batch, n, T]``; `equal` is a subset of them.
    """
    batch, n, length, dim = d.shape
    block = int(keep.sum(-1).max())
    m = max(int(keep.flatten(1).sum(-1).max()), 1)
    blocks = n * block <= 1.2 * m
    if blocks:  # the existing rows first within every input
        m = n * block
        index = torch.argsort(~keep, dim=-1, stable=True)[..., :block]
        index = (index + length * torch.arange(n, device=d.device)[:, None]).reshape(batch, m)
    else:
        index = torch.argsort(~keep.flatten(1), dim=-1, stable=True)[:, :m]
    real = keep.flatten(1).gather(1, index)
    owner = index // length
    left = d.reshape(batch, n * length, dim).gather(1, index[..., None].expand(-1, -1, dim)) * real[..., None]
    left_basis = right_basis = None
    if m < dim:
        left_basis, upper = torch.linalg.qr(left.mT)
        left = upper.mT
    if n < z.shape[-1]:
        right_basis, upper = torch.linalg.qr(z.mT)
        z = upper.mT
    right = z.gather(1, owner[..., None].expand(-1, -1, z.shape[-1])) * real[..., None]
    size = d_norm.reshape(batch, -1).gather(1, index) * z_norm.gather(1, owner)
    size = torch.where(real, size, torch.ones_like(size))
    b = torch.where(real, values.reshape(batch, -1).gather(1, index) / size, torch.zeros_like(size))
    scale = b.abs().amax(-1)
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    rows = Rows(
        left=left.contiguous(),
        right=right.contiguous(),
        values=torch.where(real, b / scale[:, None], -torch.ones_like(b)),
        equal=equal.reshape(batch, -1).gather(1, index) & real,
        real=real,
        queries=z.contiguous() if blocks else None,
    )
    return rows, Reduction(index, real / size, scale, left_basis, right_basis)
