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
    from attsvm import data
    from attsvm import descent as descent
    from attsvm import experiments as experiments
    from attsvm import heads as heads
    from attsvm import next_token as next_token
    from attsvm import norms as norms
    from attsvm import plots as plots
    from attsvm import svm as svm
    from attsvm import sweep as sweep
    from attsvm import theory as theory
    from attsvm.attention import (
        Exponential,
        KeyQuery,
        LinearHead,
        Logistic,
        ModuleHead,
        QuadraticHead,
        ReluHead,
        Weights,
        best_risk,
        lipschitz_bound,
        logits,
        logits_adjoint,
        optimal_token_set,
        optimal_tokens,
        token_scores,
    )
    from attsvm.data import TokenDataset
    from attsvm.descent import (
        Adam,
        GradientDescent,
        MirrorDescent,
        NormalizedGradientDescent,
        NormalizedMirrorDescent,
        PolyakDescent,
        Run,
        SteepestDescent,
        initial_parameters,
    )
    from attsvm.descent.fit import fit
    from attsvm.norms import Entrywise, Frobenius, MaxEntry, Nuclear, Spectral, SumEntry, direction_cosine
    from attsvm.svm import (
        ActiveSet,
        AttentionSVM,
        BatchedFrobenius,
        BlockDescent,
        Conic,
        Cvxpy,
        InteriorPoint,
        LinearProgram,
        NuclearInteriorPoint,
        SVMSolution,
        label_svm,
        margin_efficiency,
    )
    from attsvm.svm.solve import solve
    from attsvm.theory import (
        diagnose,
        generalized_components,
        implicit_bias,
        is_locally_optimal,
        locally_optimal_selections,
        predict_selection,
        regularization_path,
        verify,
    )

__version__ = "0.2.0"

__all__ = [
    # data
    "TokenDataset",
    "data",
    # the model: prediction heads, losses, parameterizations
    "LinearHead",
    "ReluHead",
    "QuadraticHead",
    "ModuleHead",
    "Logistic",
    "Exponential",
    "Weights",
    "KeyQuery",
    # scores and logits
    "token_scores",
    "optimal_tokens",
    "optimal_token_set",
    "best_risk",
    "lipschitz_bound",
    "logits",
    "logits_adjoint",
    # norms
    "Frobenius",
    "Nuclear",
    "Spectral",
    "Entrywise",
    "MaxEntry",
    "SumEntry",
    "direction_cosine",
    # training
    "fit",
    "Run",
    "initial_parameters",
    "GradientDescent",
    "NormalizedGradientDescent",
    "SteepestDescent",
    "MirrorDescent",
    "NormalizedMirrorDescent",
    "Adam",
    "PolyakDescent",
    # max-margin problems
    "AttentionSVM",
    "solve",
    "SVMSolution",
    "margin_efficiency",
    "label_svm",
    # solvers
    "ActiveSet",
    "BatchedFrobenius",
    "BlockDescent",
    "NuclearInteriorPoint",
    "InteriorPoint",
    "LinearProgram",
    "Conic",
    "Cvxpy",
    # theory
    "diagnose",
    "verify",
    "predict_selection",
    "implicit_bias",
    "is_locally_optimal",
    "locally_optimal_selections",
    "regularization_path",
    "generalized_components",
    # this package
    "__version__",
]

_ROOMS = frozenset((
    "app", "attention", "data", "descent", "experiments", "heads", "next_token", "norms", "plots", "svm", "sweep",
    "theory",
))  # fmt: skip
# Where each name lives; a test holds this against the imports above.
_HOMES = {
    name: room
    for room, names in {
        "data": "TokenDataset",
        "attention": "LinearHead ReluHead QuadraticHead ModuleHead Logistic Exponential Weights KeyQuery token_scores"
        " optimal_tokens optimal_token_set best_risk lipschitz_bound logits logits_adjoint",
        "norms": "Frobenius Nuclear Spectral Entrywise MaxEntry SumEntry direction_cosine",
        "descent": "fit Run initial_parameters GradientDescent NormalizedGradientDescent SteepestDescent MirrorDescent"
        " NormalizedMirrorDescent Adam PolyakDescent",
        "svm": "AttentionSVM solve SVMSolution margin_efficiency label_svm ActiveSet BatchedFrobenius BlockDescent"
        " NuclearInteriorPoint InteriorPoint LinearProgram Conic Cvxpy",
        "theory": "diagnose verify predict_selection implicit_bias is_locally_optimal locally_optimal_selections"
        " regularization_path generalized_components",
    }.items()
    for name in names.split()
}


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
