"""Which selection descent will reach, from the data, the head and the starting point alone.

Rules of five families, cheapest claims first; `RULES` lists them and ``benchmarks/prediction.py`` publishes how often
each is right:

- ``closed form``: scores and at most the gradient at the start.
- ``svm``: SVMs of selections, solved exactly, and one tuned number at most.
- ``learned``: the same, with a few coefficients fitted to runs of descent on other data.
- ``path``: the regularization path around the start, solved radius by radius; no step of descent is taken, but the
  gradient is evaluated some hundred times.
- ``descent``: a short, coarse integration of descent itself (5 to 20 large steps), and called so.

What makes the last two good is the step after them, `Ascent`: it follows, SVM by SVM, what saturated attention
does with a selection that is not locally optimal.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attsvm.attention import Logistic, Loss, Parameterization, Weights
from attsvm.attention.losses import as_loss
from attsvm.attention.prediction_heads import as_head
from attsvm.data import Seed, TokenDataset, stream_keys
from attsvm.data.checks import check_positive
from attsvm.descent.initial import Initial, starting_point
from attsvm.theory.optimality import is_locally_optimal
from attsvm.theory.prediction.rules import CoarseDescent, LocalPath, SeparateInputs
from attsvm.theory.prediction.situation import Rule, Situation
from attsvm.theory.prediction.svm_rules import AlignedWithGradient, Ascent, LearnedChoice, LowestRisk, SmallestNorm


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """The selection a rule expects descent to reach.

    Attributes:
        selected: one token an input ``[*batch, n]``.
        confidence: larger is surer, comparable only within one rule ``[*batch]``; each rule says what it is.
        locally_optimal: whether the selection is locally optimal in the Frobenius norm ``[*batch]``: descent on W can
            converge only to such ones, so False says that the prediction cannot be the last word.
        rule: name of the rule.
        family: "closed form", "svm", "learned", "path" or "descent".
    """

    selected: Int[Tensor, "*batch n"]
    confidence: Float[Tensor, "*batch"]
    locally_optimal: Bool[Tensor, "*batch"]
    rule: str
    family: str

    def __repr__(self) -> str:
        count = self.locally_optimal.numel()
        optimal = int(self.locally_optimal.sum())
        return f"Prediction({self.rule} [{self.family}], {count} data sets, {optimal} locally optimal)"


def predict_selection(
    data: TokenDataset,
    head: object = None,
    initial: Initial = None,
    rule: Rule | None = None,
    parameterization: Parameterization | None = None,
    loss: Loss | Callable[[Tensor], Tensor] | None = None,
    seed: Seed = 0,
) -> Prediction:
    """Name the selection that normalized gradient descent will reach from a starting point, without running it.

    Arguments:
        data: ``[*batch]`` data sets.
        head: a `Head`, a vector v, a torch module, or None for the data's own vector.
        initial: W(0), a mapping of parameters, "zeros", or None for the start that `fit` draws with this seed.
        rule: one of the rules of this module; by default the best that takes no step of descent (`default_rule`).
        parameterization: `Weights()` (default) or `KeyQuery(rank)`.
        loss: `Logistic()` by default.
        seed: of the starting point, as in `fit`.

    Returns:
        A `Prediction`.

    Raises:
        ValueError: in one sentence, for anything that does not fit.

    >>> import attsvm
    >>> data = attsvm.data.random_sphere(n=2, T=3, d=8, batch=4, seed=0)
    >>> bool((predict_selection(data).selected == attsvm.fit(data).selected).all())
    True
    """
    if not isinstance(data, TokenDataset):
        raise ValueError(f"data must be a TokenDataset; got {type(data).__name__}")
    kind = parameterization or Weights()
    if not isinstance(kind, Parameterization):
        raise ValueError(f"parameterization must be Weights() or KeyQuery(rank); got {parameterization!r}")
    rule = default_rule(kind) if rule is None else rule
    if not isinstance(rule, Rule):
        raise ValueError(f"rule must be a rule such as OptimalTokens() or one of RULES; got {rule!r}")
    own = as_head(head, data)
    start, several = starting_point(data, own, kind, initial, None, stream_keys(seed, data.batch_shape), False)
    if several:
        raise ValueError("initial must hold one start for each data set; got an axis of starts before the batch")
    whole = data.to(dtype=torch.float64)
    double = own.doubled()
    start = {name: value.double() for name, value in start.items()}
    problem = Situation(whole.flatten(), double.flatten(data.batch_shape), as_loss(loss or Logistic()), kind, start)
    selected, confidence = rule.select(problem)
    shaped = selected.reshape(*data.batch_shape, data.n)
    optimal = is_locally_optimal(whole, double, shaped).holds
    return Prediction(shaped, confidence.reshape(data.batch_shape), optimal, rule.name, rule.family)


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


def default_rule(parameterization: Parameterization) -> Rule:
    """The best rule that takes no step of descent: `LocalPath`, for W with an `Ascent` after it.

    The ascent knows the Frobenius SVM, which belongs to W; after (K,Q) it errs more often than it helps.
    """
    return Ascent(LocalPath()) if isinstance(parameterization, Weights) else LocalPath()


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
