"""Naming the selection that descent will reach: the question, what a rule may look at, and the rule that ships."""

from attsvm.theory.prediction.accuracy import Accuracy
from attsvm.theory.prediction.predict import Prediction, predict_selection
from attsvm.theory.prediction.rules import GrowingSteps
from attsvm.theory.prediction.situation import Rule, Situation

__all__ = ["Accuracy", "GrowingSteps", "Prediction", "Rule", "Situation", "predict_selection"]
