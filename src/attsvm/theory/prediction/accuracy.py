"""How often the shipped rule names the reached selection, as ``python -m benchmarks.prediction`` measured it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import torch

from attsvm.attention import KeyQuery, LinearHead
from attsvm.descent import Optimizer, SteepestDescent
from attsvm.theory.prediction.rules import GrowingSteps
from attsvm.theory.prediction.situation import Rule, Situation

_NEAR = 1.5  # a start counts as one of a measured norm up to this factor above it


@dataclass(frozen=True)
class Accuracy:
    """The share of data sets whose whole selection was named, over the settings of this kind.

    Attributes:
        lowest, highest: shares over the settings, each of `sets` data sets.
        settings: which ones, in words.
        sets: data sets per setting.
        cost: the largest share of the time of the training predicted.
    """

    lowest: float
    highest: float
    settings: str
    sets: int
    cost: float

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
    """What was measured for this rule and this kind of training; None where nothing was.

    Measured are linear prediction heads on unit-sphere data; starts are told apart by their norm.
    """
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
