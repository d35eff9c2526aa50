"""Batched primal-dual interior point for norms that are balls of a cone, or powers (`geometry`).

    min N(W)   s.t.   d_k^T W z_k - sigma_k = b_k,  sigma >= 0         lam_k sigma_k = mu,  lam >= 0

Equality rows have no sigma and a lam of any sign. Newton's equations reduce to a matrix of order m,
A Theta A^T + diag(sigma / lam), and a rank-one term where the norm has a t.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from attsvm.norms import Entrywise, MaxEntry, Norm, Spectral, SpectralOfRank, SumEntry
from attsvm.svm.problem import AttentionSVM
from attsvm.svm.solvers.base import ProgressReport, RawSolution, Solver
from attsvm.svm.solvers.interior.geometry import Box, Definite, Linearized, longest
from attsvm.svm.solvers.nuclear.rows import ReducedRows, normalise

_CHUNK = 6e5  # numbers at a time: they should stay in a cache
_STEPS = 80
_TARGET = 3e-12  # error at which a problem is done; in a smooth norm, whose weights are known to its root, less
_LIMIT = 1e7  # dual value, in units of a first guess, beyond which no solution is expected
_TINY = 1e-300


@dataclass(frozen=True)
class InteriorPoint(Solver):
    """Batched primal-dual interior point for `Spectral`, `MaxEntry`, `SumEntry` and `Entrywise`.

    `SpectralOfRank` too where the rank is no limit: solutions in the spans have rank at most min(n, d, dq).
    """

    norms = (Spectral, MaxEntry, SumEntry, Entrywise)
    accuracy: float = 1e-8

    def refusal(self, problem: AttentionSVM, norm: Norm) -> str | None:
        if isinstance(norm, SpectralOfRank):
            least = min(problem.data.n, problem.data.d, problem.data.dq)
            return None if norm.rank >= least else f"it solves SpectralOfRank from rank {least} on"
        return super().refusal(problem, norm)

    def solve(self, problem: AttentionSVM, norm: Norm, initial: Tensor | None, progress: ProgressReport) -> RawSolution:
        norm = Spectral() if isinstance(norm, SpectralOfRank) else norm
        count, size = problem.batch_shape[0], problem.data.d * problem.data.dq
        chunk = max(1, int(_CHUNK / (problem.data.n**2 * problem.data.T**2 + 10 * size)))
        parts = [_solve(problem[first : first + chunk], norm) for first in range(0, count, chunk)]
        return RawSolution(*(torch.cat(part) for part in zip(*parts, strict=True)))


def _solve(problem: AttentionSVM, norm: Norm) -> tuple[Tensor, Tensor, Tensor]:
    """Weights, duals and iterations; a zero row holds by itself, or is a ray by itself."""
    duals, where, reduced, way = normalise(problem, norm.unitarily_invariant)
    weights = duals.new_zeros(len(duals), problem.data.d, problem.data.dq)
    iterations = torch.zeros(len(duals), dtype=torch.long, device=duals.device)
    if reduced is not None and way is not None:
        turn = isinstance(norm, Spectral) and reduced.differences.shape[-1] < reduced.queries.shape[-1]
        if turn:  # W^T: its rows come one by one, since blocks share their queries
            reduced = replace(reduced, differences=reduced.queries, queries=reduced.differences, input_queries=None)
        found = InteriorMethod(reduced, norm).run(reduced)
        weights[where] = way.weights(found.best_weights.mT if turn else found.best_weights)
        duals[where] = way.duals(found.best_duals, *duals.shape[1:])
        iterations[where] = found.iterations
    return weights, duals, iterations


@dataclass(eq=False)
class Iterate:
    """State for a batch, every tensor ``[batch, ...]``: multipliers, weights, the cone's pair, the best pair so far.

    `unit` is the norm of a first guess, in which right-hand sides and weights are measured.
    """

    unit: Tensor
    duals: Tensor
    slacks: Tensor
    weights: Tensor
    t: Tensor
    s: Tensor
    y: Tensor
    best_weights: Tensor
    best_duals: Tensor
    error: Tensor
    since: Tensor
    step: Tensor
    iterations: Tensor
    done: Tensor

    def __getitem__(self, index: Tensor) -> Iterate:
        return Iterate(*(getattr(self, field.name)[index] for field in fields(self)))

    def store(self, index: Tensor, other: Iterate) -> None:
        """Overwrite the problems `index` by those of `other`."""
        for field in fields(self):
            getattr(self, field.name)[index] = getattr(other, field.name)


class InteriorMethod:
    """The method for one norm and one shape of problem; `of_duals`: the ball is that of M, not that of W."""

    def __init__(self, rows: ReducedRows, norm: Norm) -> None:
        self.norm = norm
        self.cone: Any = Definite(rows.differences.shape[-1]) if isinstance(norm, Spectral) else Box()
        self.of_duals = isinstance(norm, SumEntry)
        self.power = norm.p if isinstance(norm, Entrywise) else 0.0

    def run(self, rows: ReducedRows) -> Iterate:
        """Every problem to round-off, or as far as it goes."""
        out = self._start(rows)
        where = torch.arange(len(rows), device=out.t.device)
        now = out[where]
        for _ in range(_STEPS):
            self._advance(rows, now)
            go = ~now.done
            if int(go.sum()) < 0.75 * len(where):
                out.store(where, now)
                rows, now, where = rows[go], now[go], where[go]
            if len(where) == 0:
                return out
        out.store(where, now)
        return out

    def _start(self, rows: ReducedRows) -> Iterate:
        """A first guess with all margins b, where the rows allow it, and a centred pair."""
        b, free, gram = rows.right_hand_side, rows.equalities, rows.gram()
        gram.diagonal(dim1=-2, dim2=-1).add_(1e-6)
        guess = torch.linalg.solve_ex(gram, torch.where(rows.present, b, 0.0)[..., None])[0][..., 0]
        weights = rows.combine(guess)
        unit = self.norm.value(weights)
        unit = torch.where(torch.isfinite(unit) & (unit > 0), unit, 1.0)
        weights, b = weights / unit[:, None, None], b / unit[:, None]
        ones = torch.ones_like(unit)
        duals = torch.where(free, 0.0, (0.5 / (b.abs() * rows.present).sum(-1, keepdim=True)).expand_as(b))
        if self.of_duals or 0 < self.power < 2:
            size = self.norm.dual_value(rows.combine(duals)).clamp(min=_TINY)
            duals = duals * ((0.5 if self.of_duals else 1.0) / size)[:, None]
        if self.power:
            s = y = b.new_zeros(len(rows), 0)
            mu = 1.0 / (~free).sum(-1).clamp(min=1)
        else:
            s = self.cone.lift(ones, rows.combine(duals)) if self.of_duals else self.cone.lift(2 * ones, weights)
            y = self.cone.centre(s)
            y = y / _as(self.cone.trace(y), y)
            mu = (s * y).flatten(1).sum(1) / self.cone.units(s)
        slacks = torch.where(free, 0.0, mu[:, None] / duals.clamp(min=_TINY))
        count = torch.zeros_like(unit, dtype=torch.long)
        return Iterate(
            unit, duals, slacks, weights, 2 * ones, s, y, torch.zeros_like(weights), torch.zeros_like(duals),
            torch.full_like(unit, torch.inf), count, ones, count.clone(), count > 0,
        )  # fmt: skip

    def _advance(self, rows: ReducedRows, it: Iterate) -> None:
        """One predictor-corrector step of every problem, in place; those that fail stay where they are, done."""
        free, b = rows.equalities, rows.right_hand_side / it.unit[:, None]
        lam, sigma = it.duals, it.slacks
        m = rows.combine(lam)
        if self.of_duals:
            it.weights = self.cone.fold(it.y)
        elif 0 < self.power < 2:
            it.weights = _signed_power(m, 1 / (self.power - 1))
        missing = b - rows.margins(it.weights) + sigma
        self._judge(rows, it, b, m, missing)
        total, count = (lam * sigma).sum(-1), (~free).sum(-1)
        if self.power:
            mu = total / count.clamp(min=1)
            fail = torch.zeros_like(it.done)
            line = Linearized(self._slope(it.weights, m, mu))
            residual = m - _signed_power(it.weights, self.power - 1) if self.power >= 2 else torch.zeros_like(m)
        else:
            mu = ((it.s * it.y).flatten(1).sum(1) + total) / (self.cone.units(it.s) + count)
            scale, fail = self.cone.scaling(it.s, it.y)
            line = self.cone.linearized(scale, self.of_duals)
            residual = torch.zeros_like(m) if self.of_duals else m - self.cone.fold(it.y)
        h, inverse = line.normal(rows), torch.where(free, 0.0, 1 / lam)
        ratio, shift, kappa = sigma * inverse, torch.zeros_like(b), torch.ones_like(mu)
        if line.delta is not None:
            kappa = (line.along * self.cone.scaled(line.scale, line.along)).flatten(1).sum(1)
            shift = rows.margins(line.delta)
            h += shift[:, :, None] * (shift / kappa[:, None])[:, None, :]
        diagonal = h.diagonal(dim1=-2, dim2=-1)
        diagonal += ratio
        size = diagonal.clamp(min=_TINY).rsqrt()
        h.mul_(size[:, :, None]).mul_(size[:, None, :])
        h.diagonal(dim1=-2, dim2=-1).add_(1e-14)
        factor, bad = torch.linalg.cholesky_ex(h)
        fail |= bad != 0

        dlam, dsigma, dt, rho = torch.zeros_like(lam), torch.zeros_like(lam), torch.zeros_like(mu), torch.zeros_like(mu)
        follow = line.theta(residual)
        bold = 0.1 if isinstance(self.cone, Definite) else 0.01  # semidefinite steps lose digits off the central path
        reduction = torch.where(it.step < 0.1, 0.5, torch.where(it.step > 0.9, bold, 0.1))
        for target in (torch.zeros_like(mu), reduction * mu):
            centre = torch.where(free, 0.0, (target[:, None] - dlam * dsigma) * inverse - sigma)
            w = follow
            if not self.power:
                g, pull = self.cone.towards(line, target)
                w = self.cone.fold(g) if self.of_duals else follow - pull
            if line.delta is not None:
                rho = 1 - self.cone.trace(it.y) - (line.along * g).flatten(1).sum(1)
                rho = rho - (line.delta * residual).sum((1, 2))
            right = ((missing + centre - rows.margins(w) + shift * (rho / kappa)[:, None]) * size)[..., None]
            x = torch.cholesky_solve(right, factor)
            if isinstance(self.cone, Definite):
                x = x + torch.cholesky_solve(right - h @ x, factor)
            dlam = x[..., 0] * size
            dm = rows.combine(dlam)
            dw = w + line.theta(dm)
            if line.delta is not None:
                dt = ((shift * dlam).sum(-1) - rho) / kappa
                dw = dw + dt[:, None, None] * line.delta
            dsigma = torch.where(free, 0.0, centre - ratio * dlam)
            if not self.power:
                line.ds = self.cone.lift(dt, dm if self.of_duals else dw)
                line.dy = g - self.cone.scaled(line.scale, line.ds)

        dual, primal = (longest(x, torch.where(free, 0.0, dx)) for x, dx in ((lam, dlam), (sigma, dsigma)))
        if self.power:
            dual = primal = torch.minimum(dual, primal)
        else:
            of_s, of_y = self.cone.longest(line.scale, line.ds, line.dy)
            of_s, of_y = (of_y, of_s) if self.of_duals else (of_s, of_y)
            primal, dual = torch.minimum(primal, of_s), torch.minimum(dual, of_y)
        it.step = torch.minimum(primal, dual).clamp(max=1.0)
        fail |= ~(it.step > 1e-9) | ~torch.isfinite(dlam).all(-1)
        it.done, it.iterations = it.done | fail, it.iterations + (~it.done & ~fail).long()
        keep = torch.where(fail, 0.0, 0.9 + 0.09 * it.step)
        primal, dual = ((keep * x.clamp(max=1e3)).clamp(max=1.0) for x in (primal, dual))
        it.duals, it.slacks = _moved(lam, dual, dlam), _moved(sigma, primal, dsigma)
        it.weights, it.t = _moved(it.weights, primal, dw), _moved(it.t, primal, dt)
        if not self.power:
            it.y = _moved(it.y, primal if self.of_duals else dual, line.dy)
            ball = (torch.ones_like(mu), rows.combine(it.duals)) if self.of_duals else (it.t, it.weights)
            it.s = self.cone.lift(*ball)

    def _slope(self, weights: Tensor, m: Tensor, mu: Tensor) -> Tensor:
        """dW / dM of M = |W|^(p-1) sign W, entry by entry and kept finite; with p < 2 from M, which is smooth in it."""
        p = self.power
        if p < 2:
            return m.abs() ** ((2 - p) / (p - 1)) / (p - 1) + 1e-12
        return 1 / ((p - 1) * weights.abs() ** (p - 2) + 1e-12 + 1e-2 * mu[:, None, None])

    def _judge(self, rows: ReducedRows, it: Iterate, b: Tensor, m: Tensor, missing: Tensor) -> None:
        """Keep the pair if it is the best so far, and say who is done."""
        primal, dual = self.norm.value(it.weights), (b * it.duals * rows.present).sum(-1)
        dual = dual / self.norm.dual_value(m).clamp(min=_TINY)
        error = (primal - dual).abs() / torch.maximum(primal, dual).clamp(min=_TINY)
        error = error + (missing * rows.present).abs().amax(-1) / (b * rows.present).abs().amax(-1)
        error = error.nan_to_num(nan=torch.inf)
        better = (error < it.error) & ~it.done
        it.since = torch.where(error < 0.5 * it.error, 0, it.since + 1)
        it.error = torch.where(better, error, it.error)
        it.best_weights = torch.where(better[:, None, None], it.weights * it.unit[:, None, None], it.best_weights)
        it.best_duals = torch.where(better[:, None], it.duals, it.best_duals)
        stuck = (it.since >= 25) | ((it.since >= 6) & (it.error < 1e-7)) | ((it.since >= 3) & (it.error < 1e-9))
        it.done = it.done | (it.error < (_TARGET / 30 if self.power else _TARGET)) | (dual > _LIMIT) | stuck


def _as(x: Tensor, like: Tensor) -> Tensor:
    """One number for each problem, shaped to multiply `like`."""
    return x.view(-1, *[1] * (like.ndim - 1))


def _moved(x: Tensor, step: Tensor, change: Tensor) -> Tensor:
    """x + step change; where the step is 0 the change may be anything."""
    step = _as(step, x)
    return torch.where(step > 0, x + step * change, x)


def _signed_power(x: Tensor, power: float) -> Tensor:
    """|x|^power sign x."""
    return x.sign() * x.abs() ** power
