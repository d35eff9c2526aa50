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
from attsvm.theory.paths.landscapes import Elements, Landscape, WeightsLandscape, across

_TANGENT_TOLERANCE = 1e-8
_CHUNK = 1_000_000


def tangent_part(theta: Tensor, gradient: ScaledTensor) -> tuple[Tensor, Tensor]:
    """The unit gradient's part along the sphere, and the multiplier cos(theta, -gradient)."""
    unit = theta / torch.linalg.vector_norm(theta, dim=-1, keepdim=True).clamp(min=1e-300)
    direction = gradient.normalized()
    along = (direction * unit).sum(-1, keepdim=True)
    return direction - along * unit, -along.squeeze(-1)


@dataclass(frozen=True)
class PowerBall:
    """The ball of the l_p norm of theta, 1 < p < inf; p = 2 is the Euclidean one."""

    p: float = 2.0

    def length(self, theta: Float[Tensor, "*lead size"]) -> Float[Tensor, "*lead"]:
        """The norm."""
        largest = theta.abs().amax(-1, keepdim=True).clamp(min=1e-300)
        return largest.squeeze(-1) * torch.linalg.vector_norm(theta / largest, ord=self.p, dim=-1)

    def on_boundary(self, theta: Tensor, radius: Tensor) -> Tensor:
        """theta scaled to norm `radius`."""
        length = self.length(theta).unsqueeze(-1)
        return theta * (radius.unsqueeze(-1) / torch.where(length > 0, length, torch.ones_like(length)))

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
    """Points of a ball, one per element, and where the gradient lets each of them go.

    `tangent` is the part of the unit gradient that the ball lets a point follow, `bound` says whether the boundary
    holds it, `multiplier` how hard, `normal` is the unit normal of the boundary.
    """

    theta: Float[Tensor, "elements size"]
    radius: Float[Tensor, "elements"]
    gradient: ScaledTensor
    normal: Float[Tensor, "elements size"]
    tangent: Float[Tensor, "elements size"]
    bound: Bool[Tensor, "elements"]
    multiplier: Float[Tensor, "elements"]

    @classmethod
    def at(cls, landscape: Landscape, ball: PowerBall, theta: Tensor, radius: Tensor) -> _Point:
        """The points `theta` of the balls of these radii."""
        gradient = landscape.gradient_at(theta)
        direction = gradient.normalized()
        normal = ball.normal(theta)
        normal = normal / torch.linalg.vector_norm(normal, dim=-1, keepdim=True).clamp(min=1e-300)
        along = (direction * normal).sum(-1, keepdim=True)
        multiplier = -(direction * theta).sum(-1) / radius
        bound = (ball.length(theta) >= radius * (1 - 1e-9)) & (multiplier >= 0)
        tangent = torch.where(bound.unsqueeze(-1), direction - along * normal, direction)
        return cls(theta, radius, gradient, normal, tangent, bound, multiplier)


def newton_in_ball(
    landscape: Landscape,
    theta: Float[Tensor, "elements size"],
    radius: Float[Tensor, "elements"],
    iterations: int,
    *,
    ball: PowerBall = PowerBall(),  # noqa: B008 - immutable
) -> Float[Tensor, "elements size"]:
    """Damped Newton steps in the ball ||theta||_p <= radius, every element for itself, until it is stationary.

    An element moves along the sphere while the negative gradient points outward, and leaves it when it points inward.
    Second derivatives are central differences of the saturation-proof gradient, divided by its norm; Levenberg's
    damping keeps the matrix positive definite and the value falling.
    """
    theta = ball.on_boundary(theta, radius)
    damping = torch.full_like(radius, 1e-3)
    resting = torch.zeros_like(radius, dtype=torch.bool)
    active = torch.arange(theta.shape[0], device=theta.device)
    part = landscape
    for _ in range(iterations):
        point = _Point.at(part, ball, theta[active], radius[active])
        still = point.bound & (torch.linalg.vector_norm(point.tangent, dim=-1) <= _TANGENT_TOLERANCE)
        going = ~still & ~resting[active] & (point.gradient.mantissa != 0).any(-1)
        if not bool(going.all()):
            going = torch.nonzero(going).flatten()
            active, part, point = active[going], part[going], point[going]
            if active.numel() == 0:
                break
        moved, damping[active] = _newton_step(part, ball, point, damping[active])
        length = torch.linalg.vector_norm(moved - point.theta, dim=-1)
        # Round-off: steps that change nothing, or damping that allows none.
        resting[active] = ((length > 0) & (length < 1e-12 * point.radius)) | (damping[active] > 1e4)
        theta[active] = moved
    return theta


def _newton_step(part: Landscape, ball: PowerBall, point: _Point, damping: Tensor) -> tuple[Tensor, Tensor]:
    """The next points (unmoved where the step helps nothing), and the damping to go on with."""
    here, bound = point.theta, point.bound
    normal = torch.where(bound.unsqueeze(-1), point.normal, 0.0)
    outer = normal.unsqueeze(-1) * normal.unsqueeze(-2)
    eye = torch.eye(here.shape[-1], dtype=here.dtype, device=here.device)
    project = eye - outer
    bend = torch.where(bound, point.multiplier, 0.0).unsqueeze(-1) * ball.curvature(here)
    matrix = project @ (_second_derivatives(part, here, point.gradient) + torch.diag_embed(bend)) @ project
    level = matrix.diagonal(dim1=-2, dim2=-1).abs().mean(-1).clamp(min=1e-300)
    matrix = matrix + level[:, None, None] * outer
    factor, damping = _damped_factor(matrix, level, damping)
    step = -torch.cholesky_solve(point.tangent.unsqueeze(-1), factor).squeeze(-1)
    trial = here + step
    outside = bound | (ball.length(trial) > point.radius)
    trial = torch.where(outside.unsqueeze(-1), ball.on_boundary(trial, point.radius), trial)
    better = _improves(part, ball, point, trial)
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


def _improves(part: Landscape, ball: PowerBall, point: _Point, trial: Tensor) -> Bool[Tensor, "elements"]:
    """Lower value; where both agree to round-off, not past the minimum along the way, or closer to stationary."""
    before, after = part.value(torch.stack([point.theta, trial]))
    left = _Point.at(part, ball, trial, point.radius).tangent
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
    theta = theta.clone()
    active = torch.arange(theta.shape[0], device=theta.device)
    part = landscape
    theta = project(theta, active)
    best, lowest = theta.clone(), torch.full_like(theta[:, 0], torch.inf)
    point, ahead = theta.clone(), theta.clone()
    momentum = torch.ones_like(theta[:, 0])
    step = 1 / part.sensitivity(theta)
    old_ahead, old_direction = ahead.clone(), torch.zeros_like(theta)
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
        direction = part.gradient_at(here).normalized()
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


def onto_cap(points: Tensor, centre: Tensor, cosine: float, radius: Tensor) -> Tensor:
    """The nearest point of the cap { ||x|| = radius, cos(x, centre) >= cosine }, for unit centres."""
    unit = points / torch.linalg.vector_norm(points, dim=-1, keepdim=True).clamp(min=1e-300)
    along = (unit * centre).sum(-1, keepdim=True)
    sideways = across(unit, centre)
    sideways = sideways / torch.linalg.vector_norm(sideways, dim=-1, keepdim=True).clamp(min=1e-300)
    edge = cosine * centre + math.sqrt(1 - cosine**2) * sideways
    return torch.where(along < cosine, edge, unit) * radius.unsqueeze(-1)


def cap_residual(
    theta: Float[Tensor, "elements size"], gradient: ScaledTensor, centre: Float[Tensor, "elements size"], cosine: float
) -> tuple[Float[Tensor, "elements"], Bool[Tensor, "elements"]]:
    """Distance from stationarity on the cap, and whether its edge binds: there a pull outward is held by the cone."""
    tangent, multiplier = tangent_part(theta, gradient)
    unit = theta / torch.linalg.vector_norm(theta, dim=-1, keepdim=True)
    along = (unit * centre).sum(-1, keepdim=True)
    outward = along * unit - centre
    outward = outward / torch.linalg.vector_norm(outward, dim=-1, keepdim=True).clamp(min=1e-300)
    push = -(tangent * outward).sum(-1, keepdim=True)
    edge = (along <= cosine + 1e-9) & (push > 0)
    off = torch.where(edge, tangent + push * outward, tangent).square().sum(-1)
    edge = edge.squeeze(-1)
    residual = torch.where(edge | (multiplier > 0), off / (1 + multiplier.clamp(min=0)), 1 - multiplier)
    return residual, edge
