"""Rows of a batch of attention SVMs in the normalised, compact and reduced form that the nuclear solvers share.

A row k belongs to one input i and one token t:  A_k = d_k z_k^T,  d_k = x_i,selected - x_it,  z_k = z_i.

* normalised: ||d_k|| = ||z_k|| = 1, so that b_k becomes b_k / (||d_k|| ||z_k||), and then max |b_k| = 1 in every problem. Tokens
  of any scale give the same normalised problem.
* compact: missing rows are dropped; what padding remains (equal blocks per input, or equal lists per problem) reads
  0^T W 0 >= -1, which every W meets (multiplier 0).
* reduced: coordinates in orthonormal bases of span{d_k} and span{z_i}. For a unitarily invariant norm this is exact (theory.md 3.7).
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, allow-incomplete-defs
from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from attsvm.svm.solvers.nuclear.schur_kernel import schur_blocks


@dataclass(frozen=True)
class Rows:
    """One batch of normalised problems  min ||W||_*  s.t.  d_k^T W z_k >= b_k,  = b_k where ``equal``."""

    left: Tensor  # d_k          [batch, m, rx]
    right: Tensor  # z_k         [batch, m, rz]
    values: Tensor  # b_k        [batch, m]
    equal: Tensor  # bool        [batch, m]
    real: Tensor  # bool         [batch, m]   False on padding
    queries: Tensor | None = None  # z_i  [batch, n, rz] when the m rows are n equal blocks, one an input: a cheaper `schur`

    def __getitem__(self, index) -> "Rows":
        return Rows(*(None if x is None else x[index] for x in (getattr(self, f.name) for f in fields(self))))

    def __len__(self) -> int:
        return self.left.shape[0]

    def adjoint(self, duals: Tensor) -> Tensor:
        """M = sum_k lam_k d_k z_k^T."""
        return (self.left * duals[..., None]).mT @ self.right

    def margins(self, weights: Tensor) -> Tensor:
        """d_k^T W z_k."""
        return ((self.left @ weights) * self.right).sum(-1)

    def schur(self, y: Tensor, g: Tensor) -> Tensor:
        """tr(F_k Y F_l G) for symmetric Y, G of order rx + rz, F_k = [[0, d_k z_k^T], [z_k d_k^T, 0]]: four Hadamard products."""
        d, z, rx = self.left, self.right, self.left.shape[-1]
        if self.queries is not None:  # z_k^T . z_l and d_k^T . z_l depend on l through its input alone
            z = self.queries
            batch, n, m = len(self), z.shape[1], d.shape[1]
            if d.device.type == "cpu":
                out = d.new_empty(batch, m, m)
                schur_blocks(*(x.contiguous().numpy() for x in (d, z, y, g)), out.numpy())
                return out
            grid = (batch, n, m // n, n, m // n)
            cross_y, cross_g = ((d @ (x[:, :rx, rx:] @ z.mT)).view(batch, n, -1, n) for x in (y, g))
            cross = (cross_y[..., None] * cross_g.permute(0, 3, 1, 2)[:, :, None]).view(batch, m, m)
            out = (d @ y[:, :rx, :rx] @ d.mT).view(grid).mul_((z @ g[:, rx:, rx:] @ z.mT)[:, :, None, :, None]).view(batch, m, m)
            out += cross
            out += cross.mT
            more = (d @ g[:, :rx, :rx] @ d.mT).view(grid).mul_((z @ y[:, rx:, rx:] @ z.mT)[:, :, None, :, None])
            return out.add_(more.view(batch, m, m))
        cross_y, cross_g = d @ y[:, :rx, rx:] @ z.mT, d @ g[:, :rx, rx:] @ z.mT
        out = (d @ y[:, :rx, :rx] @ d.mT).mul_(z @ g[:, rx:, rx:] @ z.mT)
        out.add_((d @ g[:, :rx, :rx] @ d.mT).mul_(z @ y[:, rx:, rx:] @ z.mT))
        cross_y.mul_(cross_g.mT)
        return out.add_(cross_y).add_(cross_y.mT)


@dataclass(frozen=True)
class Reduction:
    """How a normalised problem maps back to the original one."""

    index: Tensor  # position of each compact row in n*T    [batch, m]
    dual_scale: Tensor  # original lam = normalised lam * dual_scale   [batch, m]
    weight_scale: Tensor  # original W = normalised W * weight_scale     [batch]
    left_basis: Tensor | None  # [batch, d, rx]
    right_basis: Tensor | None  # [batch, dq, rz]

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


def unit_rows(differences: Tensor, queries: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """d_it/||d_it||, ||d_it||, z_i/||z_i||, ||z_i|| (zero vectors stay zero, with norm 0); safe against overflow of the squares."""

    def unit(x):
        top = x.abs().amax(-1, keepdim=True)
        x = x / torch.where(top > 0, top, torch.ones_like(top))
        norm = x.norm(dim=-1, keepdim=True)
        return x / torch.where(norm > 0, norm, torch.ones_like(norm)), (norm * top)[..., 0]

    d, d_norm = unit(differences)
    z, z_norm = unit(queries)
    return d, d_norm, z, z_norm


def reduce(d: Tensor, d_norm: Tensor, z: Tensor, z_norm: Tensor, values: Tensor, keep: Tensor, equal: Tensor) -> tuple[Rows, Reduction]:
    """Compact rows (those in ``keep``, ``equal`` a subset) of unit vectors d [B,n,T,d], z [B,n,dq], and the way back."""
    batch, n, length, dim = d.shape
    flat = keep.reshape(batch, n * length)
    m, block = max(int(flat.sum(-1).max()), 1), int(keep.sum(-1).max())
    blocks = n * block <= 1.2 * m
    if blocks:  # the existing rows first within every input
        m = n * block
        index = torch.argsort(~keep, dim=-1, stable=True)[..., :block]
        index = (index + length * torch.arange(n, device=d.device)[:, None]).reshape(batch, m)
    else:
        index = torch.argsort(~flat, dim=-1, stable=True)[:, :m]
    real = flat.gather(1, index)
    query = index // length
    left = d.reshape(batch, n * length, dim).gather(1, index[..., None].expand(-1, -1, dim)) * real[..., None]
    left_basis = right_basis = None
    if m < dim:
        left_basis, upper = torch.linalg.qr(left.mT)
        left = upper.mT
    if n < z.shape[-1]:
        right_basis, upper = torch.linalg.qr(z.mT)
        z = upper.mT
    right = z.gather(1, query[..., None].expand(-1, -1, z.shape[-1])) * real[..., None]
    size = d_norm.reshape(batch, -1).gather(1, index) * z_norm.gather(1, query)
    size = torch.where(real, size, torch.ones_like(size))
    b = torch.where(real, values.reshape(batch, -1).gather(1, index) / size, torch.zeros_like(size))
    scale = b.abs().amax(-1)
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    b = torch.where(real, b / scale[:, None], -torch.ones_like(b))
    rows = Rows(left.contiguous(), right.contiguous(), b, equal.reshape(batch, -1).gather(1, index) & real, real, z.contiguous() if blocks else None)
    dual_scale = real / size
    return rows, Reduction(index, dual_scale, scale, left_basis, right_basis)
