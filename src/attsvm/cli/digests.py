"""manifest.json: how a result was made, and whether it is complete."""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from attsvm import __version__
from attsvm.data import TokenDataset

NAME = "manifest.json"


def versions() -> dict[str, str]:
    """Versions of what a number may hang on."""
    found = {"attsvm": __version__, "python": platform.python_version()}
    return found | {name: importlib.metadata.version(name) for name in ("torch", "numpy", "numba")}


def write_manifest(folder: Path, content: Mapping[str, Any]) -> Path:
    """Write `content` to FOLDER/manifest.json; a reader never sees half of it."""
    path = folder / NAME
    temporary = path.with_suffix(".partial")
    temporary.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(temporary, path)
    return path


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest in `folder`, or None.

    Raises:
        ValueError: if there is one that cannot be understood.
    """
    path = folder / NAME
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError):
        content = None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a manifest that attsvm wrote")
    return content


def now() -> str:
    """The time, in UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def digest(parts: Sequence[Tensor | None]) -> str:
    """A fingerprint of some tensors: their types, shapes and bits."""
    total = hashlib.sha256()
    for part in parts:
        if part is None:
            total.update(b"none;")
            continue
        total.update(f"{part.dtype}{tuple(part.shape)};".encode())
        total.update(part.detach().cpu().contiguous().numpy().tobytes())
    return total.hexdigest()


def data_digest(data: TokenDataset) -> str:
    """A fingerprint of a data set without its head, the same on every device."""
    values = None if data.values is data.tokens else data.values
    return digest([data.tokens, data.queries, data.labels, data.mask, values])
