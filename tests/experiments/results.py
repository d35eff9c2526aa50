"""Small results of all experiments, each computed once for all processes that test."""

from __future__ import annotations

import fcntl
import os
from functools import cache
from pathlib import Path

from attsvm.experiments import EXPERIMENTS, SweepResult, run

PLANE: dict[str, dict[str, object]] = {
    "single-input": {},
    "multi-input": {"datasets": 4, "chunk_size": 3},
    "descent-vs-normalized": {"datasets": 4, "chunk_size": 3},
    "joint-training": {"steps": 400},
    "loss-comparison": {},
    "trajectories": {"datasets": 6, "chunk_size": 4},
    "hyperplanes": {"datasets": 6, "chunk_size": 4},
}
"""Values that make each experiment in the plane a matter of seconds."""

RANDOM: dict[str, dict[str, object]] = {
    "attention-sparsity": {"models": 1, "epochs": 4, "recorded": (0, 4), "kept_images": 12, "width": 32},
    "convergence-types": {"dimensions": (2, 20, 320), "datasets": 12, "everywhere": 1, "steps": 3000, "chunk_size": 6},
    "local-convergence": {"datasets": 8, "long_steps": 3000, "chunk_size": 4},
    "rank": {"dimensions": (1, 3, 6), "shapes": ((3, 4), (5, 4)), "draws": 8, "cap": 24, "batch": 8},
    "multi-token": {
        "dimensions": (4, 10), "accepted": 8, "steps": 600, "draws": 40, "chunk_size": 200, "decaying_steps": 8000,
        "split_steps": 200,
    },
    "quadratic-head": {"datasets": 5, "penalties": (0.05, 0.5, 2.0)},
    "regularization-path": {"datasets": 2, "radii": 2, "largest_radius": 10.0, "steps": 200, "n": 2, "T": 3, "d": 4},
    "first-gradient": {"dimensions": (5, 80), "datasets": 20, "steps": 500, "chunk_size": 10},
    "cones": {"datasets": 3, "directions": 2, "steps": 800, "openings": (1e-5, 0.1, 1.0), "radii": (1.0, 1e3)},
    "causal": {"datasets": 4, "steps": 1500, "sequences": 1, "length": 4, "chunk_size": 2},
    "next-token-acyclic": {"shapes": ((4, 4, 6, 3), (4, 2, 6, 3)), "datasets": 3, "steps": 120},
    "next-token-cyclic": {"shapes": ((4, 4, 6, 3), (4, 2, 6, 3)), "datasets": 3, "steps": 120},
    "next-token-text": {"words": 150, "dimensions": (2, 90), "draws": 1, "steps": 100, "fresh": 5},
    "logit-growth": {"n": 2, "T": 3, "d": 3, "datasets": 2, "steps": 60, "records": 8, "chunk_size": 2},
    "weight-decay": {"n": 2, "T": 3, "d": 3, "datasets": 2, "steps": 60, "radii": (1.0, 4.0), "chunk_size": 2},
    "fused-heads": {"n": 1, "T": 3, "d": 3, "datasets": 2, "steps": 60, "chunk_size": 2},
    "optimizer-geometry": {"n": 2, "T": 3, "d": 3, "datasets": 2, "steps": 400, "chunk_size": 2},
    "factor-geometry": {"n": 2, "T": 3, "d": 3, "datasets": 2, "steps": 60, "chunk_size": 2},
    "adam": {"n": 2, "T": 3, "d": 3, "datasets": 2, "steps": 60, "chunk_size": 2},
}  # fmt: skip
"""The same for the experiments on random data and on images."""

SMALL = {**PLANE, **RANDOM}


@cache
def result_of(name: str) -> SweepResult:
    """The small result of this experiment; the first process that asks computes it, and others read what it stored."""
    experiment = EXPERIMENTS[name]
    folder = Path(os.environ["ATTSVM_TESTS_SHARE"])
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return run(experiment, experiment.default.with_values(**SMALL[name]), folder=folder / name, resume=True)
