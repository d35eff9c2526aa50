"""The entrywise l_p norms: the geometry of l_p mirror descent."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from numbers import Real

import torch
from torch import Tensor

from attsvm.norms.sizes import Entries


@dataclass(frozen=True)
class Entrywise(Entries):
    """||W||_p = (sum_ij |w_ij|^p)^(1/p), 1 < p < inf; dual to the exponent q with 1/p + 1/q = 1.

    Its steepest direction is sign(G) |G|^(q-1) / ||G||_q^(q-1). Projection has no closed form: a safeguarded Newton
    method solves it to about 1e-14 of the radius, in float64 for either type. `unitarily_invariant` is False for every
    p, also for p = 2, where Frobenius() is the same norm and says so.

    Arguments:
        p: the exponent, strictly between 1 and infinity.

    Raises:
        ValueError: if p is not such a number; the ends are SumEntry() (p = 1) and MaxEntry() (p = infinity).

    >>> W = torch.tensor([[3.0, 4.0], [5.0, 0.0]], dtype=torch.float64)
    >>> round(float(Entrywise(3).value(W)), 12)
    6.0
    >>> Entrywise(3), Entrywise(3).dual, Entrywise(3).name
    (Entrywise(p=3.0), Entrywise(p=1.5), 'l_3 entrywise')
    """

    p: float
    conjugate: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        p = float(self.p) if isinstance(self.p, Real) and not isinstance(self.p, bool) else math.nan
        ends = {1.0: "for p = 1 use SumEntry()", math.inf: "for p = infinity use MaxEntry()"}
        if not 1 < p < math.inf:
            raise ValueError(f"p must be strictly between 1 and infinity; {ends.get(p, f'got {self.p!r}')}")
        if p / (p - 1) == 1:
            raise ValueError(f"p = {p} is infinite to working precision (p / (p - 1) = 1): use MaxEntry()")
        vars(self).update(p=p, conjugate=p / (p - 1))

    @property
    def name(self) -> str:
        return f"l_{self.p:g} entrywise"

    @property
    def dual(self) -> Entrywise:
        """The norm of the conjugate exponent, which remembers p: q / (q - 1) may miss it by a rounding."""
        dual = Entrywise(self.conjugate)
        object.__setattr__(dual, "conjugate", self.p)
        return dual

    def _of_sizes(self, sizes: Tensor) -> Tensor:
        largest = sizes.amax(-1).clamp(min=1)  # so that no power overflows
        return largest * torch.linalg.vector_norm(sizes / largest[..., None], ord=self.p, dim=-1)

    def _steepest_sizes(self, sizes: Tensor) -> Tensor:
        powers = (sizes / sizes.amax(-1, keepdim=True).clamp(min=1)) ** (1 / (self.p - 1))
        length: Tensor = torch.linalg.vector_norm(powers, ord=self.p, dim=-1, keepdim=True)
        return powers / length.clamp(min=1)  # the largest power is 1, or all are zero

    def _project_sizes(self, sizes: Tensor, radius: Tensor) -> Tensor:
        """The nearest point x to `sizes` y >= 0 ``[*batch, k]`` with ||x||_p <= radius ``[*batch]``, radius > 0.

        Outside the ball x + mu x^(p-1) = y with ||x||_p = radius. With y in units of its largest entry, x in units of
        the radius and rho their ratio, every logarithm below is moderate, and the multiplier m = ||y - rho x||_q starts
        close:

            rho x + m x^(p-1) = y,   ||x||_p = 1,   m <= ||y||_q,   1/p + 1/q = 1.

        Both equations are solved in logarithms. The outer one, F(log m) = log ||x||_p = 0, is decreasing.
        """
        p, q = self.p, self.p / (self.p - 1)
        eps = torch.finfo(torch.float64).eps
        largest = sizes.double().amax(-1, keepdim=True)
        log_values = (sizes.double() / largest).log()
        finite = log_values.clamp(min=-2000.0)  # log 0 as a number below every other one: zero entries make no NaNs
        log_ratio = (radius.double()[..., None] / largest).log()

        # The excess of log ||y||_p over log radius; where there is none the point is inside and stays.
        excess = (p * log_values).logsumexp(-1, keepdim=True) / p - log_ratio
        active = excess > 0
        excess = excess.clamp(min=eps)
        upper = (q * log_values).logsumexp(-1, keepdim=True) / q
        # ||y||_p - radius <= ||y - x||_p <= k^max(0, 1/p - 1/q) ||y - x||_q.
        lower = log_ratio + excess.expm1().log() - max(0.0, 1 / p - 1 / q) * math.log(sizes.shape[-1])
        lower, upper = torch.minimum(lower, upper) - 1e-9, upper + 1e-9
        # Exact if the projection were the radial one.
        multiplier = (upper + (-(-excess).expm1()).log()).clamp(lower, upper)

        last = torch.full_like(excess, torch.inf)
        tolerance = 2 * eps * (1 + log_ratio.abs())
        log_gain = _log_gain(finite, log_ratio, multiplier, p)
        for _ in range(_OUTER_STEPS):
            log_powers = p * (log_values + log_gain)
            residual = log_powers.logsumexp(-1, keepdim=True) / p
            pull = (multiplier + (p - 2) * finite + (p - 1) * log_gain).exp()
            keep = (log_ratio + log_gain).exp()
            slope = -(log_powers.softmax(-1) * pull / (keep + (p - 1) * pull)).sum(-1, keepdim=True)
            pending = active & (residual.abs() > tolerance) & (upper - lower > tolerance)
            if not bool(pending.any()):
                break
            lower = torch.where(residual > 0, multiplier, lower)
            upper = torch.where(residual < 0, multiplier, upper)
            # F is nearly convex in m and nearly concave in log m: from the left a Newton step in m, from the right
            # one in log m, approach the root without crossing it.
            step = -residual / slope
            newton = multiplier + torch.where(step > 0, step.log1p(), step)
            trusted = (newton > lower) & (newton < upper) & (residual.abs() <= 0.5 * last)
            multiplier = torch.where(pending, torch.where(trusted, newton, (lower + upper) / 2), multiplier)
            last = residual.abs()
            log_gain = _log_gain(finite, log_ratio, multiplier, p)

        nearest = radius.double()[..., None] * (sizes.double() / largest) * log_gain.exp()
        return torch.where(active, nearest.to(sizes.dtype), sizes)


_INNER_STEPS = 9  # enough for round-off at every p from 1.001 to 1000; the start is within log 2 of the root
_OUTER_STEPS = 80  # Newton needs 2 to 13; bisection alone, its fallback, about 60


def _log_gain(log_values: Tensor, log_ratio: Tensor, multiplier: Tensor, p: float) -> Tensor:
    """g = log(x / y) entry by entry: the root of log(rho e^g + m y^(p-2) e^((p-1) g)) = 0, convex increasing in g."""
    pull = multiplier + (p - 2) * log_values
    # Either term alone gives a start to the right of the root, from where Newton descends to it.
    gain = torch.minimum(-log_ratio, -pull / (p - 1))
    for _ in range(_INNER_STEPS):
        first, second = log_ratio + gain, pull + (p - 1) * gain
        share = torch.sigmoid(second - first)
        gain = gain - torch.logaddexp(first, second) / (1 - share + (p - 1) * share)
    return gain
