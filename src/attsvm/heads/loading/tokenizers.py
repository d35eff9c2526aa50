"""From texts to sentences of tokens: files of texts, the encoding that all models share, three kinds of tokenizers."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from itertools import pairwise, takewhile
from numbers import Integral
from pathlib import Path
from typing import Any

import torch

from attsvm.heads.loading.folder import quiet, read_settings, reason
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


class Tokenizer(ABC):
    """Texts to token numbers, and token numbers to what a reader sees."""

    special: frozenset[int]  # numbers of the tokens that stand for no part of a text

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Token numbers of `text` with the special tokens around it that the model was trained with."""

    @abstractmethod
    def tokens(self, ids: Sequence[int]) -> list[str]:
        """The name of each token."""

    @abstractmethod
    def identity(self) -> bytes:
        """Bytes that differ where the encoding differs."""


def encode_sentences(
    texts: Sequence[Text], tokenizer: Tokenizer | None, positions: int, vocabulary: int, name: str
) -> list[Sentence]:
    """`texts` (or lists of token numbers) as sentences of at most `positions` tokens.

    A longer text loses its last tokens, but not the special ones that close it; one warning says so.
    """
    if isinstance(texts, str) or not isinstance(texts, Sequence):
        raise ValueError(f"texts must be a list of sentences; got one {type(texts).__name__} (put it in a list)")
    if not texts:
        raise ValueError("texts must hold at least one sentence; got none")
    found = [_encoded(text, f"texts[{i}]", tokenizer, positions, vocabulary, name) for i, text in enumerate(texts)]
    if cut := [i for i, sentence in enumerate(found) if sentence.left_out]:
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
    if isinstance(text, str) and not text.strip():
        raise ValueError(f"{label} is blank; leave empty lines out")
    if isinstance(text, str) and tokenizer is None:
        raise ValueError(
            f"{name} has no tokenizer, so texts cannot be read; name a folder with tokenizer.json or vocab.txt,"
            " --tokenizer (in Python tokenizer=, which may also be a tokenizer), or give lists of token numbers"
        )
    ids = tokenizer.encode(text) if isinstance(text, str) and tokenizer is not None else _numbers(text)
    if ids is None:
        raise ValueError(f"{label} must be a string or a list of token numbers; got {type(text).__name__}")
    if not ids:
        raise ValueError(f"{label} has no tokens")
    if outside := [i for i in ids if not 0 <= i < vocabulary]:
        raise ValueError(f"{label} has token number {outside[0]}; {name} knows 0..{vocabulary - 1}")
    special = tokenizer.special if tokenizer is not None else frozenset()
    # Special tokens at the end, which a longer text keeps.
    closing = len(list(takewhile(special.__contains__, reversed(ids[-positions:]))))
    kept = ids if len(ids) <= positions else ids[: positions - closing] + ids[len(ids) - closing :]
    tokens = tokenizer.tokens(kept) if tokenizer is not None else [str(i) for i in kept]
    said, marks = text if isinstance(text, str) else " ".join(tokens), torch.tensor([i in special for i in kept])
    return Sentence(said, tuple(tokens), torch.tensor(kept), marks, len(ids) - len(kept))


def _numbers(value: Any) -> list[int] | None:
    """`value` as token numbers, or None if it is something else."""
    listed = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(listed, list | tuple | range) or any(isinstance(number, bool) for number in listed):
        return None
    return [int(number) for number in listed] if all(isinstance(number, Integral) for number in listed) else None


class HuggingFaceTokenizer(Tokenizer):
    """Wraps a tokenizer of the transformers library."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        framing = {getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "cls", "sep", "pad")} - {None}
        # Unknown and masked words are parts of the text; GPT-2 writes its unknown words with the closing token.
        inside = {tokenizer.unk_token_id, tokenizer.mask_token_id}
        self.special = frozenset(set(tokenizer.all_special_ids) - inside | framing)

    def encode(self, text: str) -> list[int]:
        with quiet():  # it would say that a text is too long, which the model says itself
            return [int(i) for i in self._tokenizer(text)["input_ids"]]

    def tokens(self, ids: Sequence[int]) -> list[str]:
        return [str(token) for token in self._tokenizer.convert_ids_to_tokens(list(ids))]

    def identity(self) -> bytes:
        if (backend := getattr(self._tokenizer, "backend_tokenizer", None)) is not None:
            return str(backend.to_str()).encode()
        settings = [type(self._tokenizer).__name__, sorted(self._tokenizer.get_vocab().items()), sorted(self.special)]
        return json.dumps(settings).encode()


# Bracket atoms are one token; Cl and Br must come before C and B. The splitting is that of Schwaller et al., "Molecular
# Transformer" (2019), which the model of Schwaller et al., "Extraction of organic chemistry grammar from unsupervised
# learning of chemical reactions" (2021), was trained with.
SMILES_PIECE = re.compile(r"\[[^\]]+\]|Br|Cl|[BCNOSPFIbcnosp]|>>|>|%[0-9]{2}|[0-9().=#\-+\\/:~@?*$]")
ARROW = ">>"


class SmilesTokenizer(Tokenizer):
    """Splits SMILES by atoms and frames them with [CLS] and [SEP]; a vocabulary has its tokens in order of number.

    >>> smiles = SmilesTokenizer(["[UNK]", "[CLS]", "[SEP]", "C", "Cl", ">>", "[Na+]"])
    >>> smiles.tokens(smiles.encode("CCl.[Na+]>>C"))
    ['[CLS]', 'C', 'Cl', '[UNK]', '[Na+]', '>>', 'C', '[SEP]']
    """

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self._vocabulary = list(vocabulary)
        self._numbers = {token: number for number, token in enumerate(self._vocabulary)}
        for token in ("[CLS]", "[SEP]", "[UNK]"):
            if token not in self._numbers:
                raise ValueError(f"vocabulary of a SMILES tokenizer must hold {token}")
        self.special = frozenset(self._numbers[name] for name in ("[CLS]", "[SEP]", "[PAD]") if name in self._numbers)

    def encode(self, text: str) -> list[int]:
        pieces = SMILES_PIECE.findall(text.strip())
        if "".join(pieces) != text.strip():
            strange = (repr(letter) for letter in text.strip() if letter not in "".join(pieces))
            named = next(strange, "an unclosed bracket")
            raise ValueError(f"{text!r} is not SMILES: {named} is not an atom, bond, ring or bracket")
        return [self._numbers.get(piece, self._numbers["[UNK]"]) for piece in ("[CLS]", *pieces, "[SEP]")]

    def tokens(self, ids: Sequence[int]) -> list[str]:
        return [self._vocabulary[number] for number in ids]

    def identity(self) -> bytes:
        return json.dumps(["SMILES", self._vocabulary]).encode()


# Contractions, words, numbers and signs, each with the space before it (Radford et al. 2019, GPT-2).
WHISPER_PIECE = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
ENGLISH, TIMESTAMPS, TASKS = 51864, 1501, 6


class WhisperTokenizer(Tokenizer):
    """Byte-pair encoding by ranks, framed as Whisper transcribes English without time stamps.

    The sentence " The cat" becomes <|startoftranscript|> <|notimestamps|> The cat <|endoftext|>; multilingual models
    also have <|en|> and <|transcribe|>. Texts start with a space, as in Whisper's training. `ranks` give the bytes of
    a token its number, of which the smallest merges first; `vocabulary` counts all tokens, special ones included.
    """

    def __init__(self, ranks: dict[bytes, int], vocabulary: int) -> None:
        import regex  # type: ignore[import-untyped]

        self._ranks, self._vocabulary = ranks, vocabulary
        self.special = frozenset(range(len(ranks), vocabulary))
        self._bytes = {number: piece for piece, number in ranks.items()}
        self._split = regex.compile(WHISPER_PIECE)
        if (languages := vocabulary - len(ranks) - 2 - TASKS - TIMESTAMPS) < 1:
            raise ValueError(
                f"tokenizer has {len(ranks)} byte pairs, which do not fit the {vocabulary} tokens of the model"
                " (gpt2.tiktoken is for English-only models, multilingual.tiktoken for the others)"
            )
        # <|endoftext|> <|startoftranscript|> languages translate transcribe startoflm startofprev nospeech notimestamps
        self._end = end = len(ranks)
        start, english, transcribe, plain = end + 1, end + 2, end + languages + 3, end + languages + 7
        self._frame = [start, english, transcribe, plain] if vocabulary > ENGLISH else [start, plain]
        self._names = {end: "<|endoftext|>", start: "<|startoftranscript|>", english: "<|en|>",
                       transcribe: "<|transcribe|>", plain: "<|notimestamps|>"}  # fmt: skip

    @staticmethod
    def from_file(path: str | os.PathLike[str], vocabulary: int) -> WhisperTokenizer:
        """Read a rank file; each line holds the base64 of a token's bytes and its number."""
        try:
            lines = [line.split() for line in Path(path).read_bytes().splitlines() if line]
            ranks = {base64.b64decode(token): int(number) for token, number in lines}
        except (ValueError, binascii.Error):
            raise ValueError(f"{path} is not a file of byte-pair ranks (base64 and a number in each line)") from None
        return WhisperTokenizer(ranks, vocabulary)

    def encode(self, text: str) -> list[int]:
        pieces = self._split.findall(" " + text.strip())
        return [*self._frame, *(number for piece in pieces for number in self._merged(piece.encode())), self._end]

    def _merged(self, piece: bytes) -> list[int]:
        parts = [piece[i : i + 1] for i in range(len(piece))]
        while known := [(self._ranks[a + b], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in self._ranks]:
            _, i = min(known)
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        return [self._ranks[part] for part in parts]

    def tokens(self, ids: Sequence[int]) -> list[str]:
        return [
            self._bytes[i].decode("utf-8", errors="replace") if i in self._bytes else self._names.get(i, f"<|{i}|>")
            for i in ids
        ]

    def identity(self) -> bytes:
        return b"Whisper" + hashlib.sha256(repr((self._vocabulary, sorted(self._ranks.items()))).encode()).digest()


FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model")


def choose_tokenizer(given: object, folder: Path | None, config: Any) -> Tokenizer | None:
    """The tokenizer `given` (an object, a folder or a file), or else that in the model's `folder`, or None."""
    if given is None:
        return _from_folder(folder, config) if folder is not None else None
    if isinstance(given, Tokenizer):
        return given
    if callable(given) and hasattr(given, "convert_ids_to_tokens"):
        return HuggingFaceTokenizer(given)
    what = f"got {type(given).__name__}"
    if isinstance(given, str | os.PathLike):
        if (path := Path(given)).is_dir():
            if (found := _from_folder(path, config)) is None:
                raise ValueError(f"tokenizer {path} holds none of {', '.join(FILES)}")
            return found
        if path.is_file() and path.suffix == ".tiktoken":
            return WhisperTokenizer.from_file(path, int(config.vocab_size))
        what = f"{given} {'is none of them' if path.exists() else 'does not exist'}"
    raise ValueError(f"tokenizer must be a folder, a .tiktoken file or a tokenizer; {what}")


def _from_folder(folder: Path, config: Any) -> Tokenizer | None:
    if not (present := [name for name in FILES if (folder / name).is_file()]):
        return None
    if (settings := folder / "tokenizer_config.json").is_file():
        read_settings(settings)
    words = folder / "vocab.txt"
    if "tokenizer.json" not in present and words.is_file() and ARROW in words.read_text(encoding="utf-8").split("\n"):
        return SmilesTokenizer(words.read_text(encoding="utf-8").splitlines())
    from transformers import AutoTokenizer

    try:
        with quiet():
            found = AutoTokenizer.from_pretrained(folder, config=config, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # the library raises whatever its parsers raise
        raise ValueError(f"the tokenizer in {folder} ({', '.join(present)}) cannot be read: {reason(error)}") from None
    return HuggingFaceTokenizer(found)
