"""Byte pairs of Whisper, from the rank files that are published with it (gpt2.tiktoken, multilingual.tiktoken)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from attsvm.heads.tokenizers.base import Tokenizer

# Contractions, words, numbers and signs, each with the space before it (Radford et al. 2019, GPT-2).
PIECE = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
ENGLISH, TIMESTAMPS, TASKS = 51864, 1501, 6


class WhisperTokenizer(Tokenizer):
    """Byte-pair encoding by ranks, framed as Whisper transcribes English without time stamps.

    The sentence " The cat" becomes <|startoftranscript|> <|notimestamps|> The cat <|endoftext|>; multilingual models
    also have <|en|> and <|transcribe|>. Texts start with a space, as in Whisper's training.

    Arguments:
        ranks: bytes of a token to its number; the pair with the smallest number merges first.
        vocabulary: number of tokens of the model, special ones included.
    """

    def __init__(self, ranks: dict[bytes, int], vocabulary: int) -> None:
        import regex  # type: ignore[import-untyped]

        self._ranks, self._vocabulary = ranks, vocabulary
        self._bytes = {number: piece for piece, number in ranks.items()}
        self._split = regex.compile(PIECE)
        multilingual = vocabulary > ENGLISH
        languages = vocabulary - len(ranks) - 2 - TASKS - TIMESTAMPS
        if languages < 1:
            raise ValueError(
                f"tokenizer has {len(ranks)} byte pairs, which do not fit the {vocabulary} tokens of the model"
                " (gpt2.tiktoken is for English-only models, multilingual.tiktoken for the others)"
            )
        # <|endoftext|> <|startoftranscript|> languages translate transcribe startoflm startofprev nospeech notimestamps
        end = len(ranks)
        start, english = end + 1, end + 2
        transcribe, plain = start + languages + 2, start + languages + 6
        self._frame = [start, english, transcribe, plain] if multilingual else [start, plain]
        self._end = end
        self._names = {
            end: "<|endoftext|>",
            start: "<|startoftranscript|>",
            english: "<|en|>",
            transcribe: "<|transcribe|>",
            plain: "<|notimestamps|>",
        }

    @staticmethod
    def from_file(path: str | os.PathLike[str], vocabulary: int) -> WhisperTokenizer:
        """Read a rank file: a line is the base64 of a token's bytes and its number."""
        try:
            lines = [line.split() for line in Path(path).read_bytes().splitlines() if line]
            ranks = {base64.b64decode(token): int(number) for token, number in lines}
        except (ValueError, binascii.Error):
            raise ValueError(f"{path} is no file of byte-pair ranks (a line is base64 and a number)") from None
        return WhisperTokenizer(ranks, vocabulary)

    @property
    def special(self) -> frozenset[int]:
        return frozenset(range(len(self._ranks), self._vocabulary))

    def encode(self, text: str) -> list[int]:
        pieces = self._split.findall(" " + text.strip())
        return [*self._frame, *(number for piece in pieces for number in self._merged(piece.encode())), self._end]

    def _merged(self, piece: bytes) -> list[int]:
        parts = [piece[i : i + 1] for i in range(len(piece))]
        while len(parts) > 1:
            ranked = [(self._ranks.get(parts[i] + parts[i + 1]), i) for i in range(len(parts) - 1)]
            known = [(rank, i) for rank, i in ranked if rank is not None]
            if not known:
                break
            _, i = min(known)
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        return [self._ranks[part] for part in parts]

    def tokens(self, ids: Sequence[int]) -> list[str]:
        return [
            self._bytes[i].decode("utf-8", errors="replace") if i in self._bytes else self._names.get(i, f"<|{i}|>")
            for i in ids
        ]

    def identity(self) -> bytes:
        digest = hashlib.sha256(repr((self._vocabulary, sorted(self._ranks.items()))).encode())
        return b"Whisper" + digest.digest()
