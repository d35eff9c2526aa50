"""Selections in words: the token before, a fixed distance, a delimiter, the same token again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

import torch
from jaxtyping import Bool
from torch import Tensor

from attsvm.heads.model import Sentence

_WORD_MARKS = "Ġ▁#Ċ"  # how tokenizers write a space, a line end, or the middle of a word


class SelectionKind(StrEnum):
    """A word for a selection; where several fit, the first in this order counts."""

    FIRST = "first"
    SELF = "self"
    PREVIOUS = "previous"
    NEXT = "next"
    LAST = "last"
    DELIMITER = "delimiter"
    SAME = "same token"
    CONTENT = "content"


SINKS: tuple[SelectionKind, ...] = (SelectionKind.FIRST, SelectionKind.DELIMITER)
"""The tokens on which heads park attention they have no use for: to leave out, ``analyze(..., leave_out=SINKS)``."""
FIXED = 0.3
"""Share of a head's selections from which on a distance or a place counts as fixed."""


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
    out = delimiters(sentence) & (SelectionKind.DELIMITER in leave_out)
    out[0] |= SelectionKind.FIRST in leave_out
    return out


def kind_of(sentence: Sentence, query: int, selected: int, marks: Bool[Tensor, " T"]) -> SelectionKind:
    """The kind of one selection; `marks` are the sentence's delimiters."""
    fits = {
        SelectionKind.FIRST: selected == 0,
        SelectionKind.SELF: selected == query,
        SelectionKind.PREVIOUS: selected == query - 1,
        SelectionKind.NEXT: selected == query + 1,
        SelectionKind.LAST: selected == len(sentence) - 1,
        SelectionKind.DELIMITER: bool(marks[selected]),
        SelectionKind.SAME: int(sentence.ids[selected]) == int(sentence.ids[query]),
    }
    return next((kind for kind, fit in fits.items() if fit), SelectionKind.CONTENT)


def kind_shares(sentences: Sequence[Sentence], selections: Sequence[tuple[int, int, int]]) -> dict[str, float]:
    """Share of each kind among selections ``(sentence, query, selected token)``; all 0 where there are none.

    A distance to the query, or to the end of the sentence, at which the head makes at least `FIXED` of its selections
    is a kind of its own, such as "2 before" or "1 before the last": before delimiters, same tokens and content.
    """
    marks = {index: delimiters(sentences[index]) for index in {index for index, _, _ in selections}}
    total = max(len(selections), 1)

    def often(places: Sequence[int]) -> set[int]:
        return {place for place, count in Counter(places).items() if count >= FIXED * total}

    steps = [token - query for _, query, token in selections]
    backs = [len(sentences[index]) - 1 - token for index, _, token in selections]
    distances, ends = often(steps), often(backs)
    counts: Counter[str] = Counter()
    for (index, query, token), step, back in zip(selections, steps, backs, strict=True):
        kind: str = kind_of(sentences[index], query, token, marks[index])
        if kind in (SelectionKind.DELIMITER, SelectionKind.SAME, SelectionKind.CONTENT):
            if step in distances:
                kind = f"{abs(step)} {'before' if step < 0 else 'after'}"
            elif back in ends:
                kind = f"{back} before the last"
        counts[kind] += 1
    return {kind: counts[kind] / total for kind in dict.fromkeys([*map(str, SelectionKind), *counts])}
