"""Euclidean projection onto the l_p ball, 1 < p < inf: no closed form, so a safeguarded Newton method."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_INNER_STEPS = 9  # enough for round-off at every p from 1.001 to 1000; the start is within log 2 of the root
_OUTER_STEPS = 80  # Newton needs 2 to 13; bisection alone, its fallback, about 60


def project_onto_power_ball(values: Tensor, radius: Tensor, p: float) -> Tensor:
    """The nearest point x to `values` y >= 0 ``[*batch, k]`` with ||x||_p <= radius ``[*batch]``, radius > 0.

    Outside the ball x + mu x^(p-1) = y with ||x||_p = radius. With y in units of its largest entry, x in units of the
    radius and rho their ratio, every logarithm below is moderate, and the multiplier m = ||y - rho x||_q starts close:

        rho x + m x^(p-1) = y,   ||x||_p = 1,   m <= ||y||_q,   1/p + 1/q = 1.

    Both equations are solved in logarithms. The outer one, F(log m) = log ||x||_p = 0, is decreasing.
    """
    q = p / (p - 1)
    eps = torch.finfo(torch.float64).eps
    largest = values.double().amax(-1, keepdim=True)
    ratio = radius.double()[..., None] / largest
    log_values = (values.double() / largest).log()
    log_ratio = ratio.log()

    # The excess of log ||y||_p over log radius; where there is none the point is inside and stays.
    excess = (p * log_values).logsumexp(-1, keepdim=True) / p - log_ratio
    active = excess > 0
    excess = excess.clamp(min=eps)
    upper = (q * log_values).logsumexp(-1, keepdim=True) / q
    # ||y||_p - radius <= ||y - x||_p <= k^max(0, 1/p - 1/q) ||y - x||_q.
    lower = log_ratio + excess.expm1().log() - max(0.0, 1 / p - 1 / q) * math.log(values.shape[-1])
    lower, upper = torch.minimum(lower, upper) - 1e-9, upper + 1e-9
    # Exact if the projection were the radial one.
    multiplier = (upper + (-(-excess).expm1()).log()).clamp(lower, upper)

    last = torch.full_like(excess, torch.inf)
    tolerance = 2 * eps * (1 + log_ratio.abs())
    log_gain = _log_gain(log_values, log_ratio, multiplier, p)
    for _ in range(_OUTER_STEPS):
        log_powers = p * (log_values + log_gain)
        residual = log_powers.logsumexp(-1, keepdim=True) / p
        pull = (multiplier + (p - 2) * _finite(log_values) + (p - 1) * log_gain).exp()
        keep = (log_ratio + log_gain).exp()
        slope = -(log_powers.softmax(-1) * pull / (keep + (p - 1) * pull)).sum(-1, keepdim=True)
        pending = active & (residual.abs() > tolerance) & (upper - lower > tolerance)
        if not bool(pending.any()):
            break
        lower = torch.where(residual > 0, multiplier, lower)
        upper = torch.where(residual < 0, multiplier, upper)
        # F is nearly convex in m and nearly concave in log m: from the left a Newton step in m, from the right one in
        # log m, approach the root without crossing it.
        step = -residual / slope
        newton = multiplier + torch.where(step > 0, step.log1p(), step)
        trusted = (newton > lower) & (newton < upper) & (residual.abs() <= 0.5 * last)
        multiplier = torch.where(pending, torch.where(trusted, newton, (lower + upper) / 2), multiplier)
        last = residual.abs()
        log_gain = _log_gain(log_values, log_ratio, multiplier, p)

    nearest = radius.double()[..., None] * (values.double() / largest) * log_gain.exp()
    return torch.where(active, nearest.to(values.dtype), values)


def _log_gain(log_values: Tensor, log_ratio: Tensor, multiplier: Tensor, p: float) -> Tensor:
    """g = log(x / y) entry by entry: the root of log(rho e^g + m y^(p-2) e^((p-1) g)) = 0, convex increasing in g."""
    pull = multiplier + (p - 2) * _finite(log_values)
    # Either term alone gives a start to the right of the root, whence Newton descends to it.
    gain = torch.minimum(-log_ratio, -pull / (p - 1))
    for _ in range(_INNER_STEPS):
        first, second = log_ratio + gain, pull + (p - 1) * gain
        share = torch.sigmoid(second - first)
        gain = gain - torch.logaddexp(first, second) / (1 - share + (p - 1) * share)
    return gain


def _finite(logarithm: Tensor) -> Tensor:
    """The logarithm of 0 as a number below every other one, so that zero entries stay zero without NaNs."""
    return logarithm.clamp(min=-2000.0)
