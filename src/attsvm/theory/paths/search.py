"""The search along a regularization path: where to start at each radius, what to keep, what to report."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attsvm.attention import Head, LinearHead, Loss
from attsvm.attention.scores import flat_scores
from attsvm.data import TokenDataset
from attsvm.data.streams import Purpose, streams
from attsvm.norms import Entrywise, Frobenius, Norm, Nuclear
from attsvm.norms.direction import direction_distance
from attsvm.svm import AttentionSVM, label_svm, solve
from attsvm.theory.cones import AngleCone
from attsvm.theory.paths.landscapes import (
    Chart,
    EdgeChart,
    FactorChart,
    HeadLandscape,
    RowChart,
    WeightsLandscape,
    across,
    reduced_spans,
    whole_chart,
)
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
_NEWTON, _GRADIENT = 100, 4000  # the most steps at a radius
_LOOSE, _TIGHT, _GUIDE = 1e-3, 1e-4, 1e-2  # residual times radius: called converged, aimed at, on the way

Found = dict[str, Any]  # the best point of one radius: tensors by the names that `RegularizationPath` gives them


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

    def __post_init__(self) -> None:
        if self.train_head and self.given_head is not None and not isinstance(self.given_head, LinearHead):
            raise ValueError(f"train_head needs a linear prediction head; got {type(self.given_head).__name__}")
        if self.cone is not None and not isinstance(self.norm, Frobenius):
            raise ValueError(f"a cone goes with the Frobenius norm; got {self.norm!r}")
        self.count = len(self.data.tokens)
        self.head: Head = self.given_head if self.given_head is not None else LinearHead(self._mean_head())
        chart, self.cut = self._chart()
        self.plain = WeightsLandscape.of(self.data, self.head, self.loss, chart)
        self.landscape = self.plain[torch.arange(self.count, device=self.data.device).repeat(2 + self.restarts)]
        self.rows = float(chart.row_size.max())
        self.streams = streams(self.keys, (self.count,), purpose=Purpose.PATH_START)
        self.centre, self.head_centre, self.separable = self._max_margin()
        wide = ~self.separable if self.cone is None and not self.train_head else torch.zeros_like(self.separable)
        self.hard = torch.nonzero(wide).flatten()
        self.carried: Tensor | None = None  # the lowest minima of the last radius, ``[carried, hard, d, dq]``

    def _chart(self) -> tuple[Chart, bool]:
        """The chart, and whether the rank asked for is below what the spans allow."""
        if isinstance(self.norm, Nuclear):
            small, left, right = reduced_spans(self.data)
            full = min(left.shape[-1], right.shape[-1])
            rank = min(full, self.rank or full)
            return FactorChart(small, left, right, rank), rank < full
        rows = isinstance(self.norm, Frobenius) and self.cone is None
        return RowChart.of(self.data) if rows else whole_chart(self.data), False

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

    def _random(self, count: int, elements: Sequence[int]) -> Float[Tensor, "count elements d dq"]:
        shape = (count, self.data.d, self.data.dq)
        drawn = [torch.from_numpy(self.streams[each].standard_normal(shape)) for each in elements]
        return torch.stack(drawn, 1).to(self.data.device)

    def _sized(self, weights: Tensor, radius: float) -> Tensor:
        """Weights scaled to the boundary; zero where they are zero."""
        value = self.norm.value(weights)[..., None, None]
        return weights * torch.where(value > 0, radius / torch.where(value > 0, value, 1.0), 0.0)

    def _starting_weights(self, radius: float, past: list[tuple[float, Tensor, Tensor]]) -> Tensor:
        """``[starts, elements, d, dq]`` for this radius; `past` holds radius, chains and best point of those before."""
        if past:
            path = _extrapolated(radius, [(size, best) for size, _, best in past])
        elif self.cone is not None:
            path = self.centre
        else:  # at a vanishing radius the minimiser is the steepest descent direction at zero
            whole = WeightsLandscape.of(self.data, self.head, self.loss, whole_chart(self.data))
            path = self.norm.steepest(-whole.gradient_in_weights(torch.zeros_like(self.centre).flatten(-2)).mantissa)
        chains = [path, torch.where((self.centre == 0).all(-1).all(-1)[:, None, None], path, self.centre)]
        if self.restarts:
            fresh = self._sized(self._random(self.restarts, range(self.count)), 1.0)
            if self.cone is not None:
                fresh = self.centre + math.sqrt(self.cone.opening) * fresh
            if past and radius * self.rows > _SATURATED:
                fresh = _extrapolated(radius, [(size, every[2:]) for size, every, _ in past])
            chains += list(fresh)
        return self._sized(torch.stack(chains), radius)

    def follow(self, radii: Tensor, limits: Tensor | None, progress: Callable[[int, int], None] | None) -> list[Found]:
        """The best point of every radius."""
        stages = _stages(radii.tolist(), None if limits is None else limits.tolist(), self.rows)
        past: list[tuple[float, Tensor, Tensor]] = []
        head: Tensor | None = None
        found = []
        for done, (radius, limit, wanted) in enumerate(stages):
            start = self._starting_weights(radius, past)
            landscape, theta, size = _placed(self.landscape, start, radius)
            if limit is None:
                theta = self._solve(landscape, theta, size, wanted)
            else:
                theta, head, landscape = self._solve_joint(theta, size, head, limit, wanted)
            point, chains = self._best(landscape, theta, head, size, limit, self.count)
            if self.hard.numel():
                point = self._searched_widely(point, chains, radius, wanted)
            past = [*past[-1:], (radius, chains, point["weights"])]
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
            return self._solve_in_cone(landscape, theta, radius, wanted, self.cone)
        if isinstance(self.norm, Frobenius | Nuclear | Entrywise):
            ball = PowerBall(self.norm.p if isinstance(self.norm, Entrywise) else 2.0)
            return newton_in_ball(landscape, theta, landscape.chart.sphere(radius), round(share * _NEWTON), ball=ball)

        def project(points: Tensor, index: Tensor) -> Tensor:
            return self.norm.project(points.unflatten(-1, (self.data.d, self.data.dq)), radius[index]).flatten(-2)

        def residual(part: WeightsLandscape, points: Tensor, index: Tensor) -> Tensor:
            return self._residual(part, points, radius[index])[0] * (1 + radius[index] * part.chart.row_size)

        tolerance = _TIGHT if wanted else _GUIDE
        return projected_gradient(landscape, theta, project, residual, round(share * _GRADIENT), tolerance)

    def _searched_widely(self, point: Found, chains: Tensor, radius: float, wanted: bool) -> Found:
        """`point` with the lowest minima of many more starts, where the best tokens are not separable."""
        many = self.hard.numel()
        starts = self._random(_FRESH, self.hard.tolist())
        if self.carried is not None:
            starts = torch.cat([self.carried, starts])
        starts = self._sized(starts, radius)
        landscape, theta, size = _placed(self.plain[self.hard.repeat(len(starts))], starts, radius)
        ended = landscape.chart.weights(self._solve(landscape, theta, size, wanted)[None])
        # The chains that were solved already take part in the comparison.
        every = torch.cat([chains[:, self.hard], ended.reshape(-1, many, *chains.shape[2:])])
        landscape, theta, size = _placed(self.plain[self.hard.repeat(len(every))], every, radius)
        found, every = self._best(landscape, theta, None, size, None, many)
        self.carried = _lowest_apart(every, landscape.value(theta[None])[0].reshape(-1, many), _CARRIED)
        return {name: None if old is None else old.index_copy(0, self.hard, found[name]) for name, old in point.items()}

    def _solve_in_cone(
        self, landscape: WeightsLandscape, theta: Tensor, radius: Tensor, wanted: bool, cone: AngleCone
    ) -> Tensor:
        """Newton steps on the sphere where they stay in the cap, else on its edge; projected gradients for the rest."""
        centre, cosine = cone.direction.flatten(-2).repeat(2 + self.restarts, 1), 1 - cone.opening

        def project(points: Tensor, index: Tensor) -> Tensor:
            return onto_cap(points, centre[index], cosine, radius[index])

        def residual(part: WeightsLandscape, points: Tensor, index: Tensor) -> Tensor:
            found, _ = cap_residual(points, part.gradient_at(points), centre[index], cosine)
            return found * (1 + radius[index] * part.chart.row_size)

        inner = newton_in_ball(landscape, theta, radius, _NEWTON // 2)
        # On the edge, from its nearest point or, at the centre, from downhill of it.
        offset, edge = cosine * radius.unsqueeze(-1) * centre, radius * math.sqrt(1 - cosine**2)
        sideways = across(theta, centre)
        flat = torch.linalg.vector_norm(sideways, dim=-1) <= 1e-9 * radius
        sideways = torch.where(flat.unsqueeze(-1), -across(landscape.gradient_at(theta).normalized(), centre), sideways)
        chart = landscape.chart
        rim = replace(landscape, chart=EdgeChart(chart.reduced, chart.left, chart.right, centre, offset))
        found = newton_in_ball(rim, sideways, edge, _NEWTON // 2)
        outer = offset + PowerBall().on_boundary(across(found, centre), edge)
        inside = (inner * centre).sum(-1) > cosine * radius
        lower = landscape.value(inner[None])[0] <= landscape.value(outer[None])[0]
        ended = torch.where((inside & lower).unsqueeze(-1), inner, outer)
        # An edge point that is pulled inward is no minimum of the cap: walk on from it.
        return projected_gradient(landscape, ended, project, residual, _GRADIENT, _TIGHT if wanted else _GUIDE)

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
            head, landscape = moved, self.landscape.with_head(moved)
            if float(change.max()) < 1e-10:
                break
        return self._solve(landscape, theta, radius, wanted), head, landscape

    def _residual(self, landscape: WeightsLandscape, theta: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
        """Distance from stationarity, and whether the boundary binds."""
        weights, gradient = landscape.chart.weights(theta[None])[0], landscape.gradient_in_weights(theta)
        if isinstance(self.norm, Frobenius) or self.cut:
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
        theta: Tensor,
        head: Tensor | None,
        radius: Tensor,
        limit: float | None,
        count: int,
    ) -> tuple[Found, Tensor]:
        """The lowest of the chains for each element, what became of the others, and all chains' weights."""
        trained = None if head is None or limit is None else (head, torch.full_like(radius, limit))
        lead = (theta.shape[0] // count, count)
        if trained is None:
            value = landscape.value(theta[None])[0].reshape(lead)
        else:
            value = HeadLandscape.at(landscape, theta, trained[1]).value(trained[0][None])[0].reshape(lead)
        weights = landscape.chart.weights(theta[None])[0]
        slopes = landscape.gradient_in_weights(theta).log_norm().reshape(lead)
        # Where values agree to round-off the smaller gradient is the smaller excess.
        lowest = value.amin(0)
        close = value <= lowest + 1e-12 * (1 + lowest.abs())
        best = torch.where(close, slopes, torch.inf).argmin(0)
        chosen = best * count + torch.arange(count, device=best.device)
        part, own, own_radius = landscape[chosen], theta[chosen], radius[chosen]
        attended = part.attend(own[None])
        if self.cone is None:
            residual, bound = self._residual(part, own, own_radius)
            edge = torch.zeros_like(bound)
        else:
            centre = self.cone.direction.flatten(-2)
            residual, edge = cap_residual(own, part.gradient_at(own), centre, 1 - self.cone.opening)
            bound = torch.ones_like(edge)
        if trained is not None:
            vector, bounds = (each[chosen] for each in trained)
            off, _ = tangent_part(vector, HeadLandscape.at(part, own, bounds).gradient_at(vector))
            residual = torch.maximum(residual, off.square().sum(-1))
        every = weights.reshape(*lead, self.data.d, self.data.dq)
        linear = isinstance(self.head, LinearHead)
        turned = direction_distance(every, weights[chosen].expand_as(every)) > _ELSEWHERE
        found = {
            "weights": weights[chosen],
            "head": None if trained is None else trained[0][chosen],
            "risk": self.loss.value(attended.margin).mean(-1)[0],
            "log_excess": part.value(own[None])[0] if linear and trained is None else None,
            "attention": attended.attention[0],
            "log_attention": attended.log_attention[0],
            "residual": residual,
            "converged": residual * (1 + own_radius * part.chart.row_size) <= _LOOSE,
            "on_boundary": bound,
            "at_cone_edge": edge,
            "starts": torch.full_like(best, lead[0]),
            "elsewhere": (turned & (value - lowest > (1e-4 if linear else 1e-10))).sum(0),
            "risk_spread": value.amax(0) - lowest,
        }
        return found, every


def _placed(
    landscape: WeightsLandscape, weights: Float[Tensor, "starts elements d dq"], radius: float
) -> tuple[WeightsLandscape, Float[Tensor, "chains size"], Float[Tensor, "chains"]]:
    """The landscape of the chains, their coordinates, and the radius of each."""
    theta = landscape.chart.coordinates(weights.reshape(1, -1, *weights.shape[2:]))[0]
    return landscape, theta, theta.new_full((len(theta),), radius)


def _extrapolated(radius: float, past: list[tuple[float, Tensor]]) -> Tensor:
    """Along the secant of the last two points, on which the ratios of the probabilities stay as they are."""
    last, here = past[-1]
    if len(past) == 1:
        return here
    before, there = past[-2]
    secant = here + (radius - last) / (last - before) * (here - there)
    return torch.where((direction_distance(here, there) < 0.05)[..., None, None], secant, here)


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
