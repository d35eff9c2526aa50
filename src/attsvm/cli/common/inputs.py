"""What a command is given: data, a device, a prediction head and a starting point."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import attsvm

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from attsvm.sweep import Backend

Initial = Mapping[str, "Tensor"] | str | None  # what `fit` takes as `initial`


def load_data(name: str) -> attsvm.TokenDataset:
    """A built-in example by its name, or a .npz or .safetensors file; a ValueError says what there is, and is near."""
    examples = attsvm.data.EXAMPLES
    if name in examples:
        return attsvm.data.example(name)
    path = Path(name)
    if path.exists() or path.suffix in attsvm.data.files.SUFFIXES:
        return attsvm.TokenDataset.load(path)
    near = difflib.get_close_matches(name, examples, n=1)
    hint = f"{f'did you mean {near[0]}? ' if near else ''}examples: {', '.join(examples)}"
    raise ValueError(f"DATA must be a .npz or .safetensors file or a built-in example; {name!r} is neither ({hint})")


def checked_device(name: str) -> torch.device:
    """The device of this name, if this machine has it."""
    if (device := attsvm.data.checks.as_device(name, "--device")).type not in ("cpu", "cuda"):
        raise ValueError(f"--device must be cpu, cuda or cuda:N; got {name!r}")
    return device


def checked_backend(
    name: str, scheduler: str | None, jobs: int, worker_timeout: float | None, device: str
) -> tuple[Backend, str]:
    """Where tasks are computed, and on which device, which must be here unless a cluster's workers are to have it."""
    if name not in ("loky", "dask"):
        raise ValueError(f"--backend must be loky or dask; got {name!r}")
    if jobs < 1:
        raise ValueError(f"--jobs must be a positive number of processes; got {jobs}")
    if worker_timeout is not None and not 0 < worker_timeout < math.inf:
        raise ValueError(f"--worker-timeout must be a positive number of seconds; got {worker_timeout}")
    if name == "loky":
        for option, value in (("--worker-timeout", worker_timeout), ("--scheduler", scheduler)):
            if value is not None:
                raise ValueError(f"{option} is for --backend dask; add that, or leave it out")
        return attsvm.sweep.Processes(jobs), str(checked_device(device))
    if scheduler is None:
        raise ValueError("--backend dask needs --scheduler ADDRESS, such as tcp://host:8786")
    if jobs != 1:
        raise ValueError("--jobs is for --backend loky; a Dask cluster has as many workers as were started")
    cluster = attsvm.sweep.DaskCluster(scheduler, worker_timeout=worker_timeout)
    cluster.check()
    return cluster, device if device.partition(":")[0] == "cuda" else str(checked_device(device))


def starting_head(path: Path | None, data: attsvm.TokenDataset, own: Tensor | None = None) -> attsvm.LinearHead | None:
    """The prediction head of a file, or `own`, where training starts it, or None for the data's own, if any."""
    if path is not None:
        arrays, _ = attsvm.data.files.read_arrays(path)
        if "head" not in arrays:
            raise ValueError(f"{path} must hold an array called head; it holds {', '.join(arrays) or 'nothing'}")
        return attsvm.LinearHead(arrays["head"].to(data.device))
    if own is not None:
        return attsvm.LinearHead(own)
    if data.head is None:
        raise ValueError("DATA has no head to score the tokens; add an array called head to it, or give --head FILE")
    return None


def starting_point(
    name: str | None, source: str, data: attsvm.TokenDataset, *, train_head: bool
) -> tuple[Initial, Tensor | None]:
    """What `--initial` names, and the starting prediction head where the example's paper trains it."""
    if name is None or name == "zeros":
        return name, None
    if name == "paper":
        if source not in attsvm.data.EXAMPLES:
            raise ValueError(f"--initial paper is for built-in examples; DATA is {source!r}")
        points = attsvm.data.starting_points(source)
        head = points.head[0].to(data.device) if points.head is not None and train_head else None
        return {"weights": points.weights.to(data.device, data.dtype)}, head
    path = Path(name)
    if not path.exists() and not path.suffix:
        raise ValueError(f"--initial must be zeros, paper, or a .npz or .safetensors file; got {name!r}")
    arrays, metadata = attsvm.data.files.read_arrays(path)
    if metadata.get("kind") == "Run":
        arrays = dict(attsvm.Run.load(path).parameters)
    return {key: value.to(data.device) for key, value in arrays.items()}, None
