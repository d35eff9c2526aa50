"""attsvm: a softmax attention layer trained by gradient descent is a support vector machine that selects tokens.

The names most people need are here. Everything else is in the rooms: `attsvm.data`, `norms`, `attention`, `svm`,
`descent`, `theory`, `next_token`, `heads`, `experiments`, `plots`, `app` and `sweep`. Names and rooms are loaded when
they are first used, so that `import attsvm` alone imports nothing but this file.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attsvm import app as app
    from attsvm import attention as attention
    from attsvm import data as data
    from attsvm import descent as descent
    from attsvm import experiments as experiments
    from attsvm import heads as heads
    from attsvm import next_token as next_token
    from attsvm import norms as norms
    from attsvm import plots as plots
    from attsvm import svm as svm
    from attsvm import sweep as sweep
    from attsvm import theory as theory
    from attsvm.attention import Exponential as Exponential
    from attsvm.attention import KeyQuery as KeyQuery
    from attsvm.attention import LinearHead as LinearHead
    from attsvm.attention import Logistic as Logistic
    from attsvm.attention import ModuleHead as ModuleHead
    from attsvm.attention import QuadraticHead as QuadraticHead
    from attsvm.attention import ReluHead as ReluHead
    from attsvm.attention import Weights as Weights
    from attsvm.attention import best_risk as best_risk
    from attsvm.attention import lipschitz_bound as lipschitz_bound
    from attsvm.attention import logits as logits
    from attsvm.attention import logits_adjoint as logits_adjoint
    from attsvm.attention import optimal_token_set as optimal_token_set
    from attsvm.attention import optimal_tokens as optimal_tokens
    from attsvm.attention import token_scores as token_scores
    from attsvm.data import TokenDataset as TokenDataset
    from attsvm.descent import Adam as Adam
    from attsvm.descent import GradientDescent as GradientDescent
    from attsvm.descent import MirrorDescent as MirrorDescent
    from attsvm.descent import NormalizedGradientDescent as NormalizedGradientDescent
    from attsvm.descent import NormalizedMirrorDescent as NormalizedMirrorDescent
    from attsvm.descent import PolyakDescent as PolyakDescent
    from attsvm.descent import Run as Run
    from attsvm.descent import SteepestDescent as SteepestDescent
    from attsvm.descent import TorchOptimizer as TorchOptimizer
    from attsvm.descent import initial_parameters as initial_parameters
    from attsvm.descent.fit import fit as fit
    from attsvm.norms import Entrywise as Entrywise
    from attsvm.norms import Frobenius as Frobenius
    from attsvm.norms import MaxEntry as MaxEntry
    from attsvm.norms import Nuclear as Nuclear
    from attsvm.norms import Spectral as Spectral
    from attsvm.norms import SumEntry as SumEntry
    from attsvm.norms import direction_cosine as direction_cosine
    from attsvm.norms import factor_norm as factor_norm
    from attsvm.svm import ActiveSet as ActiveSet
    from attsvm.svm import AttentionSVM as AttentionSVM
    from attsvm.svm import BlockDescent as BlockDescent
    from attsvm.svm import Conic as Conic
    from attsvm.svm import Cvxpy as Cvxpy
    from attsvm.svm import InteriorPoint as InteriorPoint
    from attsvm.svm import LinearProgram as LinearProgram
    from attsvm.svm import NuclearInteriorPoint as NuclearInteriorPoint
    from attsvm.svm import SVMSolution as SVMSolution
    from attsvm.svm import label_svm as label_svm
    from attsvm.svm import margin_efficiency as margin_efficiency
    from attsvm.svm.solve import solve as solve
    from attsvm.theory import diagnose as diagnose
    from attsvm.theory import generalized_components as generalized_components
    from attsvm.theory import identify_norm as identify_norm
    from attsvm.theory import implicit_bias as implicit_bias
    from attsvm.theory import is_locally_optimal as is_locally_optimal
    from attsvm.theory import locally_optimal_selections as locally_optimal_selections
    from attsvm.theory import predict_selection as predict_selection
    from attsvm.theory import regularization_path as regularization_path
    from attsvm.theory import verify as verify
    from attsvm.theory import verify_growth as verify_growth
    from attsvm.theory.growth import growth as growth

__version__ = "0.2.0"

_ROOMS = frozenset((
    "app", "attention", "data", "descent", "experiments", "heads", "next_token", "norms", "plots", "svm", "sweep",
    "theory",
))  # fmt: skip
# The names by subject and room; a test holds them against the imports above.
_GROUPS = {
    "data": ("data", "TokenDataset"),
    "the model: prediction heads, losses, parameterizations": (
        "attention",
        "LinearHead ReluHead QuadraticHead ModuleHead Logistic Exponential Weights KeyQuery",
    ),
    "scores and logits": (
        "attention",
        "token_scores optimal_tokens optimal_token_set best_risk lipschitz_bound logits logits_adjoint",
    ),
    "norms": ("norms", "Frobenius Nuclear Spectral Entrywise MaxEntry SumEntry direction_cosine factor_norm"),
    "training": (
        "descent",
        "fit Run initial_parameters GradientDescent NormalizedGradientDescent SteepestDescent MirrorDescent"
        " NormalizedMirrorDescent Adam PolyakDescent TorchOptimizer",
    ),
    "max-margin problems": ("svm", "AttentionSVM solve SVMSolution margin_efficiency label_svm"),
    "solvers": (
        "svm",
        "ActiveSet BlockDescent NuclearInteriorPoint InteriorPoint LinearProgram Conic Cvxpy",
    ),
    "theory": (
        "theory",
        "diagnose verify predict_selection implicit_bias identify_norm is_locally_optimal locally_optimal_selections"
        " regularization_path generalized_components growth verify_growth",
    ),
}
_HOMES = {name: room for room, names in _GROUPS.values() for name in names.split()}

__all__ = ["data", *_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    """Load a name or a room when it is first used."""
    if name in _ROOMS:
        return importlib.import_module(f"attsvm.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'attsvm' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"attsvm.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Every name and room, loaded or not."""
    return sorted({*globals(), *__all__, *_ROOMS})
