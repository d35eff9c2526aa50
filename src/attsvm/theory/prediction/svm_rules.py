"""Rules of prediction that solve the SVMs of selections: ascent, and the choice among nearby local optima."""

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
from attsvm.svm import AttentionSVM, solve
from attsvm.theory.prediction.situation import Rule, Situation

_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Ascent(Rule):
    """Another rule's selection, swapped upwards until it is locally optimal.

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
            _, margins = _relaxed_svm(problem, left, now)
            gain = problem.scores[left] - problem.scores[left].gather(-1, now.unsqueeze(-1))
            pulls = (gain > 0) & ((margins <= 1 + _TOLERANCE) | margins.isnan())
            # Where even the lower-scoring tokens cannot be beaten, every margin counts as 0.
            strength = gain.clamp(min=1e-300).log() - self.sharpness * margins.nan_to_num(0.0, 0.0, 0.0)
            best = strength.masked_fill(~pulls, -math.inf).flatten(1).argmax(-1)
            moves = pulls.flatten(1).any(-1)
            left, best = left[moves], best[moves]
            selected[left, best // problem.data.T] = best % problem.data.T
        return selected, confidence


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
        """One number a candidate, larger is better."""

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
        return _inner(problem.first_change()[candidates.element], candidates.directions)


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
        "gradient cosine": _inner(problem.first_change()[taken], candidates.directions),
        "start along it": _inner(problem.weights[taken], candidates.directions),
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
    weights, margins = _relaxed_svm(problem, element, selected)
    higher = problem.scores[element] > problem.scores[element].gather(-1, selected.unsqueeze(-1))
    rival = margins.masked_fill(~higher, math.inf).flatten(1).amin(-1)
    norm = torch.linalg.matrix_norm(weights)
    kept = (rival > 1 + _TOLERANCE) & torch.isfinite(norm)
    return Candidates(element[kept], selected[kept], weights[kept], norm[kept], rival[kept], norm[kept])


def _relaxed_svm(problem: Situation, element: Tensor, selected: Tensor) -> tuple[Tensor, Tensor]:
    """W of the SVM against the lower-scoring tokens only, and the margins of all tokens; NaN where there is none."""
    scores = problem.scores[element]
    lower = torch.isfinite(scores) & (scores <= scores.gather(-1, selected.unsqueeze(-1)))
    some = problem.data[element]
    if element.numel() == 0:
        return torch.zeros(0, some.d, some.dq, dtype=some.dtype, device=some.device), torch.zeros_like(scores)
    weights = solve(AttentionSVM(replace_unchecked(some, mask=lower), selected)).weights
    logits = flat_logits(some, weights[None])[0]
    return weights, logits.gather(-1, selected.unsqueeze(-1)) - logits


def _risk_at(problem: Situation, candidates: Candidates, margin: float) -> Float[Tensor, "k"]:
    some = problem.data[candidates.element]
    own = problem.head_of(candidates.element)
    reach = (margin * candidates.reference)[:, None, None]
    weights = problem.weights[candidates.element] + reach * candidates.directions
    return problem.loss.value(attend(some, own, flat_logits(some, weights[None])).margin[0]).mean(-1)


def _inner(left: Tensor, right: Tensor) -> Tensor:
    return (left * right).sum((-1, -2))
