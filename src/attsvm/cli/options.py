"""Options that every command has, and the data and devices they name."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Annotated

import torch
import typer

from attsvm.data import EXAMPLES, TokenDataset, example
from attsvm.data.files import SUFFIXES
from attsvm.sweep.manifest import read_manifest

Out = Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Folder for everything that is written.")]
SeedOption = Annotated[int, typer.Option("--seed", metavar="N", help="Seed of random starts and mini-batches.")]
Device = Annotated[str, typer.Option("--device", metavar="NAME", help="cpu, cuda, or cuda:1 and so on.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar and no table: one line in the end.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def load_data(name: str) -> TokenDataset:
    """A built-in example by its name, or a .npz or .safetensors file.

    Raises:
        ValueError: saying what there is, and what is near.
    """
    if name in EXAMPLES:
        return example(name)
    path = Path(name)
    if path.exists() or path.suffix in SUFFIXES:
        return TokenDataset.load(path)
    near = difflib.get_close_matches(name, EXAMPLES, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise ValueError(
        f"DATA must be a .npz or .safetensors file or a built-in example; {name!r} is neither ({hint}examples:"
        f" {', '.join(EXAMPLES)})"
    )


def checked_device(name: str) -> torch.device:
    """The device of this name, if this machine has it.

    Raises:
        ValueError: if the name means nothing to PyTorch, or there is no such device.
    """
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"--device must be cpu, cuda or cuda:N; got {name!r}") from None
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"--device must be cpu, cuda or cuda:N; got {name!r}")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        there = torch.cuda.device_count()
        raise ValueError(f"--device {name} is not there: PyTorch finds {there} CUDA devices; use cpu")
    return device


def checked_folder(out: Path) -> Path:
    """`out`, made if need be and writable, before any work is done.

    Raises:
        ValueError: if it is a file, or cannot be made or written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ValueError(f"--out must be a folder; {out} is, or lies in, a file") from None
    except OSError as error:
        raise ValueError(f"--out {out} cannot be made: {(error.strerror or str(error)).lower()}") from None
    if not os.access(out, os.W_OK | os.X_OK):
        raise ValueError(f"--out {out} cannot be written: permission denied")
    return out


def own_folder(out: Path, command: str) -> Path:
    """The folder `command` writes to, unless its manifest describes something else, such as a training run."""
    folder = checked_folder(out)
    found = read_manifest(folder)
    if found is not None and found.get("kind") != command:
        raise ValueError(
            f"--out {out} holds another result and its manifest; give {command} another, such as {out / command}"
        )
    return folder
