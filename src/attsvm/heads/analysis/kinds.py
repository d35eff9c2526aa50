"""Selections in words: the token before, a delimiter, the same token again; and rules that always select so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from enum import Enum

import torch
from jaxtyping import Bool
from torch import Tensor

from attsvm.heads.model import Sentence

_WORD_MARKS = "Ġ▁#Ċ"  # how tokenizers write a space, a line end, or the middle of a word


class SelectionKind(Enum):
    """A word for a selection; where several fit, the first in this order counts."""

    FIRST = "first"
    SELF = "self"
    PREVIOUS = "previous"
    NEXT = "next"
    DELIMITER = "delimiter"
    SAME = "same token"
    CONTENT = "content"

    def __str__(self) -> str:
        return self.value


SINKS: tuple[SelectionKind, ...] = (SelectionKind.FIRST, SelectionKind.DELIMITER)
"""The tokens on which heads park attention they have no use for: to leave out, ``analyze(..., leave_out=SINKS)``."""


def delimiters(sentence: Sentence) -> Bool[Tensor, " T"]:
    """Special tokens, and tokens without a letter or a digit.

    >>> from attsvm.heads.model import Sentence
    >>> names = ("[CLS]", "a", "##b", ",", "[SEP]")
    >>> special = torch.tensor([True, False, False, False, True])
    >>> delimiters(Sentence("ab,", names, torch.arange(5), special)).tolist()
    [True, False, False, True, True]
    """
    plain = [token.strip(_WORD_MARKS) for token in sentence.tokens]
    marks = torch.tensor([not any(letter.isalnum() for letter in token) for token in plain], dtype=torch.bool)
    return marks | sentence.special.cpu()


def left_out_tokens(sentence: Sentence, leave_out: Sequence[SelectionKind]) -> Bool[Tensor, " T"]:
    """Where a token is of a kind in `leave_out`; only kinds that do not depend on the query can be left out."""
    out = torch.zeros(len(sentence), dtype=torch.bool)
    if SelectionKind.FIRST in leave_out:
        out[0] = True
    if SelectionKind.DELIMITER in leave_out:
        out |= delimiters(sentence)
    return out


def kind_of(sentence: Sentence, query: int, selected: int, marks: Bool[Tensor, " T"]) -> SelectionKind:
    """The kind of one selection; `marks` are the sentence's delimiters."""
    if selected == 0:
        return SelectionKind.FIRST
    near = {0: SelectionKind.SELF, -1: SelectionKind.PREVIOUS, 1: SelectionKind.NEXT}
    if selected - query in near:
        return near[selected - query]
    if bool(marks[selected]):
        return SelectionKind.DELIMITER
    if int(sentence.ids[selected]) == int(sentence.ids[query]):
        return SelectionKind.SAME
    return SelectionKind.CONTENT


def kind_shares(
    sentences: Sequence[Sentence], selections: Sequence[tuple[int, int, int]]
) -> dict[SelectionKind, float]:
    """Share of each kind among selections ``(sentence, query, selected token)``; all 0 where there are none."""
    marks = {index: delimiters(sentences[index]) for index in {index for index, _, _ in selections}}
    counts = Counter(kind_of(sentences[index], query, token, marks[index]) for index, query, token in selections)
    total = max(counts.total(), 1)
    return {kind: counts[kind] / total for kind in SelectionKind}


Rule = Callable[[Sentence, int, Tensor], int]
"""From a sentence, the position of a query and the candidates of it, ``[T]``, to the position that the rule selects."""


def _last_delimiter(sentence: Sentence, query: int, candidates: Bool[Tensor, " T"]) -> int:
    marks = torch.nonzero(delimiters(sentence) & candidates)
    return int(marks[-1]) if marks.numel() else -1


def _same(sentence: Sentence, query: int, candidates: Bool[Tensor, " T"]) -> int:
    ids = sentence.ids
    others = torch.nonzero((ids == ids[query]) & candidates & (torch.arange(len(ids)) != query))
    return int(others[0]) if others.numel() else -1


RULES: dict[str, Rule] = {
    "always the first token": lambda sentence, query, candidates: 0,
    "always itself": lambda sentence, query, candidates: query,
    "always the token before": lambda sentence, query, candidates: query - 1,
    "always the token after": lambda sentence, query, candidates: query + 1,
    "always the last delimiter": _last_delimiter,
    "another token of the same name": _same,
}
"""What a head could do without weights; -1 or a position outside the sentence never agrees with a head."""
