"""Next-token prediction: priorities between tokens read off the data, and the layer that training tends to.

Source: Mechanics of Next Token Prediction with Self-Attention, arXiv 2403.08081.
"""

from attsvm.next_token.data import NextTokenData, characters, from_ids, from_text, read_text, village, words
from attsvm.next_token.finite import FinitePart, finite_part
from attsvm.next_token.graph import PriorityGraph, priority_graph
from attsvm.next_token.limit import Answer, LimitPrediction, Relation, predict_limit
from attsvm.next_token.training import Comparison, diagnose, respond, train, verify

__all__ = [
    "Answer", "Comparison", "FinitePart", "LimitPrediction", "NextTokenData", "PriorityGraph", "Relation",
    "characters", "diagnose", "finite_part", "from_ids", "from_text", "predict_limit", "priority_graph",
    "read_text", "respond", "train", "verify", "village", "words",
]  # fmt: skip
