"""Texts to look at heads with: a bundled sample, a file of reactions, and files of the user's own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path

from attsvm.heads.model import HeadModel, Sentence, Text, counted

_LONGEST = 50_000  # bytes of a line; no model here reads more


@dataclass(frozen=True)
class Texts:
    """Lines of a file, and a sentence about what was not read ("" if nothing)."""

    lines: tuple[str, ...]
    note: str


def sample_texts() -> list[str]:
    """The bundled sample: questions, dialogue, lists, numbers, code, short and long; written for it."""
    return _bundled("sentences.txt")


def sample_reactions() -> list[str]:
    """Bundled reaction SMILES, ``reactants>>product``: textbook reactions, for chemical models such as rxnmapper."""
    return _bundled("reactions.txt")


def read_sentences(model: HeadModel, texts: Sequence[Text] | None) -> list[Sentence]:
    """`texts` as sentences of `model`; None means its own sentences, or else the bundled sample."""
    if isinstance(texts, str):
        raise ValueError("texts must be a list of texts; got one string (read_texts reads a file)")
    if texts is None:
        return list(model.sentences) or model.encode(sample_texts())
    if len(texts) == 0:
        raise ValueError("texts must hold at least one text; got none")
    return model.encode(list(texts))


def read_texts(path: str | os.PathLike[str], most: int = 1000) -> Texts:
    """The first `most` lines of a text file that are not blank; the file is read line by line, however large it is.

    Raises:
        ValueError: if there is no such file, it is empty, not UTF-8 text, or has a line that is too long.
    """
    where, lines, note = Path(path), list[str](), ""
    try:
        with where.open("rb") as file:
            for number, raw in enumerate(iter(partial(file.readline, _LONGEST + 1), b""), 1):
                if len(lines) == most and raw.strip():
                    read = "was read" if most == 1 else "were read"
                    note = f"only the first {counted(most, 'text')} of {where.name} {read}"
                    break
                if len(raw) > _LONGEST:
                    wanted = f"one text per line, of at most {_LONGEST:,} bytes"
                    raise ValueError(f"{where} must have {wanted}; line {number} is longer")
                try:
                    line = raw.decode("utf-8")
                except UnicodeDecodeError:
                    raise ValueError(f"{where} must be UTF-8 text; line {number} is not") from None
                if "\0" in line:
                    raise ValueError(f"{where} must be a text file; line {number} holds a zero byte")
                if line.strip():
                    lines.append(line.strip())
    except OSError as error:
        raise ValueError(f"texts file {where} cannot be read: {(error.strerror or str(error)).lower()}") from None
    if not lines:
        raise ValueError(f"{where} must hold at least one text, one per line; it is empty")
    return Texts(tuple(lines), note)


def _bundled(name: str) -> list[str]:
    text = files("attsvm.heads").joinpath("data", name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
