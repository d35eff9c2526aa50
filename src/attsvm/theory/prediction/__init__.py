"""Naming the selection that descent will reach: the question, what a rule may look at, and the rules."""

from attsvm.theory.prediction.predict import Prediction, default_rule, predict_selection
from attsvm.theory.prediction.rules import Ascent, CoarseDescent, LocalPath
from attsvm.theory.prediction.situation import Rule, Situation

__all__ = [
    "Ascent",
    "CoarseDescent",
    "LocalPath",
    "Prediction",
    "Rule",
    "Situation",
    "default_rule",
    "predict_selection",
]
