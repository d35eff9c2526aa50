"""What `attsvm train` was asked to do: the task, its head and its starting point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from torch import Tensor

from attsvm.attention import LinearHead, Loss, Parameterization
from attsvm.cli.digests import data_digest, digest
from attsvm.data import EXAMPLES, TokenDataset, starting_points
from attsvm.data.files import read_arrays
from attsvm.descent import Optimizer, Run, StoppingRule


@dataclass(frozen=True)
class TrainTask:
    """All that `fit` is told, apart from where the run stands."""

    data: TokenDataset
    head: LinearHead | None
    parameterization: Parameterization
    optimizer: Optimizer
    loss: Loss
    stop: StoppingRule | None
    initial: Mapping[str, Tensor] | str | None
    starts: int | None
    train_head: bool
    batch_size: int | None
    seed: int
    record: int
    keep: tuple[str, ...]

    def settings(self) -> dict[str, Any]:
        """What must stay the same for a run to be resumed, in words."""
        initial = self.initial
        return {
            "data": data_digest(self.data),
            "head": digest([self.data.head if self.head is None else self.head.vector]),
            "parameterization": repr(self.parameterization),
            "optimizer": repr(self.optimizer),
            "loss": repr(self.loss),
            "stop": repr(self.stop),
            "initial": digest([*initial.values()]) if isinstance(initial, Mapping) else initial,
            "starts": self.starts,
            "train_head": self.train_head,
            "batch_size": self.batch_size,
            "seed": self.seed,
            "record": self.record,
            "keep": list(self.keep),
        }

    def arguments(self, resume: Run | None) -> dict[str, Any]:
        """For `fit`, from the start or on from a run, which knows its own weights."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        del given["record"]
        return given | {"resume": resume, "initial": self.initial if resume is None else None}


def starting_head(path: Path | None, data: TokenDataset, own: Tensor | None) -> LinearHead | None:
    """The head of a file, or where training starts it, or None for the data's own."""
    if path is not None:
        arrays, _ = read_arrays(path)
        if "head" not in arrays:
            raise ValueError(f"{path} must hold an array called head; it holds {', '.join(arrays) or 'nothing'}")
        return LinearHead(arrays["head"].to(data.device))
    if own is not None:
        return LinearHead(own)
    if data.head is None:
        raise ValueError(
            "DATA has no head to score the tokens; add an array called head to the file, or give --head FILE"
        )
    return None


def starting_point(
    name: str | None, source: str, data: TokenDataset, train_head: bool
) -> tuple[Mapping[str, Tensor] | str | None, Tensor | None]:
    """The starting point, and the starting head where the example's paper trains it."""
    if name is None or name == "zeros":
        return name, None
    if name == "paper":
        if source not in EXAMPLES:
            raise ValueError(f"--initial paper is for built-in examples; DATA is {source!r}")
        points = starting_points(source)
        head = points.head[0].to(data.device) if points.head is not None and train_head else None
        return {"weights": points.weights.to(data.device, data.dtype)}, head
    path = Path(name)
    if not path.exists() and not path.suffix:
        raise ValueError(f"--initial must be zeros, paper, or a .npz or .safetensors file; got {name!r}")
    arrays, metadata = read_arrays(path)
    if metadata.get("kind") == "Run":
        arrays = dict(Run.load(path).parameters)
    return {key: value.to(data.device) for key, value in arrays.items()}, None
