"""One layer of one sentence as its heads see it, and what a bilinear form makes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attsvm.heads.model import HeadModel, Sentence, SentenceStates

_BUDGET = 2**30  # bytes of hidden states held at once


@dataclass(frozen=True, eq=False)
class SentenceView:
    """Hidden states of one layer, and the candidates of each query.

    Arguments:
        sentence: the tokens.
        keys: ``[T, D]``.
        queries: ``[T, D]``.
        candidates: tokens a query may select: allowed by the model and not left out, ``[T, T]``.
    """

    sentence: Sentence
    keys: Float[Tensor, "T D"]
    queries: Float[Tensor, "T D"]
    candidates: Bool[Tensor, "T T"]

    def logits(self, key: Float[Tensor, "D m"], query: Float[Tensor, "D m"]) -> Float[Tensor, "T T"]:
        """Logits of every query over the candidates, -inf elsewhere; row = query."""
        return ((self.queries @ query) @ (self.keys @ key).T).masked_fill(~self.candidates, -torch.inf)


@dataclass(frozen=True, eq=False)
class Layer:
    """All sentences at one layer, and how far the model's own attention is from the recomputed one, per head."""

    index: int
    views: tuple[SentenceView, ...]
    attention_error: tuple[float, ...]


def layers_of(
    model: HeadModel,
    sentences: Sequence[Sentence],
    layers: Sequence[int],
    leave_out: Sequence[SelectionKind],
    budget: int = _BUDGET,
) -> Iterator[Layer]:
    """Layer after layer; the model runs once for as many layers as fit into `budget` bytes of states."""
    group = max(1, budget // max(1, state_bytes(model, sentences)))
    hidden = [left_out_tokens(sentence, leave_out) for sentence in sentences]
    for first in range(0, len(layers), group):
        chosen = list(layers[first : first + group])
        views: list[list[SentenceView]] = [[] for _ in chosen]
        errors = torch.zeros(len(chosen), model.heads, dtype=torch.float64)
        forms = [[model.weights(layer, head) for head in range(model.heads)] for layer in chosen]
        for sentence, out in zip(sentences, hidden, strict=True):
            states = model.states(sentence, chosen)
            for row in range(len(chosen)):
                keys, queries = states.keys[row], states.queries[row]
                view = SentenceView(sentence, keys, queries, states.allowed & ~out)
                views[row].append(view)
                whole = SentenceView(sentence, keys, queries, states.allowed)
                for head, form in enumerate(forms[row]):
                    again = whole.logits(form.key, form.query).softmax(-1)
                    errors[row, head] = max(errors[row, head], _largest_difference(again, states, row, head))
        for row, layer in enumerate(chosen):
            yield Layer(layer, tuple(views[row]), tuple(errors[row].tolist()))
            views[row] = []


def state_bytes(model: HeadModel, sentences: Sequence[Sentence]) -> int:
    """Bytes of keys and queries of one layer in float64."""
    return 2 * 8 * (model.width + 1) * sum(len(sentence) for sentence in sentences)


def _largest_difference(attention: Tensor, states: SentenceStates, row: int, head: int) -> Tensor:
    return (attention - states.attention[row, head]).abs().max()


_WORD_MARKS = "Ġ▁#Ċ"  # how tokenizers write a space, a line end, or the middle of a word


class SelectionKind(Enum):
    """One word for a selection; where several fit, the first in this order counts."""

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
    sentences: Sequence[Sentence], where: Int[Tensor, " n"], queries: Int[Tensor, " n"], selected: Int[Tensor, " n"]
) -> dict[SelectionKind, float]:
    """Share of each kind among selections ``(sentence, query, selected token)``; all 0 where there are none."""
    marks = {index: delimiters(sentences[index]) for index in set(where.tolist())}
    counts = Counter(
        kind_of(sentences[index], query, token, marks[index])
        for index, query, token in zip(where.tolist(), queries.tolist(), selected.tolist(), strict=True)
    )
    total = max(counts.total(), 1)
    return {kind: counts[kind] / total for kind in SelectionKind}
