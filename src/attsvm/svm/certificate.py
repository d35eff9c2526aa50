"""Proof of optimality or of infeasibility, computed from the data, the weights and the duals alone.

Nothing here knows which solver ran, what it claims, or in which coordinates it worked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.norms import Norm
from attsvm.svm.problem import AttentionSVM


@dataclass(frozen=True, eq=False)
class Certificate:
    """What the weights and duals prove; M is the combination of rows that the duals give."""

    primal_value: Float[Tensor, "*batch"]  #: N(W)
    #: no feasible W has a smaller norm: ``(b^T lam + c^T nu) / N°(M)`` with negative lam set to 0; inf where the duals
    #: are an exact ray of infeasibility
    dual_value: Float[Tensor, "*batch"]
    #: how far N(W), after scaling W to feasibility where that is allowed, lies above `dual_value`
    relative_gap: Float[Tensor, "*batch"]
    min_margin: Float[Tensor, "*batch"]  #: smallest ``margin / b`` over inequality rows with b > 0; inf without any
    #: largest shortfall of a row or miss of an equality, relative to 1 + |b|
    largest_violation: Float[Tensor, "*batch"]
    #: largest negative lam relative to the largest one, and how far N°(M) is from 1 (unless M is 0)
    dual_violation: Float[Tensor, "*batch"]
    #: ``||M||_F / sum_k |lam_k| ||A_k||_F``, the sum over the rows that earn b^T lam > 0 (and less where others cost):
    #: 0 for an exact ray of infeasibility, inf where nothing is earned. Rows with b = 0 may cancel each other at any
    #: size and prove nothing, so they do not count
    ray_residual: Float[Tensor, "*batch"]

    def proves_optimal(self, tolerance: float) -> Tensor:
        """Where weights and duals are feasible and within `tolerance` of each other."""
        return (
            (self.relative_gap.abs() <= tolerance)  # far below 0 only where W misses rows
            & (self.largest_violation <= tolerance)
            & (self.dual_violation <= tolerance)
        )

    def holds_ray(self, tolerance: float) -> Tensor:
        """Where the duals are a ray to `tolerance`: A*(lam) nearly vanishes while b^T lam > 0.

        Such a ray proves that no W of a norm below `dual_value` is feasible, not that there is none.
        """
        return (self.ray_residual <= tolerance) & (self.dual_value > 0)

    def __getitem__(self, index: Any) -> Certificate:
        return Certificate(**{name: value[index] for name, value in self.__dict__.items()})


def certify(
    problem: AttentionSVM, norm: Norm, weights: Float[Tensor, "*batch d dq"], duals: Float[Tensor, "*batch n T"]
) -> Certificate:
    """Compute the certificate of a pair (W, duals) in float64 from the original data."""
    weights, duals = weights.to(torch.float64), duals.to(torch.float64)
    combined = problem.combine(signed(problem, duals))
    return certificate_of(problem, norm, weights, duals, problem.margins(weights), combined)


def signed(problem: AttentionSVM, duals: Tensor) -> Tensor:
    """The duals of rows, negative ones of inequality rows set to 0."""
    return torch.where(problem.equalities, duals, duals.clamp(min=0.0)).masked_fill(~problem.rows, 0.0)


def certificate_of(
    problem: AttentionSVM, norm: Norm, weights: Tensor, duals: Tensor, margins: Tensor, combined: Tensor
) -> Certificate:
    """`certify` where the margins of the weights, and M of the duals with their signs, are known already."""
    lam, sides = signed(problem, duals), problem.right_hand_side
    size = norm.dual_value(combined)
    rewards = lam * sides
    reward, earned = rewards.sum((-1, -2)), rewards.clamp(min=0.0)
    dual_value = torch.where(reward > 0, torch.where(size == 0, torch.inf, reward / size), 0.0)

    miss = torch.where(problem.equalities, (margins - sides).abs(), (sides - margins).clamp(min=0.0))
    violation = (miss / (1 + sides.abs())).masked_fill(~problem.rows, 0.0).amax((-1, -2))
    min_margin = problem.smallest_ratio(margins)

    value = norm.value_beside(weights, combined)
    short = problem.scalable & (min_margin > 0) & (min_margin < 1)
    upper = torch.where(min_margin > 0, torch.where(short, value / min_margin, value), torch.inf)
    nothing = (upper == 0) & (dual_value == 0)
    gap = torch.where(nothing, 0.0, (upper - dual_value) / dual_value)

    negative = (-duals).masked_fill(~problem.inequalities, 0.0).amax((-1, -2)).clamp(min=0.0)
    weight = (lam.abs() * problem.row_norms).masked_fill(earned == 0, 0.0).sum((-1, -2))
    weight = weight * (reward / earned.sum((-1, -2))).nan_to_num()
    left = torch.linalg.matrix_norm(combined)
    residual = torch.where(weight > 0, left / weight, torch.where(left == 0, 0.0, torch.inf))
    off = torch.where(size > 0, (size - 1).abs(), 0.0)
    return Certificate(
        primal_value=value,
        dual_value=dual_value,
        relative_gap=gap.masked_fill(gap.isnan(), torch.inf),
        min_margin=min_margin,
        largest_violation=violation,
        dual_violation=torch.maximum(negative / duals.abs().amax((-1, -2)).clamp(min=1e-300), off),
        ray_residual=residual.masked_fill(reward <= 0, torch.inf),
    )
