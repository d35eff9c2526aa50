"""Prediction rules that only the comparison uses, and `RULES`: every rule that ``benchmarks/prediction.py`` measures.

Families, cheapest claims first:

- ``closed form``: scores and at most the gradient at the start.
- ``svm``: SVMs of selections, solved exactly, and at most one tuned number.
- ``learned``: the same, with a few coefficients fitted to runs of descent on other data.
- ``path``: the regularization path around the start, solved radius by radius; no step of descent is taken, but the
  gradient is evaluated some hundred times.
- ``descent``: a short, coarse integration of descent itself (5 to 20 large steps), and called so.

The last two families, and the ascent that may follow any rule, ship with the package (`attsvm.theory.prediction`).
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attsvm.attention.gradient import attend
from attsvm.attention.linear_maps import flat_logits
from attsvm.data.checks import check_positive
from attsvm.data.dataset import replace_unchecked
from attsvm.svm.solution import SUPPORT_TOLERANCE
from attsvm.theory.prediction import Ascent, CoarseDescent, LocalPath, Rule, Situation
from attsvm.theory.prediction.rules import relaxed_svm


@dataclass(frozen=True)
class OptimalTokens(Rule):
    """The highest-scoring token of every input (the first of tied ones), whatever the start.

    Confidence: the smallest lead in score over an input's second best.
    """

    family: ClassVar[str] = "closed form"

    @property
    def name(self) -> str:
        return "optimal tokens"

    def select(self, problem: Situation) -> tuple[Tensor, Tensor]:
        top = problem.scores.topk(min(2, problem.data.T), -1).values
        lead = top[..., 0] - top[..., 1] if problem.data.T > 1 else torch.full_like(top[..., 0], math.inf)
        return problem.scores.argmax(-1), lead.amin(-1)


@dataclass(frozen=True)
class GradientStep(Rule):
    """The most probable tokens after one step of size `radius` (see `Situation.stride`) along the first gradient.

    Confidence: the smallest of their probabilities.
    """

    radius: float = 100.0
    family: ClassVar[str] = "closed form"

    def __post_init__(self) -> None:
        check_positive(self.radius, "radius")

    @property
    def name(self) -> str:
        return f"one gradient step of {self.radius:g}"

    def select(self, problem: Situation) -> tuple[Tensor, Tensor]:
        direction, reach = problem.direction(problem.start), problem.stride(self.radius)
        return problem.looked_at({name: value + reach * direction[name] for name, value in problem.start.items()})


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
        head = problem.head[torch.arange(count, device=device).repeat_interleave(n)]
        start = {name: value.repeat_interleave(n, 1) for name, value in problem.start.items()}
        alone = Situation(data, head, problem.loss, problem.parameterization, start)
        selected, confidence = self.each.select(alone)
        return selected.reshape(count, n), confidence.reshape(count, n).amin(-1)


@dataclass(frozen=True, eq=False)
class Candidates:
    """Locally optimal selections near the optimal one, those of all data sets one after the other.

    `reference` is the norm of the optimal selection's SVM (or the smallest there is), a data set's own unit of length.
    """

    element: Int[Tensor, "k"]
    selected: Int[Tensor, "k n"]
    weights: Float[Tensor, "k d dq"]
    norm: Float[Tensor, "k"]
    rival: Float[Tensor, "k"]
    reference: Float[Tensor, "k"]

    @property
    def directions(self) -> Float[Tensor, "k d dq"]:
        """W_mm / ||W_mm||."""
        return self.weights / self.norm.clamp(min=1e-300)[:, None, None]


class Nearby(Rule):
    """The best-rated locally optimal selection among the optimal one and its neighbours.

    Neighbours differ in one or two inputs, which take their second or third best token (runs at n=6 T=8 d=10: 98.5 %
    end there). Confidence: the lead in rating over the second.
    """

    family: ClassVar[str] = "svm"

    @abstractmethod
    def rate(self, problem: Situation, candidates: Candidates) -> Float[Tensor, "k"]:
        """One number per candidate; larger is better."""

    def select(self, problem: Situation) -> tuple[Tensor, Tensor]:
        candidates = nearby_candidates(problem)
        rating = self.rate(problem, candidates)
        count = problem.scores.shape[0]

        def best(values: Tensor) -> Tensor:
            lowest = torch.full((count,), -math.inf, dtype=values.dtype, device=values.device)
            return lowest.scatter_reduce(0, candidates.element, values, "amax")

        top = best(rating)
        wins = rating == top[candidates.element]
        selected = problem.scores.argmax(-1)
        selected[candidates.element[wins]] = candidates.selected[wins]
        return selected, (top - best(rating.masked_fill(wins, -math.inf))).nan_to_num(0.0, math.inf)


@dataclass(frozen=True)
class SmallestNorm(Nearby):
    """The nearby locally optimal selection of the largest margin."""

    @property
    def name(self) -> str:
        return "nearby, smallest SVM norm"

    def rate(self, problem: Situation, candidates: Candidates) -> Tensor:
        return -candidates.norm


@dataclass(frozen=True)
class AlignedWithGradient(Nearby):
    """The nearby locally optimal selection whose W_mm is closest in angle to the first change of W."""

    @property
    def name(self) -> str:
        return "nearby, aligned with the first gradient"

    def rate(self, problem: Situation, candidates: Candidates) -> Tensor:
        return _inner(first_change(problem)[candidates.element], candidates.directions)


@dataclass(frozen=True)
class LowestRisk(Nearby):
    """The nearby locally optimal selection of lowest risk at ``W(0) + R W_mm / ||W_mm||``.

    R is `margin` times the norm of the optimal selection's SVM: a finite length, at which selections of lower score and
    larger margin may still be ahead. Short R favours margins, R -> infinity the optimal tokens.
    """

    margin: float = 4.0

    def __post_init__(self) -> None:
        check_positive(self.margin, "margin")

    @property
    def name(self) -> str:
        return f"nearby, lowest risk at margin {self.margin:g}"

    def rate(self, problem: Situation, candidates: Candidates) -> Tensor:
        return -_risk_at(problem, candidates, self.margin)


@dataclass(frozen=True)
class LearnedChoice(Nearby):
    """A conditional logistic regression over the nearby locally optimal selections; the only fitted rule.

    Fitted by ``python -m benchmarks.prediction --learn`` to runs of descent on sphere data with seeds below 1000.
    Features are `learned_features`. Confidence: the lead in log-odds.
    """

    family: ClassVar[str] = "learned"

    @property
    def name(self) -> str:
        return "nearby, learned"

    def rate(self, problem: Situation, candidates: Candidates) -> Tensor:
        features = learned_features(problem, candidates)
        return sum(weight * features[name] for name, weight in LEARNED.items())  # type: ignore[return-value]


_RISK_MARGINS = (1, 2, 3, 4, 6)
LEARNED = {
    "risk at 1": -1.126,
    "risk at 2": -2.967,
    "risk at 3": -3.359,
    "risk at 4": -2.948,
    "risk at 6": -2.421,
    "gradient cosine": 14.58,
    "start along it": 1.762,
    "log norm": -4.346,
    "inputs not optimal": 0.2682,
    "nearness of a rival": -2.071,
    "total score": 2.767,
}


def learned_features(problem: Situation, candidates: Candidates) -> dict[str, Float[Tensor, "k"]]:
    """What `LearnedChoice` reads of each candidate: risks at five lengths, and six numbers more."""
    data, taken = problem.data, candidates.element
    features = {f"risk at {margin}": data.n * _risk_at(problem, candidates, margin) for margin in _RISK_MARGINS}
    chosen = problem.scores[taken].gather(-1, candidates.selected.unsqueeze(-1)).sum((-1, -2))
    return features | {
        "gradient cosine": _inner(first_change(problem)[taken], candidates.directions),
        "start along it": _inner(start_weights(problem)[taken], candidates.directions),
        "log norm": candidates.norm.clamp(min=1e-300).log(),
        "inputs not optimal": (candidates.selected != problem.scores.argmax(-1)[taken]).sum(-1).double(),
        "nearness of a rival": 1 / candidates.rival,
        "total score": chosen,
    }


def nearby_candidates(problem: Situation) -> Candidates:
    """The optimal selection, swaps of one input, and of two inputs whose single swaps are locally optimal."""
    data, scores = problem.data, problem.scores
    order = scores.argsort(dim=-1, descending=True, stable=True)
    swaps = [(i, rank) for i in range(data.n) for rank in (1, 2) if rank < data.T]
    every = torch.arange(scores.shape[0], device=scores.device)

    def swapped(elements: Tensor, *changes: tuple[int, int]) -> Tensor:
        selected = order[elements, :, 0].clone()
        for i, rank in changes:
            selected[:, i] = order[elements, i, rank]
        return selected

    def real(elements: Tensor, *changes: tuple[int, int]) -> Tensor:
        kept = torch.ones_like(elements, dtype=torch.bool)
        for i, rank in changes:
            kept &= torch.isfinite(scores[elements, i, order[elements, i, rank]])
        return elements[kept]

    groups = [(every, ()), *((real(every, change), (change,)) for change in swaps)]
    ones = _judged(problem, groups, swapped)
    alone = torch.zeros(len(swaps), scores.shape[0], dtype=torch.bool, device=scores.device)
    for k, (i, rank) in enumerate(swaps):
        hit = ones.selected[:, i] == order[ones.element, i, rank]
        alone[k, ones.element[hit]] = True
    pairs = [(j, k) for j, k in itertools.combinations(range(len(swaps)), 2) if swaps[j][0] != swaps[k][0]]
    twos = _judged(problem, [(every[alone[j] & alone[k]], (swaps[j], swaps[k])) for j, k in pairs], swapped)
    element, norm = (torch.cat([getattr(part, name) for part in (ones, twos)]) for name in ("element", "norm"))
    optimal = torch.cat([torch.isinf(part.rival) for part in (ones, twos)])
    smallest = torch.full((scores.shape[0],), math.inf, dtype=norm.dtype, device=norm.device)
    smallest = smallest.scatter_reduce(0, element, norm, "amin")
    smallest[element[optimal]] = norm[optimal]
    return Candidates(
        element,
        torch.cat([ones.selected, twos.selected]),
        torch.cat([ones.weights, twos.weights]),
        norm,
        torch.cat([ones.rival, twos.rival]),
        smallest[element],
    )


def _judged(
    problem: Situation, groups: list[tuple[Tensor, tuple[tuple[int, int], ...]]], swapped: Callable[..., Tensor]
) -> Candidates:
    """The locally optimal ones among groups of (data sets, changes)."""
    none = problem.scores.argmax(-1)[:0]
    element = torch.cat([elements for elements, _ in groups] or [none[:, 0]])
    selected = torch.cat([swapped(elements, *changes) for elements, changes in groups] or [none])
    weights, margins = relaxed_svm(problem, element, selected)
    higher = problem.scores[element] > problem.scores[element].gather(-1, selected.unsqueeze(-1))
    rival = margins.masked_fill(~higher, math.inf).flatten(1).amin(-1)
    norm = torch.linalg.matrix_norm(weights)
    kept = (rival > 1 + SUPPORT_TOLERANCE) & torch.isfinite(norm)
    return Candidates(element[kept], selected[kept], weights[kept], norm[kept], rival[kept], norm[kept])


def _risk_at(problem: Situation, candidates: Candidates, margin: float) -> Float[Tensor, "k"]:
    some = problem.data[candidates.element]
    own = problem.head[candidates.element]
    reach = (margin * candidates.reference)[:, None, None]
    weights = start_weights(problem)[candidates.element] + reach * candidates.directions
    return problem.loss.value(attend(some, own, flat_logits(some, weights[None])).margin[0]).mean(-1)


def start_weights(problem: Situation) -> Float[Tensor, "batch d dq"]:
    """W at the start."""
    return problem.parameterization.weights(problem.start)[0]


def first_change(problem: Situation) -> Float[Tensor, "batch d dq"]:
    """The direction in which W leaves the start, of norm 1."""
    start, step = problem.start, problem.direction(problem.start)
    ahead, behind = ({name: start[name] + sign * step[name] for name in step} for sign in (1, -1))
    # Exact for W and for products: the part of second order is the same on both sides.
    change = (problem.parameterization.weights(ahead) - problem.parameterization.weights(behind))[0]
    return change / torch.linalg.matrix_norm(change).clamp(min=1e-300)[:, None, None]


def _inner(left: Tensor, right: Tensor) -> Tensor:
    return (left * right).sum((-1, -2))


RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        OptimalTokens(),
        GradientStep(1.0),
        GradientStep(100.0),
        Ascent(GradientStep(100.0)),
        SmallestNorm(),
        AlignedWithGradient(),
        LowestRisk(2.0),
        LowestRisk(4.0),
        LowestRisk(6.0),
        LearnedChoice(),
        SeparateInputs(LocalPath()),
        LocalPath(),
        Ascent(LocalPath()),
        CoarseDescent(5, 2.0, 1.3),
        Ascent(CoarseDescent(5, 2.0, 1.3)),
        CoarseDescent(10, 1.0, 1.1),
        Ascent(CoarseDescent(10, 1.0, 1.1)),
        CoarseDescent(20),
        Ascent(CoarseDescent(20)),
    )
}
