"""What every tokenizer does, and the encoding of sentences that all models share."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import torch

from attsvm.heads.model import Sentence, Text


class Tokenizer(ABC):
    """Texts to token numbers, and token numbers to what a reader sees."""

    @property
    @abstractmethod
    def special(self) -> frozenset[int]:
        """Numbers of the tokens that stand for no part of a text."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Token numbers of `text` with the special tokens around it that the model was trained with."""

    @abstractmethod
    def tokens(self, ids: Sequence[int]) -> list[str]:
        """One string a token."""

    @abstractmethod
    def identity(self) -> bytes:
        """Bytes that differ where the encoding differs."""


def encode_sentences(
    texts: Sequence[Text], tokenizer: Tokenizer | None, positions: int, vocabulary: int, name: str
) -> list[Sentence]:
    """`texts` (or lists of token numbers) as sentences of at most `positions` tokens.

    A longer text loses its last tokens, but not the special ones that close it; one warning says so.

    Raises:
        ValueError: if there are none, one is blank or no text, a number is outside the vocabulary, or there is no
            tokenizer.
    """
    if isinstance(texts, str) or not isinstance(texts, Sequence):
        raise ValueError(f"texts must be a list of sentences; got one {type(texts).__name__} (put it in a list)")
    if not texts:
        raise ValueError("texts must hold at least one sentence; got none")
    found = [_encoded(text, f"texts[{i}]", tokenizer, positions, vocabulary, name) for i, text in enumerate(texts)]
    cut = [i for i, sentence in enumerate(found) if sentence.left_out]
    if cut:
        first = found[cut[0]]
        warnings.warn(
            f"{len(cut)} of {len(found)} texts are longer than the {positions} positions of {name} and were cut;"
            f" the first, texts[{cut[0]}], lost its last {first.left_out} of {len(first) + first.left_out} tokens",
            UserWarning,
            stacklevel=3,
        )
    return found


def _encoded(
    text: Text, label: str, tokenizer: Tokenizer | None, positions: int, vocabulary: int, name: str
) -> Sentence:
    if isinstance(text, str):
        if not text.strip():
            raise ValueError(f"{label} is blank; leave empty lines out")
        if tokenizer is None:
            raise ValueError(
                f"{name} has no tokenizer, so texts cannot be read; pass tokenizer= to load (a folder with"
                " tokenizer.json or vocab.txt, or a tokenizer), or give lists of token numbers in place of texts"
            )
        ids = tokenizer.encode(text)
    elif (numbers := _numbers(text)) is not None:
        ids = numbers
    else:
        raise ValueError(f"{label} must be a string or a list of token numbers; got {type(text).__name__}")
    if not ids:
        raise ValueError(f"{label} has no tokens")
    outside = next((i for i in ids if not 0 <= i < vocabulary), None)
    if outside is not None:
        raise ValueError(f"{label} has token number {outside}; {name} knows 0..{vocabulary - 1}")
    special = tokenizer.special if tokenizer is not None else frozenset()
    kept = _shortened(ids, special, positions)
    tokens = tokenizer.tokens(kept) if tokenizer is not None else [str(i) for i in kept]
    return Sentence(
        text if isinstance(text, str) else " ".join(tokens),
        tuple(tokens),
        torch.tensor(kept),
        torch.tensor([i in special for i in kept]),
        len(ids) - len(kept),
    )


def _numbers(value: Any) -> list[int] | None:
    """`value` as token numbers, or None if it is something else."""
    listed = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(listed, list | tuple | range) or any(isinstance(number, bool) for number in listed):
        return None
    return [int(number) for number in listed] if all(isinstance(number, Integral) for number in listed) else None


def _shortened(ids: list[int], special: frozenset[int], positions: int) -> list[int]:
    if len(ids) <= positions:
        return ids
    closing = 0
    while closing < min(len(ids), positions) and ids[-1 - closing] in special:
        closing += 1
    return ids[: positions - closing] + ids[len(ids) - closing :]
