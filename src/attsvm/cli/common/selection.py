"""What `--select` and `--rhs` name: tokens of every input, and numbers for the rows."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attsvm.attention import LinearHead, logits, optimal_tokens
from attsvm.data import TokenDataset
from attsvm.data.files import SUFFIXES, read_arrays
from attsvm.descent import Run
from attsvm.descent.fingerprint import data_digest, same_digest

REACHED = "reached:"
_FORMS = ".npz, .safetensors, .npy, .json, .txt or .csv"


Selection = dict[str, Tensor]  # arguments of `AttentionSVM`: selected, one token for each input, or a selected_set


def selection_named(name: str, data: TokenDataset, *, head: LinearHead | None, start: int | None) -> Selection:
    """What `--select` asks for: optimal (scored by `head`), reached:FILE (of this `start` of the run), or a file."""
    reached = name.startswith(REACHED)
    if start is not None and not reached:
        raise ValueError(f"--start belongs to --select reached:FILE; --select is {name}")
    if head is not None and name != "optimal":
        raise ValueError(f"--head belongs to --select optimal; --select is {name}")
    if name == "optimal":
        return _optimal(data, head)
    return _reached(Path(name.removeprefix(REACHED)), data, start) if reached else _from_file(name)


def right_hand_side(text: str) -> Tensor | float:
    """A number, or the numbers of a file."""
    with contextlib.suppress(ValueError):
        return float(text)
    arrays = _arrays(text, "--rhs", "a number, or a file", "right_hand_side", float)
    if "right_hand_side" not in arrays:
        raise ValueError(f"{text} must hold an array called right_hand_side; it holds {', '.join(arrays) or 'nothing'}")
    return arrays["right_hand_side"]


def _optimal(data: TokenDataset, head: LinearHead | None) -> Selection:
    if head is None and data.head is None:
        cure = "add an array called head to the file, give --head FILE, or --select a file of indices"
        raise ValueError(f"--select optimal needs scores, but DATA has no head; {cure}")
    try:
        return {"selected": optimal_tokens(data, head)}
    except ValueError as error:
        tie, _, _ = str(error).partition("; use optimal_token_set")
        if tie == str(error):
            raise
        raise ValueError(f"--select optimal: {tie}; choose among them with --select FILE") from None


def _reached(path: Path, data: TokenDataset, start: int | None) -> Selection:
    if path.is_dir():
        path = path / "run.safetensors"
    run = Run.load(path)
    attention, weights, selected = run.attention, run.weights, run.selected
    needed = [list(data.batch_shape) + size for size in ([data.n, data.T], [data.d, data.dq])]
    several = attention.ndim - len(needed[0])
    found = [list(attention.shape), list(weights.shape)]
    if several not in (0, 1) or [shape[several:] for shape in found] != needed:
        shapes = f"attention of shape {found[0]} and weights {found[1]}, DATA needs {needed[0]} and {needed[1]}"
        raise ValueError(f"{path} is a run on other data: it has {shapes}")
    if several:
        starts = attention.shape[0]
        if start is None or not 0 <= start < starts:
            asked = "choose one with" if start is None else f"there is no start {start}, choose"
            raise ValueError(f"{path} has {starts} starts for each data set; {asked} --start 0..{starts - 1}")
        attention, weights, selected = attention[start], weights[start], selected[start]
    elif start is not None:
        raise ValueError(f"--start does nothing here: {path} has one start for each data set")
    if not _same_data(run, data, weights, attention):
        raise ValueError(f"{path} is a run on other data of the same shape")
    return {"selected": selected.to(data.device)}


def _same_data(run: Run, data: TokenDataset, weights: Tensor, attention: Tensor) -> bool:
    """Whether a run of the right shape was made on these data: by its fingerprint, in 0.1 by its own attention."""
    if (made := run.configuration.get("fingerprint", {}).get("data")) is not None:
        return same_digest(made, data_digest(data))
    scores = data.fill_masked(logits(data, weights.to(data.tokens)), -torch.inf)
    return bool(((scores.softmax(-1) - attention.to(scores)).abs() < 0.01).all())


def _from_file(name: str) -> Selection:
    arrays = _arrays(name, "--select", "optimal, reached:FILE or a file", "selected", int)
    if len(found := [key for key in ("selected", "selected_set") if key in arrays]) == 2:
        raise ValueError(f"{name} holds both selected and selected_set; leave one of them")
    if not found:
        raise ValueError(f"{name} must hold selected or selected_set; it holds {', '.join(arrays) or 'nothing'}")
    array = arrays[found[0]]
    if found[0] == "selected" and array.dtype != torch.bool:  # a single array has no name: booleans are a mask
        return {"selected": array}
    zero_one = not array.is_floating_point() and bool(((array == 0) | (array == 1)).all())
    return {"selected_set": array.bool() if zero_one else array}


def _arrays(name: str, option: str, asked: str, only: str, kind: type) -> dict[str, Tensor]:
    """The arrays of a file by name; that of a file with a single one is called `only`."""
    path = Path(name)
    if not path.suffix and not path.exists():
        raise ValueError(f"{option} must be {asked} ({_FORMS}); got {name!r}")
    readers: dict[str, Callable[[], Any]] = {
        ".npy": lambda: np.load(path, allow_pickle=False),
        ".json": lambda: json.loads(path.read_text(encoding="utf-8")),
        **dict.fromkeys((".txt", ".csv"), lambda: _table(path, kind)),
    }
    if path.suffix not in (*SUFFIXES, *readers):
        raise ValueError(f"{option} reads {_FORMS}; got {path}")
    if not path.is_file():
        raise ValueError(f"{path} {'is a folder' if path.exists() else 'does not exist'}; {option} needs a file")
    if path.suffix in SUFFIXES:
        arrays, metadata = read_arrays(path)
        if metadata.get("kind") == "Run":
            raise ValueError(f"{path} is a saved run; take what it selects with --select {REACHED}{path}")
        return arrays
    wanted = f"{option} needs {'a number' if kind is float else 'the index of a token'} for each input"
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty; {wanted}")
    try:
        content = readers[path.suffix]()
        named = content if isinstance(content, dict) else {only: content}
        found = {key: _numeric(np.asarray(value)) for key, value in named.items()}
    except (ValueError, TypeError, EOFError) as error:
        raise ValueError(f"{path} does not hold {only} as numbers: {str(error).partition(chr(10))[0]}") from None
    if only in found and found[only].numel() == 0:
        raise ValueError(f"{path} holds no numbers; {wanted}")
    return found


def _table(path: Path, kind: type) -> np.ndarray:
    """Numbers of a text: a single column or line holds one per input; otherwise there is a line for each data set."""
    lines = [line.partition("#")[0].replace(",", " ").split() for line in path.read_text(encoding="utf-8").splitlines()]
    lines = [line for line in lines if line]
    if path.suffix == ".csv" and lines:
        try:
            list(map(float, lines[0]))
        except ValueError:
            lines = lines[1:]  # a heading
    table = np.array([[kind(entry) for entry in line] for line in lines])
    return table.reshape(-1) if 1 in table.shape else table


def _numeric(array: np.ndarray) -> Tensor:
    if array.dtype.kind not in "biuf":
        raise ValueError(f"got entries of type {array.dtype}")
    return torch.from_numpy(array.astype(np.int64) if array.dtype.kind in "iu" else array)
