"""The search along a regularization path: where to start at each radius, what to keep, what to report."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attsvm.attention import Head, LinearHead, Loss
from attsvm.attention.scores import flat_scores
from attsvm.data import TokenDataset
from attsvm.data.streams import Purpose, streams
from attsvm.norms import Entrywise, Frobenius, Norm, Nuclear
from attsvm.norms.direction import direction_distance
from attsvm.svm import AttentionSVM, label_svm, solve
from attsvm.theory.cones import AngleCone
from attsvm.theory.paths.charts import Chart, FactorChart, MatrixChart, reduced_spans, row_chart, whole_spans
from attsvm.theory.paths.landscapes import EdgeLandscape, HeadLandscape, Landscape, WeightsLandscape, across
from attsvm.theory.paths.solvers import (
    PowerBall,
    cap_residual,
    newton_in_ball,
    onto_cap,
    projected_gradient,
    tangent_part,
)

_RATIO = 10**0.5  # radii grow at most by this factor from one solve to the next
_SATURATED = 30.0  # logits this far apart keep the selection a start has; fresh random starts no longer help
_FRESH, _CARRIED = 32, 8  # further starts where the best tokens are not separable: drawn at each radius, and kept
_ELSEWHERE = 1e-3  # 1 - cosine from which two directions count as different
_LOOSE, _TIGHT, _GUIDE = 1e-3, 1e-4, 1e-2  # residual times radius: called converged, aimed at, on the way


@dataclass(frozen=True, eq=False)
class Found:
    """The best point of one radius; first axis the elements."""

    weights: Float[Tensor, "elements d dq"]
    head: Float[Tensor, "elements dv"] | None
    risk: Float[Tensor, "elements"]
    log_excess: Float[Tensor, "elements"] | None
    attention: Float[Tensor, "elements n T"]
    log_attention: Float[Tensor, "elements n T"]
    residual: Float[Tensor, "elements"]
    converged: Bool[Tensor, "elements"]
    on_boundary: Bool[Tensor, "elements"]
    at_cone_edge: Bool[Tensor, "elements"]
    starts: Int[Tensor, "elements"]
    elsewhere: Int[Tensor, "elements"]
    risk_spread: Float[Tensor, "elements"]


@dataclass(eq=False)
class Search:
    """The search along a path: for every element, several chains of weights side by side.

    One chain continues the path so far, one begins at the max-margin direction of the best tokens (or at the centre of
    the cone), and `restarts` chains begin at random. At each radius every chain is solved, the lowest risk is kept, and
    chains that end elsewhere are counted. Chains and elements share one axis, ``[starts * elements]``.

    Where no weights are known that separate the best tokens, the risk has no direction to tend to and many local minima
    that compete as the ball grows. There `_searched_widely` adds `_FRESH` random starts at each radius, and carries the
    `_CARRIED` lowest minima of different directions on to the next. Still, nothing proves that a minimum is the lowest.
    """

    data: TokenDataset
    given_head: Head | None
    loss: Loss
    norm: Norm
    rank: int | None
    restarts: int
    keys: Sequence[tuple[int, int]]
    cone: AngleCone | None
    train_head: bool
    iterations: int | None
    starts: int = field(init=False)

    def __post_init__(self) -> None:
        if self.train_head and self.given_head is not None and not isinstance(self.given_head, LinearHead):
            raise ValueError(f"train_head needs a linear prediction head; got {type(self.given_head).__name__}")
        if self.cone is not None and not isinstance(self.norm, Frobenius):
            raise ValueError(f"a cone goes with the Frobenius norm; got {self.norm!r}")
        self.count = self.data.tokens.shape[0]
        self.starts = 2 + self.restarts
        self.head: Head = self.given_head if self.given_head is not None else LinearHead(self._mean_head())
        self.chart = self._chart()
        index = torch.arange(self.count, device=self.data.device).repeat(self.starts)
        self.landscape = WeightsLandscape.of(self.data, self.head, self.loss, self.chart).take(index)
        self.rows = self.chart.row_size
        self.streams = streams(self.keys, (self.count,), purpose=Purpose.PATH_START)
        self.centre, self.head_centre, self.separable = self._max_margin()
        wide = ~self.separable if self.cone is None and not self.train_head else torch.zeros_like(self.separable)
        self.hard = torch.nonzero(wide).flatten()
        self.carried: Tensor | None = None  # the lowest minima of the last radius, ``[carried, hard, d, dq]``

    def _chart(self) -> Chart:
        if isinstance(self.norm, Nuclear):
            small, left, right = reduced_spans(self.data)
            full = min(left.shape[-1], right.shape[-1])
            return FactorChart(small, left, right, min(full, self.rank or full))
        if isinstance(self.norm, Frobenius) and self.cone is None:
            return row_chart(self.data)
        return MatrixChart(*whole_spans(self.data))

    @property
    def _cut(self) -> bool:
        """Whether the rank asked for is below what the spans allow."""
        return isinstance(self.chart, FactorChart) and self.chart.rank < min(
            self.chart.left.shape[-1], self.chart.right.shape[-1]
        )

    def _mean_head(self) -> Tensor:
        """The mean of Y_i times the uniform mixture of input i: the first direction of a trained head."""
        real = self.data.real.to(self.data.dtype)
        mixed = torch.einsum("bnt,bntd->bnd", real / real.sum(-1, keepdim=True), self.data.input_values)
        return (self.data.labels.unsqueeze(-1) * mixed).mean(-2)

    def _max_margin(self) -> tuple[Tensor, Tensor | None, Bool[Tensor, "elements"]]:
        """Max-margin weights of the best tokens, or the centre of the cone; v_mm where the head is trained.

        Zero where there are none. The last says for which elements weights that separate the best tokens are in hand;
        a cone does not ask.
        """
        if self.cone is not None:
            return self.cone.direction, None, torch.ones(self.count, dtype=torch.bool, device=self.data.device)
        best = flat_scores(self.data, self.head).argmax(-1)
        problem = AttentionSVM(self.data, best)
        solution = solve(problem, self.norm)
        separable = (solution.certificate.min_margin > 0) | ~problem.rows.flatten(1).any(-1)
        weights = torch.nan_to_num(solution.weights)
        if not self.train_head:
            return weights, None, separable
        vector = label_svm(self.data, best).vector
        return weights, torch.where(torch.isfinite(vector), vector, self._mean_head()), separable

    def _random(self) -> Float[Tensor, "restarts elements d dq"]:
        shape = (self.restarts, self.data.d, self.data.dq)
        drawn = [torch.from_numpy(one.standard_normal(shape)) for one in self.streams]
        return torch.stack(drawn, 1).to(self.data.device)

    def _sized(self, weights: Tensor, radius: float) -> Tensor:
        """Weights scaled to the boundary; zero where they are zero."""
        value = self.norm.value(weights)[..., None, None]
        return weights * torch.where(value > 0, radius / torch.where(value > 0, value, 1.0), 0.0)

    def _starting_weights(self, radius: float, past: list[tuple[float, Tensor, Tensor]]) -> Tensor:
        """``[starts, elements, d, dq]`` for this radius; `past` holds radius, chains and best point of those before."""
        if not past:
            # At a vanishing radius the minimiser is the steepest descent direction at zero.
            chart = MatrixChart(*whole_spans(self.data))
            plain = WeightsLandscape.of(self.data, self.head, self.loss, chart)
            zero = torch.zeros_like(self.centre).flatten(-2)
            path = self.norm.steepest(-plain.gradient_in_weights(zero).mantissa) if self.cone is None else self.centre
        else:
            path = self._extrapolated(radius, [(size, best) for size, _, best in past])
        chains = [path, torch.where((self.centre == 0).all(-1).all(-1)[:, None, None], path, self.centre)]
        if self.restarts:
            fresh = self._sized(self._random(), 1.0)
            if self.cone is not None:
                fresh = self.centre + math.sqrt(self.cone.opening) * fresh
            chains += list(
                fresh
                if not past or radius * float(self.rows.max()) <= _SATURATED
                else self._extrapolated(radius, [(size, every[2:]) for size, every, _ in past])
            )
        return self._sized(torch.stack(chains), radius)

    def _extrapolated(self, radius: float, past: list[tuple[float, Tensor]]) -> Tensor:
        """Along the secant of the last two points, on which the ratios of the probabilities stay as they are."""
        (last, here), before = past[-1], past[-2] if len(past) > 1 else None
        if before is None:
            return here
        secant = here + (radius - last) / (last - before[0]) * (here - before[1])
        near = direction_distance(here, before[1]) < 0.05
        return torch.where(near[..., None, None], secant, here)

    def follow(self, radii: Tensor, limits: Tensor | None, progress: Callable[[int, int], None] | None) -> list[Found]:
        """The best point of every radius."""
        stages = _stages(radii.tolist(), None if limits is None else limits.tolist(), float(self.rows.max()))
        past: list[tuple[float, Tensor, Tensor]] = []
        head: Tensor | None = None
        found = []
        for done, (radius, limit, wanted) in enumerate(stages):
            start = self._starting_weights(radius, past).reshape(1, -1, self.data.d, self.data.dq)
            size = torch.full((start.shape[1],), radius, dtype=torch.float64, device=self.data.device)
            theta = self.landscape.chart.coordinates(start)[0]
            if limit is None:
                theta, landscape = self._solve(self.landscape, theta, size, wanted), self.landscape
            else:
                theta, head, landscape = self._solve_joint(theta, size, head, limit, wanted)
            point, chains = self._best(landscape, theta, head, size, limit, self.count)
            if self.hard.numel():
                point = self._searched_widely(point, chains, radius, wanted)
            past = [*past[-1:], (radius, chains, point.weights)]
            if wanted:
                found.append(point)
            if progress is not None:
                progress(done + 1, len(stages))
        return found

    def _solve(
        self, landscape: WeightsLandscape, theta: Tensor, radius: Tensor, wanted: bool, share: float = 1.0
    ) -> Tensor:
        """The chains' stationary points; at radii in between, which only guide the path, with less care."""
        if self.cone is not None:
            return self._solve_in_cone(landscape, theta, radius, wanted)
        if isinstance(self.norm, Frobenius | Nuclear | Entrywise):
            steps = max(1, round(share * (self.iterations or 100)))
            ball = PowerBall(self.norm.p if isinstance(self.norm, Entrywise) else 2.0)
            return newton_in_ball(landscape, theta, landscape.chart.sphere(radius), steps, ball=ball)
        shape = (self.data.d, self.data.dq)

        def project(points: Tensor, index: Tensor) -> Tensor:
            return self.norm.project(points.unflatten(-1, shape), radius[index]).flatten(-2)

        def residual(part: Landscape, points: Tensor, index: Tensor) -> Tensor:
            assert isinstance(part, WeightsLandscape)
            return self._residual(part, points, radius[index])[0] * (1 + radius[index] * part.chart.row_size)

        steps = max(1, round(share * (self.iterations or 4000)))
        return projected_gradient(landscape, theta, project, residual, steps, _TIGHT if wanted else _GUIDE)

    def _searched_widely(self, point: Found, chains: Tensor, radius: float, wanted: bool) -> Found:
        """`point` with the lowest minima of many more starts, where the best tokens are not separable."""
        many, shape = self.hard.numel(), (self.data.d, self.data.dq)
        drawn = [torch.from_numpy(self.streams[h].standard_normal((_FRESH, *shape))) for h in self.hard.tolist()]
        starts = torch.stack(drawn, 1).to(self.data.device)
        if self.carried is not None:
            starts = torch.cat([self.carried, starts])
        starts = self._sized(starts, radius)
        plain = WeightsLandscape.of(self.data, self.head, self.loss, self.chart)
        landscape = plain.take(self.hard.repeat(len(starts)))
        size = torch.full((len(starts) * many,), radius, dtype=torch.float64, device=self.data.device)
        theta = landscape.chart.coordinates(starts.reshape(1, -1, *shape))[0]
        theta = self._solve(landscape, theta, size, wanted)
        ended = landscape.chart.weights(theta[None])[0].reshape(-1, many, *shape)
        # The chains that were solved already take part in the comparison.
        every = torch.cat([chains[:, self.hard], ended])
        landscape = plain.take(self.hard.repeat(len(every)))
        theta = landscape.chart.coordinates(every.reshape(1, -1, *shape))[0]
        size = torch.full((len(every) * many,), radius, dtype=torch.float64, device=self.data.device)
        found, every = self._best(landscape, theta, None, size, None, many)
        value = landscape.value(theta[None])[0].reshape(len(every), many)
        self.carried = _lowest_apart(every, value, _CARRIED)
        merged: dict[str, Any] = {}
        for each in fields(Found):
            old, new = getattr(point, each.name), getattr(found, each.name)
            merged[each.name] = old if old is None else old.index_copy(0, self.hard, new)
        return Found(**merged)

    def _solve_in_cone(self, landscape: WeightsLandscape, theta: Tensor, radius: Tensor, wanted: bool) -> Tensor:
        """Newton steps on the sphere where they stay in the cap, else on its edge; projected gradients for the rest."""
        assert self.cone is not None
        centre = self.cone.direction.flatten(-2).repeat(self.starts, 1)
        cosine = 1 - self.cone.opening

        def project(points: Tensor, index: Tensor) -> Tensor:
            return onto_cap(points, centre[index], cosine, radius[index])

        def residual(part: Landscape, points: Tensor, index: Tensor) -> Tensor:
            assert isinstance(part, WeightsLandscape)
            found, _ = cap_residual(points, part.gradient_at(points), centre[index], cosine)
            return found * (1 + radius[index] * part.chart.row_size)

        inner = newton_in_ball(landscape, theta, radius, self.iterations or 50)
        outer = self._solve_on_edge(landscape, theta, radius, centre)
        inside = (inner * centre).sum(-1) > cosine * radius
        lower = landscape.value(inner[None])[0] <= landscape.value(outer[None])[0]
        ended = torch.where((inside & lower).unsqueeze(-1), inner, outer)
        # An edge point that is pulled inward is no minimum of the cap: walk on from it.
        tolerance = _TIGHT if wanted else _GUIDE
        return projected_gradient(landscape, ended, project, residual, self.iterations or 4000, tolerance)

    def _solve_on_edge(self, landscape: WeightsLandscape, theta: Tensor, radius: Tensor, centre: Tensor) -> Tensor:
        """Newton steps on the edge of the cap, from the nearest edge point or, at the centre, from downhill of it."""
        assert self.cone is not None
        cosine = 1 - self.cone.opening
        offset = cosine * radius.unsqueeze(-1) * centre
        edge = radius * math.sqrt(1 - cosine**2)
        sideways = across(theta, centre)
        flat = torch.linalg.vector_norm(sideways, dim=-1) <= 1e-9 * radius
        sideways = torch.where(flat.unsqueeze(-1), -across(landscape.gradient_at(theta).normalized(), centre), sideways)
        found = newton_in_ball(EdgeLandscape(landscape, centre, offset), sideways, edge, self.iterations or 50)
        return offset + PowerBall().on_boundary(across(found, centre), edge)

    def _solve_joint(
        self, theta: Tensor, radius: Tensor, head: Tensor | None, limit: float, wanted: bool
    ) -> tuple[Tensor, Tensor, WeightsLandscape]:
        """Weights and head in turn: the head's problem is convex, and the weights feel it only through the scores."""
        bound = torch.full_like(radius, limit)
        if head is None:
            assert self.head_centre is not None
            first = self.landscape.head.parameters()["head"][: self.count]
            head = torch.cat([first, self.head_centre, first.repeat(self.restarts, 1)])
        head = PowerBall().on_boundary(head, bound)
        landscape = self.landscape.with_head(head)
        for _ in range(25 if wanted else 3):
            theta = self._solve(landscape, theta, radius, wanted, share=0.15)
            moved = newton_in_ball(HeadLandscape.at(landscape, theta, bound), head, bound, 20)
            change = torch.linalg.vector_norm(moved - head, dim=-1) / bound
            head = moved
            landscape = self.landscape.with_head(head)
            if float(change.max()) < 1e-10:
                break
        return self._solve(landscape, theta, radius, wanted), head, landscape

    def _residual(self, landscape: WeightsLandscape, theta: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
        """Distance from stationarity, and whether the boundary binds."""
        weights, gradient = landscape.chart.weights(theta[None])[0], landscape.gradient_in_weights(theta)
        if isinstance(self.norm, Frobenius) or self._cut:
            tangent, multiplier = tangent_part(theta, landscape.gradient_at(theta))
            off = tangent.square().sum(-1)
            residual = torch.where(multiplier > 0, off / (1 + multiplier), 1 - multiplier)
            own = torch.linalg.vector_norm(theta, dim=-1) / landscape.chart.sphere(radius)
        else:
            size = self.norm.dual_value(gradient.mantissa)
            reach = -(weights * gradient.mantissa).sum((-1, -2))
            residual = (1 - reach / (radius * torch.where(size > 0, size, 1.0))).clamp(min=0)
            own = self.norm.value(weights) / radius
        bound = own >= 1 - 1e-6
        inside = (radius.log() + gradient.log_norm()).exp()
        still = (gradient.mantissa.flatten(1) == 0).all(-1)
        return torch.where(still, 0.0, torch.where(bound, residual, inside)), bound

    def _best(
        self,
        landscape: WeightsLandscape,
        theta: Float[Tensor, "chains size"],
        head: Tensor | None,
        radius: Tensor,
        limit: float | None,
        count: int,
    ) -> tuple[Found, Tensor]:
        """The lowest of the chains for each element, what became of the others, and all chains' weights."""
        lead = (theta.shape[0] // count, count)
        if limit is None:
            value = landscape.value(theta[None])[0]
        else:
            assert head is not None
            value = HeadLandscape.at(landscape, theta, torch.full_like(radius, limit)).value(head[None])[0]
        weights = landscape.chart.weights(theta[None])[0]
        slopes = landscape.gradient_in_weights(theta).log_norm().reshape(lead)
        value = value.reshape(lead)
        # Where values agree to round-off the smaller gradient is the smaller excess.
        lowest = value.amin(0)
        close = value <= lowest + 1e-12 * (1 + lowest.abs())
        best = torch.where(close, slopes, torch.inf).argmin(0)
        chosen = best * count + torch.arange(count, device=best.device)
        part = landscape.take(chosen)
        own, own_radius = theta[chosen], radius[chosen]
        attended = part.attend(own[None])
        if self.cone is None:
            residual, bound = self._residual(part, own, own_radius)
            edge = torch.zeros_like(bound)
            if limit is not None and head is not None:
                fixed = HeadLandscape.at(part, own, torch.full_like(own_radius, limit))
                off, _ = tangent_part(head[chosen], fixed.gradient_at(head[chosen]))
                residual = torch.maximum(residual, off.square().sum(-1))
        else:
            centre = self.cone.direction.flatten(-2)
            residual, edge = cap_residual(own, part.gradient_at(own), centre, 1 - self.cone.opening)
            bound = torch.ones_like(edge)
        every = weights.reshape(*lead, self.data.d, self.data.dq)
        linear = isinstance(self.head, LinearHead) and limit is None
        logarithmic = isinstance(self.head, LinearHead)
        turned = direction_distance(every, weights[chosen].expand_as(every)) > _ELSEWHERE
        found = Found(
            weights=weights[chosen],
            head=None if limit is None or head is None else head[chosen],
            risk=self.loss.value(attended.margin).mean(-1)[0],
            log_excess=part.log_excess(attended)[0] if linear else None,
            attention=attended.attention[0],
            log_attention=attended.log_attention[0],
            residual=residual,
            converged=residual * (1 + own_radius * part.chart.row_size) <= _LOOSE,
            on_boundary=bound,
            at_cone_edge=edge,
            starts=torch.full_like(best, lead[0]),
            elsewhere=(turned & (value - lowest > (1e-4 if logarithmic else 1e-10))).sum(0),
            risk_spread=value.amax(0) - lowest,
        )
        return found, every


def _lowest_apart(weights: Tensor, value: Tensor, many: int) -> Tensor:
    """The `many` points ``[starts, elements, d, dq]`` of lowest value, none in the direction of a lower one."""
    order = value.argsort(0)
    index = order[..., None, None].expand_as(weights)
    weights, value = weights.gather(0, index), value.gather(0, order)
    near = direction_distance(weights.unsqueeze(0), weights.unsqueeze(1)) <= _ELSEWHERE
    lower = torch.ones(near.shape[:2], dtype=torch.bool, device=near.device).tril(-1).unsqueeze(-1)
    repeated = (near & lower).any(1)
    keep = (value + torch.where(repeated, torch.inf, 0.0)).argsort(dim=0, stable=True)[:many]
    return weights.gather(0, keep[..., None, None].expand(-1, *weights.shape[1:]))


def _stages(radii: list[float], limits: list[float] | None, rows: float) -> list[tuple[float, float | None, bool]]:
    """Radius, radius of the head, and whether it was asked for: with radii in between where steps would be too long."""
    stages: list[tuple[float, float | None, bool]] = []
    before = min(1.0 / rows, radii[0])
    limit_before = None if limits is None else limits[0] * before / radii[0]
    for place, radius in enumerate(radii):
        limit = None if limits is None else limits[place]
        steps = max(1, math.ceil(math.log(radius / before) / math.log(_RATIO) - 1e-9))
        for step in range(1, steps):
            share = step / steps
            between = None if limit is None or limit_before is None else limit_before * (limit / limit_before) ** share
            stages.append((before * (radius / before) ** share, between, False))
        stages.append((radius, limit, True))
        before, limit_before = radius, limit
    return stages
