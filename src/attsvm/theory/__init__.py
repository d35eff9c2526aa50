"""Theory as code: optimality, cones, separability, conditions of the theorems, paths, and prediction.

Throughout, `data` are ``[*batch]`` data sets, `head` is a prediction head, a vector v, a torch module or None for the
data's own, `selected` names a token of each input ``[*batch, n]``, `norm` is `Frobenius()` and `loss` is `Logistic()`
unless given. What does not fit is a `ValueError` that says where.
"""

from attsvm.theory.conditions import (
    Condition,
    all_tokens_support,
    all_tokens_support_everywhere,
    below_the_barrier,
    equal_scores_condition,
    favourable_first_gradient,
    nearly_equal_scores,
    step_size_bound,
    unique_optimum,
)
from attsvm.theory.cones import AngleCone, ConeSearch, in_angle_cone, in_margin_cone, search_cone
from attsvm.theory.diagnosis.diagnose import Diagnosis, Limit, Start, diagnose
from attsvm.theory.diagnosis.implicit_bias import ImplicitBias, Standing, implicit_bias
from attsvm.theory.diagnosis.theorems import Result
from attsvm.theory.diagnosis.verify import Outcome, Verification, verify
from attsvm.theory.enumeration import LocalOptima, locally_optimal_selections, locally_optimal_selections_of_each
from attsvm.theory.generalized import (
    GeneralizedComponents,
    QuadraticAttention,
    generalized_components,
    quadratic_attention,
)
from attsvm.theory.growth import Growth, GrowthCheck, growth, verify_growth
from attsvm.theory.identify import NormReport, identify_norm
from attsvm.theory.joint import JointComparison, JointPrediction, joint_prediction, verify_joint
from attsvm.theory.mixtures import label_margin_assumption, one_winner
from attsvm.theory.optimality import LocalOptimality, effective_scores, is_locally_optimal
from attsvm.theory.paths.path import RegularizationPath, regularization_path
from attsvm.theory.prediction import Prediction, predict_selection
from attsvm.theory.separability import (
    Separability,
    constructive_weights,
    rank_bound,
    separability,
    separable_by_dimension,
)
from attsvm.theory.several_optimal import SeveralOptimal, several_optimal

__all__ = [
    # prediction
    "Diagnosis", "ImplicitBias", "Limit", "NormReport", "Outcome", "Prediction", "Result", "Standing", "Start",
    "Verification", "diagnose", "identify_norm", "implicit_bias", "predict_selection", "verify",
    # optimality and geometry
    "ConeSearch", "LocalOptima", "LocalOptimality", "Separability", "constructive_weights", "effective_scores",
    "in_angle_cone", "in_margin_cone", "is_locally_optimal", "locally_optimal_selections",
    "locally_optimal_selections_of_each", "rank_bound", "search_cone", "separability", "separable_by_dimension",
    # conditions
    "Condition", "all_tokens_support", "all_tokens_support_everywhere", "below_the_barrier",
    "equal_scores_condition", "favourable_first_gradient", "label_margin_assumption", "nearly_equal_scores",
    "one_winner", "step_size_bound", "unique_optimum",
    # paths
    "AngleCone", "RegularizationPath", "regularization_path",
    # how fast logits grow
    "Growth", "GrowthCheck", "growth", "verify_growth",
    # joint training and nonlinear heads
    "GeneralizedComponents", "JointComparison", "JointPrediction", "QuadraticAttention", "SeveralOptimal",
    "generalized_components", "joint_prediction", "quadratic_attention", "several_optimal", "verify_joint",
]  # fmt: skip
