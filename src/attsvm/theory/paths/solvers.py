"""Minimising a saturated risk over spheres and balls: Newton steps on the sphere, accelerated projected gradients.

At radius R the risk behaves like a log-sum-exp of R times the margins. Its logarithm has curvature of order one in the
rows it feels, and only |grad| / R in the others (the curvature of the sphere), so plain descent needs about R
iterations, an accelerated one sqrt(R), a Newton step a handful. None of them looks at the size of the gradient, which
is exp(-R margin): directions come from the mantissa, comparisons from the logarithm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attsvm.attention import ScaledTensor
from attsvm.theory.paths.problem import Landscape

TANGENT_TOLERANCE = 1e-8
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


def newton_in_ball(
    landscape: Landscape,
    theta: Float[Tensor, "elements size"],
    radius: Float[Tensor, "elements"],
    iterations: int,
    *,
    ball: PowerBall = PowerBall(),  # noqa: B008 - immutable
    tolerance: float = TANGENT_TOLERANCE,
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
        here, size = theta[active], radius[active]
        gradient = part.gradient_at(here)
        tangent, bound, multiplier = _feasible_part(ball, here, size, gradient)
        still = bound & (torch.linalg.vector_norm(tangent, dim=-1) <= tolerance)
        going = ~still & ~resting[active] & (gradient.mantissa != 0).any(-1)
        if not bool(going.all()):
            active, part = active[going], part.take(torch.nonzero(going).flatten())
            if active.numel() == 0:
                break
            here, size, tangent = here[going], size[going], tangent[going]
            bound, multiplier = bound[going], multiplier[going]
            gradient = ScaledTensor(gradient.mantissa[going], gradient.log_scale[going])
        moved, damping[active] = _newton_step(
            part, ball, here, size, gradient, tangent, bound, multiplier, damping[active]
        )
        length = torch.linalg.vector_norm(moved - here, dim=-1)
        # Round-off: steps that change nothing, or damping that allows none.
        resting[active] = ((length > 0) & (length < 1e-12 * size)) | (damping[active] > 1e4)
        theta[active] = moved
    return theta


def _feasible_part(
    ball: PowerBall, theta: Tensor, radius: Tensor, gradient: ScaledTensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The part of the unit gradient that the ball lets a point follow, whether its boundary binds, the multiplier."""
    direction = gradient.normalized()
    normal = ball.normal(theta)
    normal = normal / torch.linalg.vector_norm(normal, dim=-1, keepdim=True).clamp(min=1e-300)
    along = (direction * normal).sum(-1, keepdim=True)
    multiplier = -(direction * theta).sum(-1) / radius
    bound = (ball.length(theta) >= radius * (1 - 1e-9)) & (multiplier >= 0)
    return torch.where(bound.unsqueeze(-1), direction - along * normal, direction), bound, multiplier


def _newton_step(
    part: Landscape,
    ball: PowerBall,
    here: Tensor,
    size: Tensor,
    gradient: ScaledTensor,
    tangent: Tensor,
    bound: Tensor,
    multiplier: Tensor,
    damping: Tensor,
) -> tuple[Tensor, Tensor]:
    normal = ball.normal(here)
    normal = normal / torch.linalg.vector_norm(normal, dim=-1, keepdim=True).clamp(min=1e-300)
    normal = torch.where(bound.unsqueeze(-1), normal, 0.0)
    outer = normal.unsqueeze(-1) * normal.unsqueeze(-2)
    eye = torch.eye(here.shape[-1], dtype=here.dtype, device=here.device)
    project = eye - outer
    bend = torch.where(bound, multiplier, 0.0).unsqueeze(-1) * ball.curvature(here)
    matrix = project @ (_second_derivatives(part, here, gradient) + torch.diag_embed(bend)) @ project
    level = matrix.diagonal(dim1=-2, dim2=-1).abs().mean(-1).clamp(min=1e-300)
    matrix = matrix + level[:, None, None] * outer
    factor, damping = _damped_factor(matrix, level, damping)
    step = -torch.cholesky_solve(tangent.unsqueeze(-1), factor).squeeze(-1)
    trial = here + step
    outside = bound | (ball.length(trial) > size)
    trial = torch.where(outside.unsqueeze(-1), ball.on_boundary(trial, size), trial)
    better = _improves(part, ball, here, trial, size, tangent)
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


def _improves(
    part: Landscape, ball: PowerBall, here: Tensor, trial: Tensor, size: Tensor, tangent: Tensor
) -> Bool[Tensor, "elements"]:
    """Lower value; where both agree to round-off, not past the minimum along the way, or closer to stationary."""
    before, after = part.value(torch.stack([here, trial]))
    left, _, _ = _feasible_part(ball, trial, size, part.gradient_at(trial))
    round_off = 1e-13 * (1 + before.abs())
    smaller = torch.linalg.vector_norm(left, dim=-1) < torch.linalg.vector_norm(tangent, dim=-1)
    downhill = (left * (trial - here)).sum(-1) <= 0
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


Project = Callable[[Tensor, Tensor], Tensor]
"""(points ``[elements, size]``, element indices) -> the nearest admissible points."""


def projected_gradient(
    landscape: Landscape,
    theta: Float[Tensor, "elements size"],
    project: Project,
    residual: Callable[[Landscape, Tensor, Tensor], Tensor],
    iterations: int,
    tolerance: float,
) -> Float[Tensor, "elements size"]:
    """Accelerated projected steps along the unit gradient, with restarts; each element estimates its own step size.

    `residual` measures stationarity of (landscape, points, element indices); an element stops below `tolerance`.
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
                part, active = part.take(torch.nonzero(going).flatten()), active[going]
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
