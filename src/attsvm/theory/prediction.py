"""Which selection descent will reach, by a rule, and how often that rule was right where it was measured.

The rule that ships takes few, growing steps. Those it is compared with, which take no step of descent among them, are
in ``benchmarks/prediction_rules.py``; ``python -m benchmarks.prediction`` measures them all.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attsvm.attention import Head, KeyQuery, LinearHead, Loss, Parameterization, Weights
from attsvm.attention.losses import as_loss
from attsvm.attention.prediction_heads import as_head
from attsvm.data import Seed, TokenDataset
from attsvm.data.checks import check_count, check_kind
from attsvm.descent import NormalizedGradientDescent, Optimizer, Schedule, SteepestDescent, fit
from attsvm.descent.initial import Initial, starting_point
from attsvm.theory.optimality import is_locally_optimal

_NEAR = 1.5  # a start counts as one of a measured norm up to this factor above it
Parameters = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Situation:
    """What a rule may look at."""

    data: TokenDataset  #: data sets with one batch axis, in float64
    head: Head  #: the prediction head, one for all data sets or one for each
    loss: Loss  #: whose risk descent lowers
    parameterization: Parameterization  #: what is trained
    start: Parameters  #: its parameters at the start, ``[1, batch, ...]``
    optimizer: Optimizer = NormalizedGradientDescent(0.1)  # noqa: RUF009 (it is frozen)


class Rule(ABC):
    """A way to name the selection that descent reaches. A rule holds its few numbers, never data."""

    #: what kind of work it does, such as "path" or "descent"; ``benchmarks/prediction_rules.py`` lists them
    family: ClassVar[str]

    @property
    @abstractmethod
    def name(self) -> str:
        """What a person calls it."""

    @abstractmethod
    def select(self, problem: Situation) -> tuple[Int[Tensor, "batch n"], Float[Tensor, "batch"]]:
        """The selection of each data set, and how sure the rule is of it."""


@dataclass(frozen=True)
class GrowingSteps(Rule):
    """Descent itself in a few hundred steps: the first as large as the optimizer's own, the last as many at once.

    The selection is decided early, while attention is still soft; later on only the length of the weights grows. So
    `horizon` steps of the optimizer are taken in `steps` blocks whose lengths grow geometrically from one step on, each
    block as one step of the sum of its step sizes. It costs ``steps / horizon`` of the training that it predicts.
    Confidence: the smallest probability of a winning token at the end.
    """

    steps: int = 270  #: how many steps are taken
    horizon: int = 10_000  #: how many steps of the optimizer they stand for
    family: ClassVar[str] = "descent"

    def __post_init__(self) -> None:
        check_count(self.steps, "steps")
        check_count(self.horizon, "horizon")

    @property
    def name(self) -> str:
        return f"{self.steps} growing steps"

    def select(self, problem: Situation) -> tuple[Tensor, Tensor]:
        schedule = Blocks(problem.optimizer.schedule, self.steps, self.horizon)
        optimizer = replace(problem.optimizer, step_size=schedule)  # type: ignore[call-arg]
        run = fit(
            problem.data, problem.head, parameterization=problem.parameterization, optimizer=optimizer,
            loss=problem.loss, steps=schedule.count, initial=problem.start, record=(schedule.count,), keep=(),
        )  # fmt: skip
        return run.selected[0], run.attention[0].amax(-1).amin(-1)


@dataclass(frozen=True)
class Blocks(Schedule):
    """Another schedule's first `horizon` steps, in at most `blocks` steps that each add up a block of them.

    Blocks begin with single steps and grow geometrically.

    >>> from attsvm.descent import Constant
    >>> Blocks(Constant(1.0), 4, 15).sizes(0, 4).round(9).tolist()
    [1.0, 2.0, 4.0, 8.0]
    """

    schedule: Schedule
    blocks: int
    horizon: int

    @property
    def count(self) -> int:
        """How many steps there are."""
        return min(self.blocks, self.horizon)

    def sizes(self, first: int, count: int) -> np.ndarray:
        whole = self.schedule.sizes(0, self.horizon)
        if self.count == self.horizon:
            return whole[first : first + count]
        # Ends of the blocks as real numbers of steps: (g^k - 1) / (g - 1), the last one the horizon.
        growth = _growth(self.count, self.horizon)
        ends = np.expm1(np.arange(self.count + 1) * np.log(growth)) / (growth - 1)
        sums = np.interp(ends, np.arange(self.horizon + 1), np.concatenate([[0.0], np.cumsum(whole)]))
        return np.diff(sums)[first : first + count]

    def factors(self, data: TokenDataset, head: Head, loss: Loss) -> Tensor:
        return self.schedule.factors(data, head, loss)


def _growth(count: int, total: int) -> float:
    """The g > 1 with 1 + g + ... + g^(count - 1) = total, for count < total."""
    # At this g the last term alone exceeds the total.
    low, high = 0.0, float(np.log(total)) / max(1, count - 1)
    for _ in range(100):
        rate = (low + high) / 2
        low, high = (low, rate) if np.expm1(count * rate) / np.expm1(rate) > total else (rate, high)
    return float(np.exp(high))


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
        share = " to ".join(dict.fromkeys((f"{self.lowest:.1%}", f"{self.highest:.1%}")))
        where = f"{self.sets} unit-sphere data sets ({self.settings})"
        return f"right in {share} of {where}, at {self.cost:.1%} of the cost"


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
    norm = float(torch.linalg.matrix_norm(problem.parameterization.weights(problem.start)).amax())
    kind = optimizer_kind(problem.optimizer)
    rows = [row for row in _measured() if row["trained"] == trained and row["optimizer"] == kind]
    covered = min((row["start_norm"] for row in rows if norm <= _NEAR * row["start_norm"]), default=None)
    if covered is None:
        return None
    chosen = [row for row in rows if row["start_norm"] == covered]
    shares, sizes = [row["accuracy"] for row in chosen], ", ".join(dict.fromkeys(row["size"] for row in chosen))
    settings = f"{trained}, {kind}, starts of norm up to {covered:g}, {sizes}"
    return Accuracy(min(shares), max(shares), settings, chosen[0]["sets"], max(row["cost"] for row in chosen))


@cache
def _measured() -> list[dict[str, Any]]:
    return json.loads(files("attsvm.theory").joinpath("measured.json").read_text(encoding="utf-8"))


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """The selection a rule expects descent to reach."""

    selected: Int[Tensor, "*batch n"]  #: one token per input
    confidence: Float[Tensor, "*batch"]  #: larger is surer, comparable only within one rule; each rule says what it is
    locally_optimal: Bool[Tensor, "*batch"]  #: in the Frobenius norm; if not, descent on W cannot end there
    rule: str  #: name of the rule
    family: str  #: what the rule looks at, such as "path" or "descent" (`Rule.family`)
    accuracy: Accuracy | None = None  #: how often the rule was right where it was measured; None where it was not

    def __repr__(self) -> str:
        counted = f"{self.locally_optimal.numel()} data sets, {int(self.locally_optimal.sum())} locally optimal"
        return f"Prediction({self.rule} [{self.family}], {counted})"


def one_start(data: TokenDataset, kind: Parameterization, initial: Initial, seed: Seed = 0) -> Parameters:
    """The parameters at the start of one run for each data set, ``[1, batch, ...]``."""
    found, lead = starting_point(data, kind, seed, initial)
    if lead != data.batch_shape:
        raise ValueError("initial must hold one start for each data set; got an axis of starts before the batch")
    return found


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
        initial, seed: as in `fit`, whose start is drawn where `initial` is None.
        rule: `GrowingSteps()` by default, which takes 270 growing steps in place of 10,000.
        parameterization: `Weights()` (default) or `KeyQuery(rank)`.
        optimizer: `NormalizedGradientDescent(0.1)` by default.

    >>> import attsvm
    >>> data = attsvm.data.random_sphere(n=2, T=3, d=8, batch=4, seed=0)
    >>> bool((predict_selection(data).selected == attsvm.fit(data).selected).all())
    True
    """
    check_kind(data, TokenDataset, "data", "a TokenDataset")
    kind, rule = parameterization or Weights(), rule or GrowingSteps()
    check_kind(kind, Parameterization, "parameterization", "Weights() or KeyQuery(rank)")
    check_kind(rule, Rule, "rule", "a prediction rule such as GrowingSteps()")
    optimizer = optimizer or NormalizedGradientDescent(0.1)
    check_kind(optimizer, Optimizer, "optimizer", "an optimizer such as GradientDescent(0.1)")
    own = as_head(head, data)
    whole, double = data.to(dtype=torch.float64), own.to(dtype=torch.float64)
    start = {name: value.double() for name, value in one_start(data, kind, initial, seed).items()}
    problem = Situation(whole.flatten(), double.flatten(), as_loss(loss), kind, start, optimizer)
    selected, confidence = rule.select(problem)
    shaped = selected.reshape(*data.batch_shape, data.n)
    optimal = is_locally_optimal(whole, double, shaped).holds
    accuracy = measured_accuracy(rule, problem)
    return Prediction(shaped, confidence.reshape(data.batch_shape), optimal, rule.name, rule.family, accuracy)
