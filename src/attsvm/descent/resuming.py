"""How a run was made, and going on from where it ended."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attsvm.data import TokenDataset
from attsvm.descent.engines.torch import Progress, Task
from attsvm.descent.fingerprint import data_digest, head_digest
from attsvm.descent.run import Run
from attsvm.descent.stopping import StoppingRule


def describe(
    task: Task, head: object, steps: int, keys: list[tuple[int, int]], batch_size: int | None, stop: StoppingRule | None
) -> dict[str, Any]:
    """How a run is made, JSON-able."""
    from attsvm import __version__

    return {
        "version": __version__,
        "data": repr(task.data),
        "head": type(head).__name__,
        "train_head": task.train_head,
        "parameterization": repr(task.parameterization),
        "optimizer": repr(task.optimizer),
        "loss": repr(task.loss),
        "steps": steps,
        "seed": keys,
        "batch_size": batch_size,
        "ridge": task.ridge,
        "stop": repr(stop),
        "fingerprint": {"data": data_digest(task.data), "head": head_digest(task.head)},
    }


# What runs saved by earlier versions do not say.
_DEFAULTS = {"ridge": 0.0}


def resumed(
    run: Run, data: TokenDataset, task: Task, configuration: dict[str, Any], steps: int
) -> tuple[Progress, bool, int]:
    """Where a run stands, whether it has an axis of starts, and how many steps it took.

    Raises:
        ValueError: if what is asked for now is not what the run was made with.
    """
    for name in ("data", "head", "train_head", "parameterization", "optimizer", "loss", "batch_size", "ridge"):
        before, now = run.configuration.get(name, _DEFAULTS.get(name)), configuration[name]
        if before != now:
            raise ValueError(f"resume needs the same {name}; the run was made with {before}, now it is {now}")
    earlier = run.configuration.get("fingerprint", {})  # runs saved by earlier versions have none
    for name, digest in configuration["fingerprint"].items():
        if earlier.get(name, digest) != digest:
            raise ValueError(f"resume needs the same {name}; the run was made with another of the same shape")
    if configuration["batch_size"] is not None and not _same_seeds(run.configuration["seed"], configuration["seed"]):
        raise ValueError("resume needs the same seed; mini-batches are drawn from it")
    if steps < run.step:
        raise ValueError(
            f"steps counts from the start of the run and must be at least the {run.step} already taken; got {steps}"
        )
    batch = len(data.batch_shape)
    several = run.risk.ndim > batch
    count = data.flatten().batch_shape[0]

    def folded(value: Tensor) -> Tensor:
        return value.to(data.device).reshape(-1, count, *value.shape[run.risk.ndim :]).clone()

    memory = {
        name.removeprefix("stop/"): folded(value) for name, value in run.state.items() if name.startswith("stop/")
    }
    active = (folded(run.steps_taken) == run.step) & ~folded(run.overflowed)
    if run.configuration.get("stop") == configuration["stop"]:
        active &= ~memory.get("stopped", torch.zeros_like(active))
    else:
        memory = {}  # another rule starts afresh on the elements that are not behind
    now = Progress(
        {name: folded(value) for name, value in run.parameters.items()},
        {name: folded(value) for name, value in run.state.items() if not name.startswith("stop/")},
        active=active,
        stalled=folded(run.stalled),
        overflowed=folded(run.overflowed),
        memory=memory,
    )
    return now, several, run.step


def _same_seeds(before: Any, now: list[tuple[int, int]]) -> bool:
    return [tuple(key) for key in before] == now
