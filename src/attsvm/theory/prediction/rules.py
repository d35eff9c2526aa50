"""Rules of prediction that follow the risk away from the start: the local regularization path, and coarse descent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from attsvm.data.checks import check_count, check_positive
from attsvm.data.dataset import replace_unchecked
from attsvm.theory.prediction.situation import Parameters, Rule, Situation


@dataclass(frozen=True)
class SeparateInputs(Rule):
    """Another rule on every input alone: what would be right if the queries were orthogonal.

    Confidence: the smallest of the inputs'.
    """

    each: Rule

    @property
    def family(self) -> str:  # type: ignore[override]
        """That of the other rule."""
        return self.each.family

    @property
    def name(self) -> str:
        return f"every input alone: {self.each.name}"

    def select(self, problem: Situation) -> tuple[Tensor, Tensor]:
        count, n = problem.data.batch_shape[0], problem.data.n
        device = problem.data.device
        each = problem.data.take_inputs(torch.arange(n, device=device).expand(count, n))  # no shared sequences

        def apart(tensor: Tensor) -> Tensor:
            return tensor.reshape(count * n, 1, *tensor.shape[2:])

        tokens = apart(each.tokens)
        data = replace_unchecked(
            each,
            tokens=tokens,
            queries=apart(each.queries),
            labels=apart(each.labels),
            mask=None if each.mask is None else apart(each.mask),
            values=tokens if each.values is each.tokens else apart(each.values),
            head=None,
        )
        head = problem.head_of(torch.arange(count, device=device).repeat_interleave(n))
        start = {name: value.repeat_interleave(n, 1) for name, value in problem.start.items()}
        alone = Situation(data, head, problem.loss, problem.parameterization, start)
        selected, confidence = self.each.select(alone)
        return selected.reshape(count, n), confidence.reshape(count, n).amin(-1)


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


def _unit(matrix: Tensor) -> Tensor:
    return matrix / torch.linalg.matrix_norm(matrix).clamp(min=1e-300)[..., None, None]
