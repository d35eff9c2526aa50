"""The search along a regularization path: where to start at each radius, what to keep, what to report."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attsvm.attention import Head, LinearHead, Loss
from attsvm.attention.scores import flat_scores
from attsvm.data import TokenDataset
from attsvm.data.streams import Purpose, streams
from attsvm.norms import Entrywise, Frobenius, Norm, Nuclear, direction_distance
from attsvm.svm import AttentionSVM, label_svm, solve
from attsvm.theory.cones import AngleCone
from attsvm.theory.paths import landscapes, solvers
from attsvm.theory.paths.landscapes import Chart, FactorChart, HeadLandscape, WeightsLandscape

_RATIO = 10**0.5  # radii grow at most by this factor from one solve to the next
_SATURATED = 30.0  # logits this far apart keep the selection a start has; fresh random starts no longer help
_FRESH, _CARRIED = 32, 8  # further starts where the best tokens are not separable: drawn at each radius, and kept
_ELSEWHERE = 1e-3  # 1 - cosine from which two directions count as different
_NEWTON, _GRADIENT = 100, 4000  # the most steps at a radius
_LOOSE, _GUIDE = 1e-3, 1e-2  # residual times radius: called converged, aimed at on the way
_TIGHT, _TIGHTEST = 1e-4, 1e-7  # aimed at where a radius was asked for; on the cap of a cone, where steps are cheap

_Joint = tuple[Tensor, float]  # trained heads of all chains, and the length that they may have
Found = dict[str, Any]  # the best point of one radius: tensors by the names that `RegularizationPath` gives them


@dataclass(eq=False)
class Search:
    """The search that `regularization_path` describes: for every element, several chains of weights side by side.

    One chain continues the path so far, one begins at the max-margin direction of the best tokens (or at the centre of
    the cone), and `restarts` chains begin at random. Chains and elements share one axis, ``[starts * elements]``.

    Where no weights are known that separate the best tokens, the risk has no direction to tend to and many local minima
    that compete as the ball grows: there `_searched_widely` follows more of them.
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
        self.head = (self.given_head or LinearHead(self._mean_head())).broadcast((self.count,))
        chart, self.cut = self._chart()
        self.plain = WeightsLandscape(self.data, self.head, self.loss, chart)
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
            small, left, right = landscapes.reduced_spans(self.data)
            full = min(left.shape[-1], right.shape[-1])
            rank = min(full, self.rank or full)
            return FactorChart(small, left, right, rank=rank), rank < full
        rows = isinstance(self.norm, Frobenius) and self.cone is None
        return landscapes.row_chart(self.data) if rows else landscapes.whole_chart(self.data), False

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
            whole = WeightsLandscape(self.data, self.head, self.loss, landscapes.whole_chart(self.data))
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
        asked, stages = radii.tolist(), _stages(radii.tolist(), self.rows)
        shares = None if limits is None else (limits / radii).log().tolist()  # the logarithm of r over R
        past: list[tuple[float, Tensor, Tensor]] = []
        head: Tensor | None = None
        found = []
        for done, radius in enumerate(stages):
            wanted, joint = radius in asked, None
            start = self._starting_weights(radius, past)
            landscape, theta = self.landscape, _coordinates(self.landscape, start)
            if shares is None:
                theta = self._solve(landscape, theta, radius, wanted)
            else:
                limit = radius * math.exp(np.interp(math.log(radius), np.log(asked), shares))
                theta, head, landscape = self._solve_joint(theta, radius, head, limit, wanted)
                joint = head, limit
            point, chains = self._best(landscape, theta, radius, self.count, joint)
            if self.hard.numel():
                point = self._searched_widely(point, chains, radius, wanted)
            past = [*past[-1:], (radius, chains, point["weights"])]
            if wanted:
                found.append(point)
            if progress is not None:
                progress(done + 1, len(stages))
        return found

    def _solve(
        self, landscape: WeightsLandscape, theta: Tensor, radius: float, wanted: bool, share: float = 1.0
    ) -> Tensor:
        """The chains' stationary points; at radii in between, which only guide the path, with less care."""
        if self.cone is None and isinstance(self.norm, Frobenius | Nuclear | Entrywise):
            p = self.norm.p if isinstance(self.norm, Entrywise) else 2.0
            ball = solvers.PowerBall(landscape.chart.sphere(radius), p)
            return solvers.newton_in_ball(landscape, theta, ball, round(share * _NEWTON))

        def project(points: Tensor, chain: Tensor) -> Tensor:
            centre, cosine = self._cap(chain)
            if centre is not None:
                return solvers.onto_cap(points, centre, cosine, radius)
            return self.norm.project(points.unflatten(-1, (self.data.d, self.data.dq)), radius).flatten(-2)

        def residual(part: WeightsLandscape, points: Tensor, chain: Tensor) -> Tensor:
            return self._residual(part, points, radius, chain)[0] * (1 + radius * part.chart.row_size)

        tolerance = _GUIDE if not wanted else _TIGHT if self.cone is None else _TIGHTEST
        return solvers.projected_gradient(landscape, theta, project, residual, round(share * _GRADIENT), tolerance)

    def _searched_widely(self, point: Found, chains: Tensor, radius: float, wanted: bool) -> Found:
        """`point` with the lowest minima of many more starts, where the best tokens are not separable."""
        many = self.hard.numel()
        starts = self._random(_FRESH, self.hard.tolist())
        if self.carried is not None:
            starts = torch.cat([self.carried, starts])
        starts = self._sized(starts, radius)
        landscape = self.plain[self.hard.repeat(len(starts))]
        theta = self._solve(landscape, _coordinates(landscape, starts), radius, wanted)
        ended = landscape.chart.weights(theta[None])
        # The chains that were solved already take part in the comparison.
        every = torch.cat([chains[:, self.hard], ended.reshape(-1, many, *chains.shape[2:])])
        landscape = self.plain[self.hard.repeat(len(every))]
        theta = _coordinates(landscape, every)
        found, every = self._best(landscape, theta, radius, many)
        self.carried = _lowest_apart(every, landscape.value(theta[None])[0].reshape(-1, many), _CARRIED)
        return {name: None if old is None else old.index_copy(0, self.hard, found[name]) for name, old in point.items()}

    def _solve_joint(
        self, theta: Tensor, radius: float, head: Tensor | None, limit: float, wanted: bool
    ) -> tuple[Tensor, Tensor, WeightsLandscape]:
        """Weights and head in turn: the head's problem is convex, and the weights feel it only through the scores."""
        if head is None:
            assert self.head_centre is not None
            first = self.landscape.head.parameters()["head"][: self.count]
            head = torch.cat([first, self.head_centre, first.repeat(self.restarts, 1)])
        ball = solvers.PowerBall(limit)
        head = ball.on_boundary(head)
        landscape = self.landscape.with_head(head)
        for _ in range(25 if wanted else 3):
            theta = self._solve(landscape, theta, radius, wanted, share=0.15)
            before, head = head, solvers.newton_in_ball(HeadLandscape.at(landscape, theta, limit), head, ball, 20)
            landscape = self.landscape.with_head(head)
            if float(torch.linalg.vector_norm(head - before, dim=-1).max()) < 1e-10 * limit:
                break
        return self._solve(landscape, theta, radius, wanted), head, landscape

    def _cap(self, chain: Tensor) -> tuple[Tensor | None, float]:
        """Unit centres and the least cosine of the cones of these chains; no centres without a cone."""
        if self.cone is None:
            return None, -1.0
        return self.cone.direction.flatten(-2)[chain % self.count], 1 - self.cone.opening

    def _residual(self, landscape: WeightsLandscape, theta: Tensor, radius: float, chain: Tensor) -> tuple[Tensor, ...]:
        """Distance from stationarity, whether the boundary of the ball binds, and whether the edge of the cone does."""
        weights, gradient = landscape.chart.weights(theta[None])[0], landscape.gradient_in_weights(theta)
        edge = torch.zeros(len(theta), dtype=torch.bool, device=theta.device)
        if isinstance(self.norm, Frobenius) or self.cut:
            residual, edge = solvers.sphere_residual(theta, landscape.gradient(theta[None])[0], *self._cap(chain))
            own = torch.linalg.vector_norm(theta, dim=-1) / landscape.chart.sphere(radius)
        else:
            size = self.norm.dual_value(gradient.mantissa)
            reach = -(weights * gradient.mantissa).sum((-1, -2))
            residual = (1 - reach / (radius * torch.where(size > 0, size, 1.0))).clamp(min=0)
            own = self.norm.value(weights) / radius
        bound = own >= 1 - 1e-6
        inside = (math.log(radius) + gradient.log_norm()).exp()
        still = (gradient.mantissa.flatten(1) == 0).all(-1)
        return torch.where(still, 0.0, torch.where(bound, residual, inside)), bound, edge

    def _best(
        self, landscape: WeightsLandscape, theta: Tensor, radius: float, count: int, joint: _Joint | None = None
    ) -> tuple[Found, Tensor]:
        """The lowest of the chains for each element, what became of the others, and all chains' weights."""
        lead, value, vector = (len(theta) // count, count), landscape.value(theta[None]), None
        if joint is not None:
            head, limit = joint
            value = HeadLandscape.at(landscape, theta, limit).value(head[None])
        value = value.reshape(lead)
        weights = landscape.chart.weights(theta[None])[0]
        slopes = landscape.gradient_in_weights(theta).log_norm().reshape(lead)
        # Where values agree to round-off the smaller gradient is the smaller excess.
        lowest = value.amin(0)
        close = value <= lowest + 1e-12 * (1 + lowest.abs())
        best = torch.where(close, slopes, torch.inf).argmin(0)
        chosen = best * count + torch.arange(count, device=best.device)
        part, own = landscape[chosen], theta[chosen]
        attended = part.attend(own[None])
        residual, bound, edge = self._residual(part, own, radius, chosen)
        if joint is not None:
            vector = head[chosen]
            off, _ = solvers.tangent_part(vector, HeadLandscape.at(part, own, limit).gradient(vector[None])[0])
            residual = torch.maximum(residual, off.square().sum(-1))
        every = weights.reshape(*lead, self.data.d, self.data.dq)
        linear = isinstance(self.head, LinearHead)
        turned = direction_distance(every, weights[chosen].expand_as(every)) > _ELSEWHERE
        found = {
            "weights": weights[chosen],
            "head": vector,
            "risk": self.loss.value(attended.margin).mean(-1)[0],
            "log_excess": part.value(own[None])[0] if linear and vector is None else None,
            "attention": attended.attention[0],
            "log_attention": attended.log_attention[0],
            "residual": residual,
            "converged": residual * (1 + radius * part.chart.row_size) <= _LOOSE,
            "on_boundary": bound,
            "at_cone_edge": edge,
            "starts": torch.full_like(best, lead[0]),
            "elsewhere": (turned & (value - lowest > (1e-4 if linear else 1e-10))).sum(0),
            "risk_spread": value.amax(0) - lowest,
        }
        return found, every


def _coordinates(landscape: WeightsLandscape, weights: Float[Tensor, "starts elements d dq"]) -> Tensor:
    """theta of the chains, ``[starts * elements, size]``."""
    return landscape.chart.coordinates(weights.flatten(0, 1)[None])[0]


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
    value, order = value.sort(0)
    weights = weights.take_along_dim(order[..., None, None], 0)
    near = direction_distance(weights.unsqueeze(0), weights.unsqueeze(1)) <= _ELSEWHERE
    lower = torch.ones(near.shape[:2], dtype=torch.bool, device=near.device).tril(-1).unsqueeze(-1)
    repeated = (near & lower).any(1)
    keep = (value + torch.where(repeated, torch.inf, 0.0)).argsort(dim=0, stable=True)[:many]
    return weights.take_along_dim(keep[..., None, None], 0)


def _stages(radii: list[float], rows: float) -> list[float]:
    """The radii, from a small one on, with others in between where steps would be too long."""
    stages, before = [], min(1.0 / rows, radii[0])
    for radius in radii:
        steps = max(1, math.ceil(math.log(radius / before) / math.log(_RATIO) - 1e-9))
        stages += [*np.geomspace(before, radius, steps + 1)[1:-1].tolist(), radius]
        before = radius
    return stages
