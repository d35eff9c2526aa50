"""Files that are whole or not there, and manifest.json: how a result was made, and whether it is complete."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import importlib.metadata
import json
import os
import platform
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NAME = "manifest.json"
PARTIAL = ".partial"
"""Suffix of a file that is being written; one that is left over belongs to a process that was killed."""


def versions(*libraries: str) -> dict[str, str]:
    """Versions of what a number may hang on: Python, attsvm, torch, numpy, numba, and `libraries` where installed."""
    from attsvm import __version__

    found = {"attsvm": __version__, "python": platform.python_version()}
    for name in ("torch", "numpy", "numba", *libraries):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def write_atomically(path: Path, content: bytes) -> Path:
    """Write `content` to `path` and onto the disk; a reader sees the old file or the new one, never half of one.

    Raises:
        OSError: if it cannot be written; nothing is left behind and an older file stays as it was.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}{PARTIAL}")
    try:
        with temporary.open("wb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.filename is not None:
            error.filename, error.filename2 = str(path), None  # what the user asked for, not our way of writing it
        raise
    return path


def digest(content: bytes) -> str:
    """The SHA-256 of `content`, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def write_manifest(folder: Path, content: Mapping[str, Any]) -> Path:
    """Write `content` to FOLDER/manifest.json; a reader never sees half of it."""
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    return write_atomically(folder / NAME, text.encode())


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
