"""Primal-dual pairs of nuclear attention SVMs, and the certificate that judges them in normalised rows."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from attsvm.svm.solvers.nuclear.interior import Iterate
from attsvm.svm.solvers.nuclear.rows import Rows

# Singular values of M this close to 1 belong to the face of the dual ball on which every solution lies.
_FACE = 1e-7


@dataclass(eq=False)
class Candidate:
    """A primal-dual pair in normalised rows, scaled to be feasible, with its error.

    Attributes:
        weights: ``[batch, rx, rz]``.
        duals: ``[batch, m]``.
        error: relative gap plus largest relative violation, ``[batch]``.
    """

    weights: Tensor
    duals: Tensor
    error: Tensor

    @classmethod
    def nothing(cls, rows: Rows) -> Candidate:
        """W = 0, lam = 0, with infinite error: anything improves it."""
        weights = rows.left.new_zeros(len(rows), rows.left.shape[-1], rows.right.shape[-1])
        error = torch.full_like(rows.values[:, 0], torch.inf)
        return cls(weights, torch.zeros_like(rows.values), error)

    def improve(self, where: Tensor, other: Candidate) -> None:
        """Take `other` (for the problems `where`) wherever its error is smaller."""
        better = other.error < self.error[where]
        index = where[better]
        for field in fields(self):
            getattr(self, field.name)[index] = getattr(other, field.name)[better]


def certify(rows: Rows, weights: Tensor, duals: Tensor) -> Candidate:
    """Clip the multipliers, divide them by ||M||, divide W by its smallest margin where allowed, and measure the error.

    W may be rescaled when every row asks for a positive margin; otherwise the violation stays and counts as error.
    """
    b, real = rows.values, rows.real
    duals = torch.where(rows.equal, duals, duals.clamp(min=0.0)) * real
    sizes = _singular_values(finite(torch.cat([rows.adjoint(duals), weights]).clamp(-1e100, 1e100)))
    spectral, nuclear = sizes[: len(rows), 0], sizes[len(rows) :].sum(-1)
    duals = duals / spectral.clamp(min=1.0)[:, None]
    margins = rows.margins(weights)
    scalable = (~real | (~rows.equal & (b > 0))).all(-1)
    theta = torch.where(real, margins / b, torch.inf).amin(-1)
    theta = torch.where(scalable & (theta > 0) & torch.isfinite(theta), theta, 1.0)
    error = _error(rows, margins / theta[:, None], nuclear / theta, duals)
    return Candidate(weights / theta[:, None, None], duals, error)


def rounding(rows: Rows, weights: Tensor) -> Tensor:
    """Largest relative error that float64 may make in a tight margin, 8 eps ||W||_F / |b_k| in unit rows.

    No verdict can be sharper.
    """
    b, doubt = rows.values, 8 * torch.finfo(weights.dtype).eps * weights.flatten(1).norm(dim=1)[:, None]
    tight = rows.real & (b != 0) & (rows.margins(weights) < b + doubt)
    return torch.where(tight, doubt / b.abs(), 0.0).amax(-1)


def from_iterate(rows: Rows, it: Iterate) -> Candidate:
    """The interior point's own pair: W = 2 Y_12."""
    rx = rows.left.shape[-1]
    return certify(rows, 2 * it.y[:, :rx, rx:], it.duals)


def unique(rows: Rows, pair: Candidate) -> Tensor:
    """Where W is proved to be the only solution, ``[batch]``.

    Every solution is E B E^T, E the null space of S = I - F(lam), and meets rows with lam_k > 0 with equality. So W is
    unique when L_k = svec(E^T F_k E) (rows with lam_k > 0, E from every singular value of M close to 1) has full column
    rank.
    """
    u, s, vh = torch.linalg.svd(rows.adjoint(pair.duals))
    held = rows.equal | (pair.duals > 1e-9 * pair.duals.amax(-1, keepdim=True))
    count = (s > 1 - _FACE).sum(-1)
    out = torch.zeros_like(rows.equal[:, 0])
    for r in sorted(set(count.tolist())):
        if r == 0:
            continue
        where = torch.nonzero(count == r)[:, 0]
        i, j = torch.triu_indices(r, r, device=u.device)
        alpha, beta = rows.left[where] @ u[where][..., :r], rows.right[where] @ vh[where].mT[..., :r]
        pairs = (alpha[..., i] * beta[..., j] + alpha[..., j] * beta[..., i]) * held[where][..., None]
        sizes = torch.linalg.eigvalsh(pairs.mT @ pairs)
        out[where] = sizes[:, 0] > 1e-11 * sizes[:, -1]
    return out


def finite(x: Tensor) -> Tensor:
    """x with 0 in place of NaN and infinities: decompositions raise on those."""
    return torch.nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0)


def _error(rows: Rows, margins: Tensor, nuclear: Tensor, duals: Tensor) -> Tensor:
    """Relative gap plus the largest violation, relative to b_k (in normalised rows where b_k = 0)."""
    b = rows.values
    slack = margins - b
    violation = torch.where(rows.equal, slack.abs(), -slack) / torch.where(b == 0, 1.0, b.abs())
    violation = torch.where(rows.real, violation, 0.0).amax(-1).clamp(min=0.0)
    value = (b * duals).sum(-1)
    gap = (nuclear - value).abs() / torch.maximum(nuclear, value.abs()).clamp(min=1e-300)
    return torch.nan_to_num(gap + violation, nan=torch.inf)


def _singular_values(x: Tensor) -> Tensor:
    """On CUDA through the full decomposition, the only one that is batched for small rectangular matrices."""
    return torch.linalg.svdvals(x) if x.device.type == "cpu" else torch.linalg.svd(x)[1]
