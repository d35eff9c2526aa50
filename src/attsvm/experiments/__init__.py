"""Every experiment of the papers, and some of ours, by id: computed, stored, resumed; `attsvm.plots` draws the results.

What an experiment needs besides (tasks, configurations, backends) comes from `attsvm.sweep`, and is named here too.
"""

from __future__ import annotations

import difflib
from types import MappingProxyType
from typing import Any

from attsvm.experiments.attention_sparsity import ATTENTION_SPARSITY
from attsvm.experiments.base import Experiment
from attsvm.experiments.bent_prompts import JOINT_TRAINING, LOSS_COMPARISON
from attsvm.experiments.checks import Check, Verdict
from attsvm.experiments.cones import CONES
from attsvm.experiments.dimensions import CONVERGENCE_TYPES, FIRST_GRADIENT
from attsvm.experiments.factor_laws import LOGIT_GROWTH, WEIGHT_DECAY
from attsvm.experiments.fused_heads import FUSED_HEADS
from attsvm.experiments.geometry import ADAM, FACTOR_GEOMETRY, OPTIMIZER_GEOMETRY
from attsvm.experiments.multi_token import MULTI_TOKEN
from attsvm.experiments.next_token import NEXT_TOKEN_ACYCLIC, NEXT_TOKEN_CYCLIC
from attsvm.experiments.next_token_text import NEXT_TOKEN_TEXT
from attsvm.experiments.prompts import DESCENT_VS_NORMALIZED, MULTI_INPUT, SINGLE_INPUT
from attsvm.experiments.quadratic_head import QUADRATIC_HEAD
from attsvm.experiments.rank import RANK
from attsvm.experiments.regularization import REGULARIZATION_PATH
from attsvm.experiments.seeds import AcrossSeeds, Judged, run_seeds
from attsvm.experiments.weights_and_factors import CAUSAL, HYPERPLANES, LOCAL_CONVERGENCE, TRAJECTORIES
from attsvm.sweep.backends import Backend, DaskCluster, Processes
from attsvm.sweep.result import SweepResult, describe_columns
from attsvm.sweep.runner import check_folder, run
from attsvm.sweep.task import Configuration, Done, Piece, Task, chunked, cut

__all__ = [
    "EXPERIMENTS", "AcrossSeeds", "Check", "Experiment", "Judged", "Verdict", "experiment", "run_seeds",
    "Backend", "Configuration", "DaskCluster", "Done", "Piece", "Processes", "SweepResult", "Task", "check_folder",
    "chunked", "cut", "describe_columns", "run",
]  # fmt: skip

_MMTS = (SINGLE_INPUT, MULTI_INPUT, DESCENT_VS_NORMALIZED, JOINT_TRAINING, LOSS_COMPARISON, ATTENTION_SPARSITY)
_TASVM = (TRAJECTORIES, HYPERPLANES, CONVERGENCE_TYPES, LOCAL_CONVERGENCE, RANK, MULTI_TOKEN, QUADRATIC_HEAD)
_BOTH_AND_TALK = (REGULARIZATION_PATH, FIRST_GRADIENT, CONES, CAUSAL)
_NEW = (OPTIMIZER_GEOMETRY, FACTOR_GEOMETRY, ADAM, NEXT_TOKEN_ACYCLIC, NEXT_TOKEN_CYCLIC, NEXT_TOKEN_TEXT)
_FACTORS = (LOGIT_GROWTH, WEIGHT_DECAY, FUSED_HEADS)
_ALL: tuple[Experiment[Any], ...] = (*_MMTS, *_TASVM, *_BOTH_AND_TALK, *_NEW, *_FACTORS)

EXPERIMENTS = MappingProxyType({each.id: each for each in _ALL})
"""Every experiment by its id."""


def experiment(name: str) -> Experiment[Any]:
    """The experiment of this id.

    Raises:
        ValueError: if there is none, with ids that are spelled alike.
    """
    if name in EXPERIMENTS:
        return EXPERIMENTS[name]
    near = difflib.get_close_matches(name, EXPERIMENTS, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "`attsvm figure list` shows them all"
    raise ValueError(f"no experiment is called {name!r}; {hint}")
