"""How a norm enters the interior point: as a ball of W or of M = A*(lam), described by a cone, or as a smooth power.

    SumEntry    the ball of M is a box    S = (1 - M, 1 + M) >= 0,  W = Y_1 - Y_2,            N(W) = sum Y
    MaxEntry    the ball of W is a box    S = (t - W, t + W) >= 0,  M = Y_1 - Y_2,  sum Y = 1,  N(W) = t
    Spectral    the ball of W             S = [[t I, -W], [-W^T, t I]] psd,  M = 2 Y_12,  tr Y = 1,  N(W) = t
    Entrywise   none                      M = |W|^(p-1) sign W

Written S = t e - F(W) and M = F*(Y) with the identity e of the cone; on the central path S and Y are inverse up to mu.
A change of the multipliers moves the weights by

    dW = w + Theta(A*(dlam)) + delta dt,        <delta, A*(dlam)> - kappa dt = rho.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from attsvm.svm.solvers.nuclear.rows import ReducedRows

_FEW = 8  # problems that are not worth loading compiled code for


@dataclass(eq=False)
class Linearized:
    """Newton's equations of the norm's part at one point, and the direction that was found in them."""

    omega: Tensor  #: Theta, entry by entry, ``[batch, d, dq]``
    scale: Any = None  #: what the cone's `scaling` gave
    delta: Any = None  #: what dt adds to dW; None where there is no t
    along: Any = None  #: e - F(delta), what dt adds to dS
    ds: Any = 0.0  #: direction of S, 0 before there is one
    dy: Any = 0.0  #: direction of Y, 0 before there is one
    bases: Any = None  #: of `Definite` alone: P, Q and the coupling of Theta
    angles: Any = None  #: of `Definite` alone: the vectors a and n, sines and cosines, of `folded`

    def theta(self, x: Tensor) -> Tensor:
        """Theta(X)."""
        if self.bases is None:
            return self.omega * x
        left, right, cross = self.bases
        turned = left.mT @ x @ right
        return left @ (self.omega * turned - _twin(cross, turned)) @ right.mT

    def normal(self, rows: ReducedRows) -> Tensor:
        """<A_k, Theta A_l>, ``[batch, m, m]``."""
        d, z, shared = rows.differences, rows.queries, rows.input_queries
        cross = torch.empty(0, 1, 1, dtype=d.dtype)
        if self.bases is not None:
            d, z, cross = d @ self.bases[0], z @ self.bases[1], self.bases[2]
        if shared is not None and len(rows) >= _FEW and d.device.type == "cpu":
            from attsvm.svm.solvers.interior.normal_kernel import normal_blocks  # Numba starts only where it is used

            shared = shared if self.bases is None else shared @ self.bases[1]
            out = d.new_empty(len(rows), d.shape[1], d.shape[1])
            normal_blocks(*(x.contiguous().numpy() for x in (d, shared, self.omega, cross)), out.numpy())
            return out
        each = d[..., :, None] * z[..., None, :]
        moved = self.omega[:, None] * each
        if self.bases is not None:
            moved -= _twin(cross[:, None], each)
        return each.flatten(2) @ moved.flatten(2).mT


def _twin(cross: Tensor, x: Tensor) -> Tensor:
    """cross_ab x_ba on the square part that has a twin, 0 elsewhere."""
    r = min(x.shape[-2:])
    out = torch.zeros_like(x)
    out[..., :r, :r] = cross[..., :r, :r] * x[..., :r, :r].mT
    return out


class Box:
    """The cone of pairs of non-negative matrices, ``[batch, 2, d, dq]``."""

    def units(self, s: Tensor) -> int:
        """<e, e>."""
        return s[0].numel()

    def lift(self, t: Tensor, x: Tensor) -> Tensor:
        """t e - F(X)."""
        t = t[:, None, None]
        return torch.stack([t - x, t + x], dim=1)

    def fold(self, y: Tensor) -> Tensor:
        """F*(Y)."""
        return y[:, 0] - y[:, 1]

    def trace(self, y: Tensor) -> Tensor:
        """<e, Y>."""
        return y.sum((1, 2, 3))

    def centre(self, s: Tensor) -> Tensor:
        """S^-1."""
        return 1 / s

    def scaling(self, s: Tensor, y: Tensor) -> tuple[Any, Tensor]:
        """What the methods below need of the pair, and where it is not in the cone."""
        return (s, y), torch.zeros(len(s), dtype=torch.bool, device=s.device)

    def scaled(self, scale: Any, x: Tensor) -> Tensor:
        """G X G."""
        s, y = scale
        return y / s * x

    def towards(self, line: Linearized, mu: Tensor) -> tuple[Tensor, Tensor]:
        """g of dY = g - G dS G, to the centre mu, less the product of the predictor; and Theta(F*(g))."""
        s, y = line.scale
        g = (mu[:, None, None, None] - line.ds * line.dy) / s - y
        return g, line.omega * self.fold(g)

    def longest(self, scale: Any, ds: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
        """How far S and Y may go."""
        s, y = scale
        return longest(s.flatten(1), ds.flatten(1)), longest(y.flatten(1), dy.flatten(1))

    def linearized(self, scale: Any, of_duals: bool) -> Linearized:
        """Theta and, where the ball is that of W, the part of t."""
        ratio = scale[1] / scale[0]
        total = ratio.sum(1)
        if of_duals:
            return Linearized(total, scale)
        along = 2 * ratio.flip(1) / total[:, None]
        return Linearized(1 / total, scale, (along[:, 1] - along[:, 0]) / 2, along)


class Definite:
    """The cone of positive semidefinite matrices ``[batch, d + dq, d + dq]``, with Nesterov and Todd's scaling."""

    def __init__(self, d: int) -> None:
        self.d = d

    def units(self, s: Tensor) -> int:
        return s.shape[-1]

    def lift(self, t: Tensor, x: Tensor) -> Tensor:
        _, d, dq = x.shape
        out = torch.diag_embed(t[:, None].expand(-1, d + dq))
        out[:, :d, d:], out[:, d:, :d] = -x, -x.mT
        return out

    def fold(self, y: Tensor) -> Tensor:
        return 2 * y[:, : self.d, self.d :]

    def trace(self, y: Tensor) -> Tensor:
        return y.diagonal(dim1=-2, dim2=-1).sum(-1)

    def centre(self, s: Tensor) -> Tensor:
        return torch.linalg.inv(s)

    def scaling(self, s: Tensor, y: Tensor) -> tuple[Any, Tensor]:
        """R, R^-1 and v with R^T S R = R^-1 Y R^-T = diag(v); G = R R^T."""
        (low, bad), (high, worse) = torch.linalg.cholesky_ex(s), torch.linalg.cholesky_ex(y)
        fail = (bad != 0) | (worse != 0)
        eye = torch.eye(s.shape[-1], dtype=s.dtype, device=s.device)
        low, high = (torch.where(fail[:, None, None], eye, x) for x in (low, high))
        left, v, right = torch.linalg.svd(high.mT @ low)
        root = v.clamp(min=1e-300).sqrt()
        r, inverse = high @ left / root[:, None], right @ low.mT / root[..., None]
        return (r, inverse, v), fail | (v[:, -1] <= 0)

    def scaled(self, scale: Any, x: Tensor) -> Tensor:
        r = scale[0]
        return r @ (r.mT @ x @ r) @ r.mT

    def towards(self, line: Linearized, mu: Tensor) -> tuple[Tensor, Tensor]:
        r, inverse, v = line.scale
        e = torch.diag_embed(mu[:, None] / v - v)
        if isinstance(line.ds, Tensor):
            product = (r.mT @ line.ds) @ (line.dy @ inverse.mT)
            e = e - (product + product.mT) / (v[:, :, None] + v[:, None, :])
        return r @ e @ r.mT, self.folded(line, e)

    def longest(self, scale: Any, ds: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
        r, inverse, v = scale
        root = v.rsqrt()
        both = torch.stack([r.mT @ ds @ r, inverse @ dy @ inverse.mT]) * root[:, :, None] * root[:, None, :]
        low = torch.linalg.eigvalsh(torch.nan_to_num(both, nan=0.0, posinf=0.0, neginf=0.0))[..., 0]
        both = torch.where(low < 0, -1 / low, torch.inf)
        return both[0], both[1]

    def linearized(self, scale: Any, of_duals: bool) -> Linearized:
        """Theta inverts X -> 2 (G_11 X G_22 + G_12 X^T G_12), G = R R^T; there are at least as many rows as columns.

        With R_1^T = Q_1 T_1 and R_2^T = Q_2 T_2 it is X~ -> 2 (X~ + C X~^T C) of X~ = T_1 X T_2^T, C = Q_1^T Q_2, whose
        singular values are the cosines c of angles that tend to 0. Their sines come from the complement of Q_1, so that
        1 - c^2 keeps its digits, and Theta_ab = omega_ab (X_ab - c_a c_b X_ba), omega_ab = 1 / (2 - 2 c_a^2 c_b^2).
        """
        r, d = scale[0], self.d
        dq = r.shape[-1] - d
        first, one = torch.linalg.qr(r[:, :d].mT, mode="complete")
        second, two = torch.linalg.qr(r[:, d:].mT)
        normal, sine, right = torch.linalg.svd(first[..., d:].mT @ second)
        normal, sine, right = first[..., d:] @ normal.flip(-1), sine.flip(-1).clamp(max=1.0), right.mT.flip(-1)
        left, size = torch.linalg.qr(first[..., :d].mT @ second @ right, mode="complete")
        size = size[:, :dq].diagonal(dim1=-2, dim2=-1)
        left = torch.cat([left[..., :dq] * torch.where(size < 0, -1.0, 1.0)[:, None], left[..., dq:]], dim=-1)
        rest = torch.nn.functional.pad(sine**2, (0, d - dq), value=1.0)[..., None]
        omega = 0.5 / (rest + (1 - rest) * rest[:, :dq].mT)
        c = (1 - rest).sqrt()
        bases = (
            torch.linalg.solve_triangular(one[:, :d], left, upper=True),
            torch.linalg.solve_triangular(two, right, upper=True),
            omega * c * c[:, :dq].mT,
        )
        angles = (first[..., :d] @ left, normal, sine, c[:, :dq, 0])
        line = Linearized(omega, scale, bases=bases, angles=angles)
        delta = self.folded(line, r.mT @ r)
        return replace(line, delta=delta, along=self.lift(torch.ones_like(delta[:, 0, 0]), delta))

    def folded(self, line: Linearized, e: Tensor) -> Tensor:
        """Theta(F*(R E R^T)), digits kept where Theta is large.

        In the bases F*(R E R^T) is 2 a^T E b with b_j = c_j a_j + s_j n_j, a and b the vectors of the angles. Theta
        divides its symmetric part by 2 (1 + c_i c_j) and the other, nearly 0, by 2 (1 - c_i c_j).
        """
        a, normal, s, c = line.angles
        k = s.shape[-1]
        inner, outer = a.mT @ e @ a[..., :k], a.mT @ e @ normal
        out = inner * c[:, None] + outer * s[:, None]
        square, outer = out[:, :k], outer[:, :k] * s[:, None]
        square = square + square.mT
        c, s = c[:, :, None], s[:, :, None]
        other = inner[:, :k] * ((s - s.mT) * (s + s.mT) / (c + c.mT).clamp(min=1e-30)) + outer - outer.mT
        plus = 1 + c * c.mT
        out[:, :k] = 0.5 * (square / plus + other * (2 * line.omega[:, :k]) * plus)
        return line.bases[0] @ out @ line.bases[1].mT


def longest(x: Tensor, change: Tensor) -> Tensor:
    """Largest step with x + step change >= 0, ``[batch]``."""
    return torch.where(change < 0, -x / change, torch.inf).amin(-1)
