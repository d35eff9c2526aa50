"""Finished heads on disk, one file for each, so that an analysis that was stopped goes on where it was."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import types
import typing
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from attsvm import __version__
from attsvm.data.files import PARTIAL, locked, write_atomically
from attsvm.heads.analysis.settings import Settings
from attsvm.heads.model import HeadModel, Sentence
from attsvm.heads.report.records import HeadReport
from attsvm.sweep.manifest import to_plain

_FORMAT = 3  # of the files; another number leaves older results unread
_MARK = f"attsvm head {_FORMAT} sha256 ".encode()


class HeadCache:
    """A folder of finished heads, found again by the content of model, sentences and settings, and by attsvm's version.

    Every file begins with a line that holds the SHA-256 of the rest.

    Attributes:
        damaged: files that were there but are not as they were written; their heads are analysed again.

    Raises:
        ValueError: if the folder cannot be made or written.
    """

    def __init__(
        self, folder: str | os.PathLike[str], model: HeadModel, sentences: Sequence[Sentence], settings: Settings
    ) -> None:
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(
                f"cache folder {folder} cannot be made: {(error.strerror or str(error)).lower()}"
            ) from None
        if not os.access(self.folder, os.W_OK | os.X_OK):
            raise ValueError(f"cache folder {folder} cannot be written: permission denied")
        digest = hashlib.sha256(
            repr((_FORMAT, __version__, model.fingerprint(), model.has_untrained, settings)).encode()
        )
        for sentence in sentences:
            digest.update(repr((sentence.text, sentence.tokens, sentence.ids.tolist())).encode())
        self.key = digest.hexdigest()[:16]
        self.damaged: list[Path] = []

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Keep other processes out (a ValueError), and clear away what a killed process left half-written."""
        with locked(self.folder):
            for left in self.folder.glob(f".*{PARTIAL}"):
                with contextlib.suppress(OSError):
                    left.unlink()
            yield

    def path(self, layer: int, head: int) -> Path:
        """Where the result of this head is, or will be."""
        return self.folder / f"{self.key}-L{layer}H{head}.head"

    def read(self, layer: int, head: int) -> HeadReport | None:
        """The finished head, or None; a damaged file counts as missing and is noted, and the head is analysed again."""
        path = self.path(layer, head)
        try:
            mark, _, content = path.read_bytes().partition(b"\n")
            if mark != _MARK + hashlib.sha256(content).hexdigest().encode():
                raise ValueError("its bytes do not match its checksum")
            return from_plain(HeadReport, json.loads(content))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            self.damaged.append(path)
            return None

    def write(self, report: HeadReport) -> None:
        """Store a finished head; a reader sees the whole file or none."""
        content = json.dumps(to_plain(report), allow_nan=False).encode()
        mark = _MARK + hashlib.sha256(content).hexdigest().encode() + b"\n"
        write_atomically(self.path(report.layer, report.head), mark + content)


Record = TypeVar("Record")


def from_plain(kind: type[Record], value: Any) -> Record:
    """The record that `attsvm.sweep.manifest.to_plain` turned into `value`; None where a number is expected is NaN."""
    made: Record = _read(kind, value)
    return made


def _read(kind: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return None if value is None else _read(next(part for part in arguments if part is not type(None)), value)
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return tuple(_read(arguments[0], part) for part in value)
        return tuple(_read(part, element) for part, element in zip(arguments, value, strict=True))
    if origin is dict:
        return {_read(arguments[0], key): _read(arguments[1], part) for key, part in value.items()}
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        names = [field.name for field in dataclasses.fields(kind)]
        return kind(**{name: _read(hints[name], value[name]) for name in names})  # type: ignore[operator]
    if kind is float:
        return math.nan if value is None else float(value)
    if isinstance(kind, type) and issubclass(kind, (Enum, int, str)):
        return kind(value)
    raise TypeError(f"cannot read a {kind!r}")
