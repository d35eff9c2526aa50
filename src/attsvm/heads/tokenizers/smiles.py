"""Reaction SMILES, one token an atom, bond, ring closure or bracket."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from attsvm.heads.tokenizers.base import Tokenizer

# Bracket atoms are one token; Cl and Br must come before C and B. The splitting is that of Schwaller et al., "Molecular
# Transformer" (2019), which the model of Schwaller et al., "Extraction of organic chemistry grammar from unsupervised
# learning of chemical reactions" (2021), was trained with.
PIECE = re.compile(r"\[[^\]]+\]|Br|Cl|[BCNOSPFIbcnosp]|>>|>|%[0-9]{2}|[0-9().=#\-+\\/:~@?*$]")
ARROW = ">>"


class SmilesTokenizer(Tokenizer):
    """Splits SMILES by atoms and frames them with [CLS] and [SEP].

    Arguments:
        vocabulary: tokens in the order of their numbers; must hold [CLS], [SEP] and [UNK].

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

    @staticmethod
    def from_file(path: str | os.PathLike[str]) -> SmilesTokenizer:
        """Read a ``vocab.txt``, one token a line."""
        return SmilesTokenizer(Path(path).read_text(encoding="utf-8").splitlines())

    @property
    def special(self) -> frozenset[int]:
        return frozenset(self._numbers[token] for token in ("[CLS]", "[SEP]", "[PAD]") if token in self._numbers)

    def encode(self, text: str) -> list[int]:
        pieces = PIECE.findall(text.strip())
        if "".join(pieces) != text.strip():
            kept = set("".join(pieces))
            strange = next((letter for letter in text.strip() if letter not in kept), None)
            named = "an unclosed bracket" if strange is None else repr(strange)
            raise ValueError(f"{text!r} is no SMILES: {named} is no atom, bond, ring or bracket")
        unknown = self._numbers["[UNK]"]
        inside = [self._numbers.get(piece, unknown) for piece in pieces]
        return [self._numbers["[CLS]"], *inside, self._numbers["[SEP]"]]

    def tokens(self, ids: Sequence[int]) -> list[str]:
        return [self._vocabulary[number] for number in ids]

    def identity(self) -> bytes:
        return json.dumps(["SMILES", self._vocabulary]).encode()
