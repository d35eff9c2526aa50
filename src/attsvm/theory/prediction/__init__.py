"""Naming the selection that descent will reach: the question, what a rule may look at, and the rule that ships."""

from attsvm.theory.prediction.predict import Accuracy, Prediction, predict_selection
from attsvm.theory.prediction.rules import GrowingSteps, Rule, Situation

__all__ = ["Accuracy", "GrowingSteps", "Prediction", "Rule", "Situation", "predict_selection"]
