"""Prediction rules that only the comparison uses, and `RULES`: every rule that ``benchmarks/prediction.py`` measures.

Families, cheapest claims first:

- ``closed form``: scores and at most the gradient at the start.
- ``svm``: SVMs of selections, solved exactly, and at most one tuned number.
- ``learned``: the same, with a few coefficients fitted to runs of descent on other data.
- ``path``: the regularization path around the start, solved radius by radius; no step of descent is taken, but the
  gradient is evaluated some hundred times.
- ``descent``: descent itself, made cheap by large or growing steps, and called so. `GrowingSteps`, the rule that
  ships with the package (`attsvm.theory.prediction`), is of this family.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attsvm.attention import token_scores
from attsvm.attention.gradient import Attended, attend, fixed_scores, risk_gradient
from attsvm.attention.linear_maps import flat_adjoint, flat_logits
from attsvm.data.checks import check_count, check_positive
from attsvm.data.dataset import replace_unchecked
from attsvm.svm import AttentionSVM, solve
from attsvm.svm.solution import SUPPORT_TOLERANCE
from attsvm.theory.prediction import GrowingSteps, Parameters, Rule, Situation


def scores_of(problem: Situation) -> Float[Tensor, "batch n T"]:
    """Score of every token taken alone; -inf at masked ones."""
    return token_scores(problem.data, problem.head)


def _attended(problem: Situation, at: Mapping[str, Tensor]) -> Attended:
    logits = flat_logits(problem.data, problem.parameterization.weights(at))
    return attend(problem.data, problem.head, logits, fixed_scores(problem.data, problem.head))


def direction_of(problem: Situation, at: Mapping[str, Tensor]) -> Parameters:
    """The normalized descent direction of each parameter."""
    fixed = fixed_scores(problem.data, problem.head)
    rows = risk_gradient(problem.data, problem.head, problem.loss, _attended(problem, at), scores=fixed).logits
    gradients = problem.parameterization.gradients(at, rows.map(flat_adjoint(problem.data, rows.mantissa)))
    return {name: -value.normalized() for name, value in gradients.items()}


def looked_at(problem: Situation, at: Mapping[str, Tensor]) -> tuple[Int[Tensor, "batch n"], Float[Tensor, "batch"]]:
    """The most probable token of each input, and the smallest of their probabilities."""
    attended = _attended(problem, at)
    return attended.winner[0], attended.attention[0].amax(-1).amin(-1)


def stride(problem: Situation, radius: float) -> Tensor:
    """How far from the start parameters lie where logits differ by about `radius`: ``[1, batch, 1, 1]``.

    For W it is radius sqrt(n) / rms_it(||x_it - mean_t x_it|| ||z_i||): n inputs share the norm of W. Both factors
    of a product go the square root of the way.
    """
    data = problem.data
    tokens, real = data.input_tokens, data.real.to(data.dtype)
    count = real.sum(-1, keepdim=True)
    centre = (tokens * real.unsqueeze(-1)).sum(-2) / count
    spread = (tokens - centre.unsqueeze(-2)).square().sum(-1) * real
    squared = (spread * data.queries.square().sum(-1, keepdim=True)).sum((-1, -2)) / real.sum((-1, -2))
    reach = radius * math.sqrt(data.n) / squared.sqrt().clamp(min=1e-12)
    return (reach if len(problem.start) == 1 else _PRODUCT * reach.sqrt())[None, :, None, None]


_PRODUCT = 2.0  # tuned on seeds below 1000, at n=6 T=8 d=10


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
        top = scores_of(problem).topk(min(2, problem.data.T), -1).values
        lead = top[..., 0] - top[..., 1] if problem.data.T > 1 else torch.full_like(top[..., 0], math.inf)
        return scores_of(problem).argmax(-1), lead.amin(-1)


@dataclass(frozen=True)
class GradientStep(Rule):
    """The most probable tokens after one step of size `radius` (see `stride`) along the first gradient.

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
        direction, reach = direction_of(problem, problem.start), stride(problem, self.radius)
        return looked_at(problem, {name: value + reach * direction[name] for name, value in problem.start.items()})


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


@dataclass(frozen=True)
class LocalPath(Rule):
    """The branch of the regularization path that begins at the start.

    For growing radii R it solves min L(W) over ||W - W(0)||_F <= R, from the solution before: stationary points are

        W = W(0) + R D,     D = -grad L(W) / ||grad L(W)||,

    found by the damped iteration of this equation (conditional gradient). No time, no step size and no history of the
    descent enters: only where minima of the risk lie. (K,Q): both factors, each on its own sphere around its start.

    Arguments:
        radii: how many, geometric from `smallest` to `largest`, in the unit of `stride`.
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
        winners = torch.stack([looked_at(problem, point)[0] for point in points])
        return winners[-1], (winners == winners[-1]).all(-1).double().mean(0)

    def points(self, problem: Situation) -> list[Parameters]:
        """The parameters at every radius."""
        towards = direction_of(problem, problem.start)
        points = []
        for k in range(self.radii):
            radius = self.smallest * (self.largest / self.smallest) ** (k / max(1, self.radii - 1))
            reach = stride(problem, radius)
            for _ in range(self.iterations):
                here = {name: value + reach * towards[name] for name, value in problem.start.items()}
                fresh = direction_of(problem, here)
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
        first: size of the first, in the unit of `stride`.
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
            step = stride(problem, longer) - (stride(problem, length) if length else 0)
            direction = direction_of(problem, here)
            here = {name: value + step * direction[name] for name, value in here.items()}
            length = longer
        return looked_at(problem, here)


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
            gain = scores_of(problem)[left] - scores_of(problem)[left].gather(-1, now.unsqueeze(-1))
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
    scores = scores_of(problem)[element]
    lower = torch.isfinite(scores) & (scores <= scores.gather(-1, selected.unsqueeze(-1)))
    some = problem.data[element]
    if element.numel() == 0:
        return torch.zeros(0, some.d, some.dq, dtype=some.dtype, device=some.device), torch.zeros_like(scores)
    weights = solve(AttentionSVM(some, selected, rows=lower)).weights
    logits = flat_logits(some, weights[None])[0]
    return weights, logits.gather(-1, selected.unsqueeze(-1)) - logits


def _unit(matrix: Tensor) -> Tensor:
    return matrix / torch.linalg.matrix_norm(matrix).clamp(min=1e-300)[..., None, None]


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
        count = scores_of(problem).shape[0]

        def best(values: Tensor) -> Tensor:
            lowest = torch.full((count,), -math.inf, dtype=values.dtype, device=values.device)
            return lowest.scatter_reduce(0, candidates.element, values, "amax")

        top = best(rating)
        wins = rating == top[candidates.element]
        selected = scores_of(problem).argmax(-1)
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
    chosen = scores_of(problem)[taken].gather(-1, candidates.selected.unsqueeze(-1)).sum((-1, -2))
    return features | {
        "gradient cosine": _inner(first_change(problem)[taken], candidates.directions),
        "start along it": _inner(start_weights(problem)[taken], candidates.directions),
        "log norm": candidates.norm.clamp(min=1e-300).log(),
        "inputs not optimal": (candidates.selected != scores_of(problem).argmax(-1)[taken]).sum(-1).double(),
        "nearness of a rival": 1 / candidates.rival,
        "total score": chosen,
    }


def nearby_candidates(problem: Situation) -> Candidates:
    """The optimal selection, swaps of one input, and of two inputs whose single swaps are locally optimal."""
    data, scores = problem.data, scores_of(problem)
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
    none = scores_of(problem).argmax(-1)[:0]
    element = torch.cat([elements for elements, _ in groups] or [none[:, 0]])
    selected = torch.cat([swapped(elements, *changes) for elements, changes in groups] or [none])
    weights, margins = relaxed_svm(problem, element, selected)
    higher = scores_of(problem)[element] > scores_of(problem)[element].gather(-1, selected.unsqueeze(-1))
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
    start, step = problem.start, direction_of(problem, problem.start)
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
        GrowingSteps(),
    )
}
