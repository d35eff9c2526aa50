"""Finished heads on disk, one file for each, so that an analysis that was stopped goes on where it was."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from attsvm.data.files import write_atomically
from attsvm.heads.analysis.settings import Settings
from attsvm.heads.model import HeadModel, Sentence
from attsvm.heads.report.records import HeadReport, from_plain
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
