"""attsvm: a softmax attention layer trained by gradient descent is a support vector machine that selects tokens.

The names most people need are here. Everything else is in the rooms: `attsvm.data`, `norms`, `attention`, `svm`,
`descent`, `theory`, `next_token`, `heads`, `experiments`, `plots`, `app` and `sweep`. Names and rooms are loaded when
they are first used, so that `import attsvm` alone imports nothing but this file.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # isort: off
    # fmt: off
    from attsvm import (
        app as app, attention as attention, data as data, descent as descent, experiments as experiments,
        heads as heads, next_token as next_token, norms as norms, plots as plots, svm as svm, sweep as sweep,
        theory as theory,
    )
    from attsvm.attention import (
        Exponential as Exponential, KeyQuery as KeyQuery, LinearHead as LinearHead, Logistic as Logistic,
        ModuleHead as ModuleHead, QuadraticHead as QuadraticHead, ReluHead as ReluHead, Weights as Weights,
        best_risk as best_risk, lipschitz_bound as lipschitz_bound, logits as logits,
        logits_adjoint as logits_adjoint, optimal_token_set as optimal_token_set,
        optimal_tokens as optimal_tokens, token_scores as token_scores,
    )
    from attsvm.data import TokenDataset as TokenDataset
    from attsvm.descent import (
        Adam as Adam, GradientDescent as GradientDescent, MirrorDescent as MirrorDescent,
        NormalizedGradientDescent as NormalizedGradientDescent,
        NormalizedMirrorDescent as NormalizedMirrorDescent, PolyakDescent as PolyakDescent, Run as Run,
        SteepestDescent as SteepestDescent, TorchOptimizer as TorchOptimizer,
        initial_parameters as initial_parameters,
    )
    from attsvm.descent.fit import fit as fit
    from attsvm.norms import (
        Entrywise as Entrywise, Frobenius as Frobenius, MaxEntry as MaxEntry, Nuclear as Nuclear,
        Spectral as Spectral, SumEntry as SumEntry, direction_cosine as direction_cosine,
        factor_norm as factor_norm,
    )
    from attsvm.svm import (
        ActiveSet as ActiveSet, AttentionSVM as AttentionSVM, BlockDescent as BlockDescent, Conic as Conic,
        Cvxpy as Cvxpy, InteriorPoint as InteriorPoint, LinearProgram as LinearProgram,
        NuclearInteriorPoint as NuclearInteriorPoint, SVMSolution as SVMSolution, label_svm as label_svm,
        margin_efficiency as margin_efficiency,
    )
    from attsvm.svm.solve import solve as solve
    from attsvm.theory import (
        diagnose as diagnose, generalized_components as generalized_components, identify_norm as identify_norm,
        implicit_bias as implicit_bias, is_locally_optimal as is_locally_optimal,
        locally_optimal_selections as locally_optimal_selections, predict_selection as predict_selection,
        regularization_path as regularization_path, verify as verify, verify_growth as verify_growth,
    )
    from attsvm.theory.growth import growth as growth
    # fmt: on

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
    "solvers": ("svm", "ActiveSet BlockDescent NuclearInteriorPoint InteriorPoint LinearProgram Conic Cvxpy"),
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
    """Every public name and room, loaded or not."""
    return sorted({*__all__, *_ROOMS, *(name for name in globals() if name.startswith("__"))})
