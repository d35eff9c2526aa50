"""Which selection descent will reach, and how often the rule that says so was right where it was measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attsvm.attention import KeyQuery, LinearHead, Logistic, Loss, Parameterization, Weights
from attsvm.attention.losses import as_loss
from attsvm.attention.prediction_heads import as_head
from attsvm.data import Seed, TokenDataset, stream_keys
from attsvm.data.checks import check_kind
from attsvm.descent import NormalizedGradientDescent, Optimizer, SteepestDescent
from attsvm.descent.initial import Initial, starting_point
from attsvm.theory.optimality import is_locally_optimal
from attsvm.theory.prediction.rules import GrowingSteps, Rule, Situation

_NEAR = 1.5  # a start counts as one of a measured norm up to this factor above it


@dataclass(frozen=True)
class Accuracy:
    """The share of data sets whose whole selection was named, over the settings of this kind."""

    #: shares over the settings, each of `sets` data sets
    lowest: float
    highest: float
    settings: str  #: which ones, in words
    sets: int  #: data sets per setting
    cost: float  #: the largest share of the time of the training predicted

    def __str__(self) -> str:
        low, high = f"{self.lowest:.1%}", f"{self.highest:.1%}"
        share = low if low == high else f"{low} to {high}"
        return (
            f"right in {share} of {self.sets} unit-sphere data sets ({self.settings}), at {self.cost:.1%} of the cost"
        )


def optimizer_kind(optimizer: Optimizer) -> str:
    """The name under which measurements of this kind of steps are stored."""
    if isinstance(optimizer, SteepestDescent):
        return f"SteepestDescent({type(optimizer.norm).__name__})"
    return type(optimizer).__name__


def measured_accuracy(rule: Rule, problem: Situation) -> Accuracy | None:
    """What was measured for this rule and training, with linear heads on unit-sphere data; None where nothing was."""
    if rule != GrowingSteps() or not isinstance(problem.head, LinearHead):
        return None
    trained = "(K,Q)" if isinstance(problem.parameterization, KeyQuery) else "W"
    weights = problem.parameterization.weights(problem.start)
    norm = float(torch.linalg.matrix_norm(weights).amax())
    kind = optimizer_kind(problem.optimizer)
    rows = [row for row in _measured() if row["trained"] == trained and row["optimizer"] == kind]
    covered = sorted({row["start_norm"] for row in rows if norm <= _NEAR * row["start_norm"]})
    if not covered:
        return None
    chosen = [row for row in rows if row["start_norm"] == covered[0]]
    shares = [row["accuracy"] for row in chosen]
    sizes = ", ".join(dict.fromkeys(row["size"] for row in chosen))
    settings = f"{trained}, {kind}, starts of norm up to {covered[0]:g}, {sizes}"
    return Accuracy(min(shares), max(shares), settings, chosen[0]["sets"], max(row["cost"] for row in chosen))


@cache
def _measured() -> list[dict[str, Any]]:
    text = files("attsvm.theory.prediction").joinpath("measured.json").read_text(encoding="utf-8")
    return json.loads(text)


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """The selection a rule expects descent to reach."""

    selected: Int[Tensor, "*batch n"]  #: one token per input
    confidence: Float[Tensor, "*batch"]  #: larger is surer, comparable only within one rule; each rule says what it is
    #: whether the selection is locally optimal in the Frobenius norm: descent on W can converge only to such ones, so
    #: False says that the prediction cannot be the last word
    locally_optimal: Bool[Tensor, "*batch"]
    rule: str  #: name of the rule
    family: str  #: what the rule looks at, such as "path" or "descent" (`Rule.family`)
    accuracy: Accuracy | None = None  #: how often the rule was right where it was measured; None where it was not

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
    optimizer: Optimizer | None = None,
) -> Prediction:
    """Name the selection that descent will reach from a starting point, at a small part of the cost of running it.

    It is a prediction, not a proof: `Prediction.accuracy` says how often the rule was right where it was measured.

    Arguments:
        data: ``[*batch]`` data sets.
        head: a prediction head, a vector v, a torch module, or None for the data's own vector.
        initial: W(0), a mapping of parameters, "zeros", or None for the start that `fit` draws with this seed.
        rule: `GrowingSteps()` by default, which takes 270 growing steps in place of 10,000.
        parameterization: `Weights()` (default) or `KeyQuery(rank)`.
        loss: `Logistic()` by default.
        seed: of the starting point, as in `fit`.
        optimizer: `NormalizedGradientDescent(0.1)` by default.

    Returns:
        A `Prediction`.

    Raises:
        ValueError: if an argument is of the wrong kind or does not fit the data.

    >>> import attsvm
    >>> data = attsvm.data.random_sphere(n=2, T=3, d=8, batch=4, seed=0)
    >>> bool((predict_selection(data).selected == attsvm.fit(data).selected).all())
    True
    """
    check_kind(data, TokenDataset, "data", "a TokenDataset")
    kind = parameterization or Weights()
    check_kind(kind, Parameterization, "parameterization", "Weights() or KeyQuery(rank)")
    rule = GrowingSteps() if rule is None else rule
    check_kind(rule, Rule, "rule", "a prediction rule such as GrowingSteps()")
    optimizer = optimizer or NormalizedGradientDescent(0.1)
    check_kind(optimizer, Optimizer, "optimizer", "an optimizer such as GradientDescent(0.1)")
    own = as_head(head, data)
    seeds = stream_keys(seed, data.batch_shape)
    start, lead = starting_point(data, kind, seeds, data.batch_shape, initial)
    if lead != data.batch_shape:
        raise ValueError("initial must hold one start for each data set; got an axis of starts before the batch")
    whole = data.to(dtype=torch.float64)
    double = own.to(dtype=torch.float64)
    start = {name: value.double() for name, value in start.items()}
    problem = Situation(whole.flatten(), double.flatten(), as_loss(loss or Logistic()), kind, start, optimizer)
    selected, confidence = rule.select(problem)
    shaped = selected.reshape(*data.batch_shape, data.n)
    optimal = is_locally_optimal(whole, double, shaped).holds
    accuracy = measured_accuracy(rule, problem)
    return Prediction(shaped, confidence.reshape(data.batch_shape), optimal, rule.name, rule.family, accuracy)
