"""Finished heads on disk, one file for each, so that an analysis that was stopped goes on where it was."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import types
import typing
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from attsvm.data.files import write_atomically
from attsvm.heads.analysis.settings import Settings
from attsvm.heads.model import HeadModel, Sentence
from attsvm.heads.report.records import HeadReport
from attsvm.sweep.manifest import to_plain

_FORMAT = 1  # of the files; another number leaves older results unread


class HeadCache:
    """A folder of finished heads, found again by the content of model, sentences and settings.

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
        digest = hashlib.sha256(repr((_FORMAT, model.fingerprint(), model.has_untrained, settings)).encode())
        for sentence in sentences:
            digest.update(repr((sentence.text, sentence.tokens, sentence.ids.tolist())).encode())
        self.key = digest.hexdigest()[:16]

    def path(self, layer: int, head: int) -> Path:
        """Where the result of this head is, or will be."""
        return self.folder / f"{self.key}-L{layer}H{head}.json"

    def read(self, layer: int, head: int) -> HeadReport | None:
        """The finished head, or None; a file that cannot be read counts as missing, and the head is analysed again."""
        try:
            return from_plain(HeadReport, json.loads(self.path(layer, head).read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, report: HeadReport) -> None:
        """Store a finished head; a reader sees the whole file or none."""
        text = json.dumps(to_plain(report), allow_nan=False)
        write_atomically(self.path(report.layer, report.head), text.encode())


Record = TypeVar("Record")


def from_plain(kind: type[Record], value: Any) -> Record:
    """The record that `attsvm.sweep.manifest.to_plain` turned into `value`; None where a number is expected is NaN.

    Raises:
        TypeError, KeyError, ValueError: if `value` was not made from such a record.
    """
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
