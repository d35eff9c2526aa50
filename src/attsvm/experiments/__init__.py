"""Every experiment of the papers, and some of ours, by id: computed, stored, resumed; `attsvm.plots` draws the results.

What an experiment needs besides (tasks, configurations, backends) comes from `attsvm.sweep`, and is named here too.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Any

from attsvm.experiments.base import CATALOGUE, STUDIES, Check, Experiment, Verdict
from attsvm.experiments.seeds import AcrossSeeds, Judged, run_seeds
from attsvm.sweep.backends import Backend, DaskCluster, Processes
from attsvm.sweep.result import SweepResult, describe_columns
from attsvm.sweep.runner import check_folder, run
from attsvm.sweep.task import Configuration, Done, Piece, Task, chunked, cut

__all__ = [
    "EXPERIMENTS", "AcrossSeeds", "Check", "Experiment", "Judged", "Verdict", "experiment", "run_seeds",
    "Backend", "Configuration", "DaskCluster", "Done", "Piece", "Processes", "SweepResult", "Task", "check_folder",
    "chunked", "cut", "describe_columns", "run",
]  # fmt: skip

for _module in iter_modules(__path__):  # each adds its studies
    import_module(f"{__name__}.{_module.name}")

EXPERIMENTS: Mapping[str, Experiment[Any]] = MappingProxyType(
    {name: STUDIES[name]().experiment(name) for name in CATALOGUE}
)
"""Every experiment by its id."""


def experiment(name: str) -> Experiment[Any]:
    """The experiment of this id; a ValueError if there is none, with ids that are spelled alike."""
    if name in EXPERIMENTS:
        return EXPERIMENTS[name]
    near = difflib.get_close_matches(name, EXPERIMENTS, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "`attsvm figure list` shows them all"
    raise ValueError(f"no experiment is called {name!r}; {hint}")
