"""Small results of the experiments in the plane, computed once a process."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from attsvm.experiments import EXPERIMENTS, SweepResult, run

SMALL = {
    "single-input": {},
    "multi-input": {"datasets": 4, "chunk_size": 3},
    "descent-vs-normalized": {"datasets": 4, "chunk_size": 3},
    "joint-training": {"steps": 400},
    "loss-comparison": {},
    "trajectories": {"datasets": 6, "chunk_size": 4},
    "hyperplanes": {"datasets": 6, "chunk_size": 4},
}


@functools.cache
def result_of(name: str) -> SweepResult:
    """The small result of this experiment."""
    experiment = EXPERIMENTS[name]
    with tempfile.TemporaryDirectory() as folder:
        return run(experiment, experiment.default.with_values(**SMALL[name]), folder=Path(folder) / name)


def verdicts(name: str) -> dict[str, str]:
    """What each check says, by what it is about."""
    return {check.what: check.verdict.value for check in EXPERIMENTS[name].checks(result_of(name))}
