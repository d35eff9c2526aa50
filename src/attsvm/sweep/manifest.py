"""manifest.json: how a result was made, with which versions, and whether it is complete."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import importlib.metadata
import json
import math
import platform
import types
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from attsvm import __version__

NAME = "manifest.json"
# How messages tell a user to go on or start over: sweeps are run from the command line and from Python.
RESUME, OVERWRITE = "--resume (in Python, resume=True)", "--overwrite (in Python, overwrite=True)"


def new_manifest(
    kind: str, *, seconds: float, libraries: Sequence[str] = (), written: str | None = None, **details: Any
) -> dict[str, Any]:
    """The manifest of a result of this kind, such as "solve": `details`, and what every manifest says besides.

    `libraries` may matter besides those that `versions` always names; `seconds` is wall time and `written` now if None.
    """
    always = {"versions": versions(*libraries), "wall_seconds": round(seconds, 3), "written": written or now()}
    return {"kind": kind, **details, **always}


def versions(*libraries: str) -> dict[str, str]:
    """Versions a number may depend on: Python, attsvm, torch, numpy, numba, and `libraries` where installed."""
    found = {"attsvm": __version__, "python": platform.python_version()}
    for name in ("torch", "numpy", "numba", *libraries):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def digest(content: bytes) -> str:
    """The SHA-256 of `content`, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def write_manifest(folder: Path, content: Mapping[str, Any]) -> Path:
    """Write `content` to FOLDER/manifest.json; a reader never sees half of it."""
    from attsvm.data.files import write_atomically  # which loads PyTorch; the rest of this file needs nothing

    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    return write_atomically(folder / NAME, text.encode())


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest in `folder`, or None; a ValueError if there is one that cannot be understood."""
    if not (path := folder / NAME).is_file():
        return None
    content = None
    with contextlib.suppress(ValueError):  # or a UnicodeDecodeError, which is one
        content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a manifest that attsvm wrote")
    return content


def now() -> str:
    """The time, in UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def to_plain(value: Any) -> Any:
    """`value` as JSON can hold it, the one place where numbers that are not finite become None.

    Records become dictionaries, tensors, arrays and tuples lists, enum members their values.

    >>> to_plain({"share": (1, float("nan"))})
    {'share': [1, None]}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(to_plain(key)): to_plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(part) for part in value]
    if isinstance(value, Enum):
        return value.value
    if hasattr(value, "tolist"):
        return to_plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def from_plain(kind: Any, value: Any) -> Any:
    """The record of this kind that `to_plain` turned into `value`; None where a number is expected is NaN."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return None if value is None else from_plain(next(part for part in arguments if part is not type(None)), value)
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return tuple(from_plain(arguments[0], part) for part in value)
        return tuple(from_plain(part, element) for part, element in zip(arguments, value, strict=True))
    if origin is dict:
        return {from_plain(arguments[0], key): from_plain(arguments[1], part) for key, part in value.items()}
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        names = [field.name for field in dataclasses.fields(kind)]
        return kind(**{name: from_plain(hints[name], value[name]) for name in names})  # type: ignore[operator]
    if kind is float:
        return math.nan if value is None else float(value)
    if isinstance(kind, type) and issubclass(kind, (Enum, int, str)):
        return kind(value)
    raise TypeError(f"cannot read a {kind!r}")
