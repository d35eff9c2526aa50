"""Minimising a saturated risk over spheres and balls: Newton steps on the sphere, accelerated projected gradients.

At radius R the risk behaves like a log-sum-exp of R times the margins. Its logarithm has curvature of order one in the
rows it feels, and only |grad| / R in the others (the curvature of the sphere), so plain descent needs about R
iterations, an accelerated one sqrt(R), a Newton step a handful. None of them looks at the size of the gradient, which
is exp(-R margin): directions come from the mantissa, comparisons from the logarithm.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attsvm.attention import ScaledTensor
from attsvm.theory.paths.landscapes import Elements, Landscape, WeightsLandscape

_TANGENT_TOLERANCE = 1e-8
_CHUNK = 1_000_000


def _unit(vectors: Tensor) -> Tensor:
    """Vectors of length one; zero where they are zero."""
    return torch.nn.functional.normalize(vectors, dim=-1, eps=1e-300)


def tangent_part(theta: Tensor, gradient: ScaledTensor) -> tuple[Tensor, Tensor]:
    """The unit gradient's part along the sphere, and the multiplier cos(theta, -gradient)."""
    unit, direction = _unit(theta), gradient.normalized()
    along = (direction * unit).sum(-1, keepdim=True)
    return direction - along * unit, -along.squeeze(-1)


@dataclass(frozen=True)
class PowerBall:
    """The ball ||theta||_p <= radius, 1 < p < inf; p = 2 is the Euclidean one."""

    radius: float
    p: float = 2.0

    def length(self, theta: Float[Tensor, "*lead size"]) -> Float[Tensor, "*lead"]:
        """The norm."""
        largest = theta.abs().amax(-1, keepdim=True).clamp(min=1e-300)
        return largest.squeeze(-1) * torch.linalg.vector_norm(theta / largest, ord=self.p, dim=-1)

    def on_boundary(self, theta: Tensor) -> Tensor:
        """theta scaled to the boundary; zero where it is zero."""
        length = self.length(theta).unsqueeze(-1)
        return theta * (self.radius / torch.where(length > 0, length, 1.0))

    def normal(self, theta: Tensor) -> Tensor:
        """The gradient of the norm."""
        unit = theta / self.length(theta).unsqueeze(-1).clamp(min=1e-300)
        return unit.sign() * unit.abs() ** (self.p - 1)

    def curvature(self, theta: Tensor) -> Tensor:
        """The diagonal D of the norm's second derivative ``D - (p - 1) n n^T / length``, n the normal."""
        length = self.length(theta).unsqueeze(-1).clamp(min=1e-300)
        return (self.p - 1) / length * (theta.abs() / length).clamp(min=1e-9) ** (self.p - 2)


@dataclass(frozen=True, eq=False)
class _Point(Elements):
    """Points of a ball, one per element, and where the gradient lets each of them go."""

    ball: PowerBall
    theta: Float[Tensor, "elements size"]
    gradient: ScaledTensor
    normal: Float[Tensor, "elements size"]  # of the boundary, of length one
    tangent: Float[Tensor, "elements size"]  # the part of the unit gradient that the ball lets a point follow
    bound: Bool[Tensor, "elements"]  # whether the boundary holds it
    multiplier: Float[Tensor, "elements"]  # how hard

    @classmethod
    def at(cls, landscape: Landscape, ball: PowerBall, theta: Tensor) -> _Point:
        """The points `theta`."""
        gradient, normal = landscape.gradient(theta[None])[0], _unit(ball.normal(theta))
        direction = gradient.normalized()
        along = (direction * normal).sum(-1, keepdim=True)
        multiplier = -(direction * theta).sum(-1) / ball.radius
        bound = (ball.length(theta) >= ball.radius * (1 - 1e-9)) & (multiplier >= 0)
        tangent = torch.where(bound.unsqueeze(-1), direction - along * normal, direction)
        return cls(ball, theta, gradient, normal, tangent, bound, multiplier)


def newton_in_ball(landscape: Landscape, theta: Tensor, ball: PowerBall, iterations: int) -> Tensor:
    """Damped Newton steps in the ball, every element for itself, until it is stationary.

    An element moves along the sphere while the negative gradient points outward, and leaves it when it points inward.
    Second derivatives are central differences of the saturation-proof gradient, divided by its norm; Levenberg's
    damping keeps the matrix positive definite and the value falling.
    """
    theta = ball.on_boundary(theta)
    damping = torch.full_like(theta[:, 0], 1e-3)
    resting = torch.zeros_like(damping, dtype=torch.bool)
    active, part = torch.arange(len(theta), device=theta.device), landscape
    for _ in range(iterations):
        point = _Point.at(part, ball, theta[active])
        still = point.bound & (torch.linalg.vector_norm(point.tangent, dim=-1) <= _TANGENT_TOLERANCE)
        going = ~still & ~resting[active] & (point.gradient.mantissa != 0).any(-1)
        if not bool(going.all()):
            going = torch.nonzero(going).flatten()
            active, part, point = active[going], part[going], point[going]
            if active.numel() == 0:
                break
        moved, damping[active] = _newton_step(part, point, damping[active])
        length = torch.linalg.vector_norm(moved - point.theta, dim=-1)
        # Round-off: steps that change nothing, or damping that allows none.
        resting[active] = ((length > 0) & (length < 1e-12 * ball.radius)) | (damping[active] > 1e4)
        theta[active] = moved
    return theta


def _newton_step(part: Landscape, point: _Point, damping: Tensor) -> tuple[Tensor, Tensor]:
    """The next points (unmoved where the step helps nothing), and the damping to go on with."""
    here, bound, ball = point.theta, point.bound, point.ball
    normal = torch.where(bound.unsqueeze(-1), point.normal, 0.0)
    outer = normal.unsqueeze(-1) * normal.unsqueeze(-2)
    project = torch.eye(here.shape[-1], dtype=here.dtype, device=here.device) - outer
    bend = torch.where(bound, point.multiplier, 0.0).unsqueeze(-1) * ball.curvature(here)
    matrix = project @ (_second_derivatives(part, here, point.gradient) + torch.diag_embed(bend)) @ project
    level = matrix.diagonal(dim1=-2, dim2=-1).abs().mean(-1).clamp(min=1e-300)
    matrix = matrix + level[:, None, None] * outer
    factor, damping = _damped_factor(matrix, level, damping)
    trial = here - torch.cholesky_solve(point.tangent.unsqueeze(-1), factor).squeeze(-1)
    outside = bound | (ball.length(trial) > ball.radius)
    trial = torch.where(outside.unsqueeze(-1), ball.on_boundary(trial), trial)
    better = _improves(part, point, trial)
    damping = torch.where(better, torch.where(damping < 1e-13, 0.0, damping / 8), (damping * 8).clamp(min=1e-10))
    return torch.where(better.unsqueeze(-1), trial, here), damping


def _damped_factor(matrix: Tensor, level: Tensor, damping: Tensor) -> tuple[Tensor, Tensor]:
    """Cholesky factors of ``matrix + damping * level``, the damping raised until each is positive definite."""
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    factor = eye.expand_as(matrix).clone()
    failed = torch.arange(matrix.shape[0], device=matrix.device)
    for _ in range(14):
        found, info = torch.linalg.cholesky_ex(matrix[failed] + (damping * level)[failed][:, None, None] * eye)
        good = info == 0
        factor[failed[good]] = found[good]
        failed = failed[~good]
        if failed.numel() == 0:
            break
        damping[failed] = (damping[failed] * 10).clamp(min=1e-9)
    return factor, damping


def _improves(part: Landscape, point: _Point, trial: Tensor) -> Bool[Tensor, "elements"]:
    """Lower value; where both agree to round-off, not past the minimum along the way, or closer to stationary."""
    before, after = part.value(torch.stack([point.theta, trial]))
    left = _Point.at(part, point.ball, trial).tangent
    round_off = 1e-13 * (1 + before.abs())
    smaller = torch.linalg.vector_norm(left, dim=-1) < torch.linalg.vector_norm(point.tangent, dim=-1)
    downhill = (left * (trial - point.theta)).sum(-1) <= 0
    return (after < before - round_off) | ((after <= before + round_off) & (smaller | downhill))


def _second_derivatives(part: Landscape, here: Tensor, gradient: ScaledTensor) -> Float[Tensor, "elements size size"]:
    elements, size = here.shape
    width = (1e-4 / part.sensitivity(here)).unsqueeze(-1)
    log_norm = gradient.log_norm()
    many = max(1, _CHUNK // (2 * elements * size))
    columns = []
    for moves in torch.eye(size, dtype=here.dtype, device=here.device).split(many):
        shift = moves.unsqueeze(1) * width
        both = part.gradient(torch.cat([here + shift, here - shift]))
        up, down = (both.mantissa * (both.log_scale - log_norm).exp().unsqueeze(-1)).chunk(2)
        columns.append((up - down) / (2 * width))
    matrix = torch.cat(columns).movedim(0, -1)
    return (matrix + matrix.mT) / 2


def projected_gradient(
    landscape: WeightsLandscape,
    theta: Float[Tensor, "elements size"],
    project: Callable[[Tensor, Tensor], Tensor],
    residual: Callable[[WeightsLandscape, Tensor, Tensor], Tensor],
    iterations: int,
    tolerance: float,
) -> Float[Tensor, "elements size"]:
    """Accelerated projected steps along the unit gradient, with restarts; each element estimates its own step size.

    `project` maps (points, element indices) to the nearest admissible points, `residual` measures stationarity of
    (landscape, points, element indices); an element stops below `tolerance`.
    """
    active, part = torch.arange(len(theta), device=theta.device), landscape
    theta = project(theta, active)
    best, point, ahead, old_ahead = (theta.clone() for _ in range(4))
    lowest, momentum = torch.full_like(theta[:, 0], torch.inf), torch.ones_like(theta[:, 0])
    step, old_direction = 1 / part.sensitivity(theta), torch.zeros_like(theta)
    for number in range(iterations):
        if number % 20 == 0:
            now = residual(part, point[active], active)
            improved = now < lowest[active]
            best[active[improved]] = point[active[improved]]
            lowest[active[improved]] = now[improved]
            going = now > tolerance
            if not bool(going.all()):
                part, active = part[torch.nonzero(going).flatten()], active[going]
                if active.numel() == 0:
                    break
        here = ahead[active]
        direction = part.gradient(here[None])[0].normalized()
        moved = torch.linalg.vector_norm(here - old_ahead[active], dim=-1)
        turned = torch.linalg.vector_norm(direction - old_direction[active], dim=-1)
        known = (moved > 0) & (number > 0)
        bound = torch.where(known & (turned > 0), moved / turned.clamp(min=1e-300), torch.inf)
        step[active] = torch.minimum(step[active] * 1.05, bound) if number else step[active]
        old_ahead[active], old_direction[active] = here, direction
        fresh = project(here - step[active].unsqueeze(-1) * direction, active)
        change = fresh - point[active]
        restart = ((here - fresh) * change).sum(-1) > 0
        grown = (1 + (1 + 4 * momentum[active].square()).sqrt()) / 2
        push = torch.where(restart, 0.0, (momentum[active] - 1) / grown)
        momentum[active] = torch.where(restart, 1.0, grown)
        ahead[active] = fresh + push.unsqueeze(-1) * change
        point[active] = fresh
    return best


def onto_cap(points: Tensor, centre: Tensor, cosine: float, radius: float) -> Tensor:
    """The nearest point of the cap { ||x|| = radius, cos(x, centre) >= cosine }, for unit centres."""
    unit = _unit(points)
    along = (unit * centre).sum(-1, keepdim=True)
    edge = cosine * centre + math.sqrt(1 - cosine**2) * _unit(unit - along * centre)
    return torch.where(along < cosine, edge, unit) * radius


def sphere_residual(
    theta: Tensor, gradient: ScaledTensor, centre: Tensor | None = None, cosine: float = -1.0
) -> tuple[Float[Tensor, "elements"], Bool[Tensor, "elements"]]:
    """Distance from stationarity on the sphere or a cap of it, and whether the cap's edge holds a pull outward."""
    tangent, multiplier = tangent_part(theta, gradient)
    edge = torch.zeros_like(multiplier, dtype=torch.bool)
    if centre is not None:
        unit = _unit(theta)
        along = (unit * centre).sum(-1, keepdim=True)
        outward = _unit(along * unit - centre)
        push = -(tangent * outward).sum(-1, keepdim=True)
        edge = ((along <= cosine + 1e-9) & (push > 0)).squeeze(-1)
        tangent = torch.where(edge.unsqueeze(-1), tangent + push * outward, tangent)
    off = tangent.square().sum(-1)
    return torch.where(edge | (multiplier > 0), off / (1 + multiplier.clamp(min=0)), 1 - multiplier), edge
