"""The model: softmax attention, its gradient at any norm, prediction heads, losses, parameterizations.

Throughout, `data` are ``[*batch]`` data sets, `head` is a prediction head, a vector v, a torch module or None for the
data's own, and `loss` is `Logistic()` unless given. What does not fit is a `ValueError` that says where.
"""

from attsvm.attention.evaluate import Evaluation, evaluate, gradient
from attsvm.attention.linear_maps import logits, logits_adjoint
from attsvm.attention.losses import CustomLoss, Exponential, Linear, Log, Logistic, Loss
from attsvm.attention.parameterizations import FiniteSpace, KeyQuery, Parameterization, TwoScales, Weights
from attsvm.attention.prediction_heads import Head, LinearHead, ModuleHead, QuadraticHead, ReluHead
from attsvm.attention.scaled import ScaledTensor
from attsvm.attention.scores import best_risk, lipschitz_bound, optimal_token_set, optimal_tokens, token_scores

__all__ = [
    # the model
    "Evaluation", "evaluate", "gradient",
    # prediction heads
    "Head", "LinearHead", "ModuleHead", "QuadraticHead", "ReluHead",
    # losses
    "CustomLoss", "Exponential", "Linear", "Log", "Logistic", "Loss",
    # parameterizations
    "KeyQuery", "Parameterization", "TwoScales", "Weights",
    # the space of the finite part
    "FiniteSpace",
    # scores
    "best_risk", "lipschitz_bound", "optimal_token_set", "optimal_tokens", "token_scores",
    # linear maps and scaled numbers
    "ScaledTensor", "logits", "logits_adjoint",
]  # fmt: skip
