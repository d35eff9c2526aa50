"""The prediction rules that ship: the local regularization path, coarse descent, and the ascent after either.

The benchmark that compares them with others, ``python -m benchmarks.prediction``, has its own in
``benchmarks/prediction_rules.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attsvm.attention.linear_maps import flat_logits
from attsvm.data.checks import check_count, check_positive
from attsvm.svm import AttentionSVM, solve
from attsvm.svm.solution import SUPPORT_TOLERANCE
from attsvm.theory.prediction.situation import Parameters, Rule, Situation


@dataclass(frozen=True)
class LocalPath(Rule):
    """The branch of the regularization path that begins at the start.

    For growing radii R it solves min L(W) over ||W - W(0)||_F <= R, from the solution before: stationary points are

        W = W(0) + R D,     D = -grad L(W) / ||grad L(W)||,

    found by the damped iteration of this equation (conditional gradient). No time, no step size and no history of the
    descent enters: only where minima of the risk lie. (K,Q): both factors, each on its own sphere around its start.

    Arguments:
        radii: how many, geometric from `smallest` to `largest`, in the unit of `Situation.stride`.
        iterations: of the equation at every radius. With fewer, D keeps a memory and the rule turns into a coarse
            descent, which is more often right: honest only under that name.
        damping: share of the new D.

    Confidence: the share of radii at which every input already has the winner it has at the last; a weak sign (the
    benchmark shows the accuracy of the surer half).
    """

    radii: int = 9
    smallest: float = 1.0
    largest: float = 15.0
    iterations: int = 40
    damping: float = 0.05
    family: ClassVar[str] = "path"

    def __post_init__(self) -> None:
        check_count(self.radii, "radii")
        check_count(self.iterations, "iterations")
        check_positive(self.smallest, "smallest")
        if not self.smallest <= self.largest < math.inf:
            raise ValueError(f"largest must be finite and at least smallest, {self.smallest:g}; got {self.largest!r}")
        if not 0 < self.damping <= 1:
            raise ValueError(f"damping must lie in (0, 1]; got {self.damping!r}")

    @property
    def name(self) -> str:
        return f"local path, {self.radii} radii to {self.largest:g}"

    def select(self, problem: Situation) -> tuple[Tensor, Tensor]:
        points = self.points(problem)
        winners = torch.stack([problem.looked_at(point)[0] for point in points])
        return winners[-1], (winners == winners[-1]).all(-1).double().mean(0)

    def points(self, problem: Situation) -> list[Parameters]:
        """The parameters at every radius."""
        towards = problem.direction(problem.start)
        points = []
        for k in range(self.radii):
            radius = self.smallest * (self.largest / self.smallest) ** (k / max(1, self.radii - 1))
            reach = problem.stride(radius)
            for _ in range(self.iterations):
                here = {name: value + reach * towards[name] for name, value in problem.start.items()}
                fresh = problem.direction(here)
                towards = {
                    name: _unit((1 - self.damping) * towards[name] + self.damping * fresh[name]) for name in here
                }
            points.append({name: value + reach * towards[name] for name, value in problem.start.items()})
        return points


@dataclass(frozen=True)
class CoarseDescent(Rule):
    """A short integration of normalized descent: a few large steps of growing size. Descent, made cheap.

    Arguments:
        steps: how many.
        first: size of the first, in the unit of `Situation.stride`.
        growth: each step is so many times the one before.

    Confidence: the smallest probability of a winning token at the end.
    """

    steps: int = 20
    first: float = 0.5
    growth: float = 1.1
    family: ClassVar[str] = "descent"

    def __post_init__(self) -> None:
        check_count(self.steps, "steps")
        check_positive(self.first, "first")
        check_positive(self.growth, "growth")

    @property
    def name(self) -> str:
        return f"{self.steps} coarse steps of descent"

    def select(self, problem: Situation) -> tuple[Tensor, Tensor]:
        here, length = problem.start, 0.0
        for k in range(self.steps):
            longer = length + self.first * self.growth**k
            step = problem.stride(longer) - (problem.stride(length) if length else 0)
            direction = problem.direction(here)
            here = {name: value + step * direction[name] for name, value in here.items()}
            length = longer
        return problem.looked_at(here)


@dataclass(frozen=True)
class Ascent(Rule):
    """Another rule's selection, changed token by token until it is locally optimal.

    Saturated attention at alpha moves along the max-margin direction against the tokens it must beat, the lower-scoring
    ones; a higher-scoring token whose margin there is not above 1 gains weight and takes over. So: solve the SVM of
    alpha with lower-scoring rows only; among higher-scoring tokens of margin m <= 1 swap in the one that pulls hardest,
    the largest (gamma_t - gamma_alpha) exp(-sharpness m); repeat. The total score grows with every swap, so it ends,
    and it ends locally optimal (or at the optimal tokens, where those cannot be separated).

    Confidence: the other rule's.
    """

    first: Rule
    sharpness: float = 3.0

    def __post_init__(self) -> None:
        if not isinstance(self.first, Rule):
            raise ValueError(f"first must be a rule such as LocalPath(); got {self.first!r}")
        check_positive(self.sharpness, "sharpness")

    @property
    def family(self) -> str:  # type: ignore[override]
        """That of the rule it starts from, and at least "svm"."""
        return "svm" if self.first.family == "closed form" else self.first.family

    @property
    def name(self) -> str:
        return f"{self.first.name}, then ascent"

    def select(self, problem: Situation) -> tuple[Tensor, Tensor]:
        selected, confidence = self.first.select(problem)
        selected = selected.clone()
        left = torch.arange(selected.shape[0], device=selected.device)
        while left.numel():
            now = selected[left]
            _, margins = relaxed_svm(problem, left, now)
            gain = problem.scores[left] - problem.scores[left].gather(-1, now.unsqueeze(-1))
            pulls = (gain > 0) & ((margins <= 1 + SUPPORT_TOLERANCE) | margins.isnan())
            # Where even the lower-scoring tokens cannot be beaten, every margin counts as 0.
            strength = gain.clamp(min=1e-300).log() - self.sharpness * margins.nan_to_num(0.0, 0.0, 0.0)
            best = strength.masked_fill(~pulls, -math.inf).flatten(1).argmax(-1)
            moves = pulls.flatten(1).any(-1)
            left, best = left[moves], best[moves]
            selected[left, best // problem.data.T] = best % problem.data.T
        return selected, confidence


def relaxed_svm(
    problem: Situation, element: Int[Tensor, "k"], selected: Int[Tensor, "k n"]
) -> tuple[Float[Tensor, "k d dq"], Float[Tensor, "k n T"]]:
    """The SVM of selections of ``problem.data[element]`` with rows against lower-scoring tokens only.

    Returns:
        W ``[k, d, dq]``, and the margins of all tokens, also those without a row, ``[k, n, T]``; NaN where it has no
        solution.
    """
    scores = problem.scores[element]
    lower = torch.isfinite(scores) & (scores <= scores.gather(-1, selected.unsqueeze(-1)))
    some = problem.data[element]
    if element.numel() == 0:
        return torch.zeros(0, some.d, some.dq, dtype=some.dtype, device=some.device), torch.zeros_like(scores)
    weights = solve(AttentionSVM(some, selected, rows=lower)).weights
    logits = flat_logits(some, weights[None])[0]
    return weights, logits.gather(-1, selected.unsqueeze(-1)) - logits


def _unit(matrix: Tensor) -> Tensor:
    return matrix / torch.linalg.matrix_norm(matrix).clamp(min=1e-300)[..., None, None]
