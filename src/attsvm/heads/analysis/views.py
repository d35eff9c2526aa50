"""The sentences as the heads of one layer see them: hidden states, and the tokens that each query may select."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attsvm.heads.analysis.kinds import SelectionKind, left_out_tokens
from attsvm.heads.model import HeadModel, HeadWeights, Sentence, form_errors

_BUDGET = 2**30  # bytes of hidden states held at once


@dataclass(frozen=True, eq=False)
class SentenceView:
    """Hidden states of one layer, and the candidates of each query.

    Arguments:
        sentence: the tokens.
        keys: ``[T, D]``.
        queries: ``[T, E]``.
        candidates: tokens a query may select: allowed by the model and not left out, ``[T, T]``.
    """

    sentence: Sentence
    keys: Float[Tensor, "T D"]
    queries: Float[Tensor, "T E"]
    candidates: Bool[Tensor, "T T"]

    def logits(self, form: HeadWeights) -> Float[Tensor, "T T"]:
        """Logits of every query over its candidates, -inf elsewhere; row = query."""
        return ((self.queries @ form.query) @ (self.keys @ form.key).T).masked_fill(~self.candidates, -torch.inf)


@dataclass(frozen=True, eq=False)
class LayerView:
    """All sentences at one layer, and how far each head's attention is from the one recomputed from its form."""

    index: int
    views: tuple[SentenceView, ...]
    attention_error: tuple[float, ...]


def layers_of(
    model: HeadModel,
    sentences: Sequence[Sentence],
    layers: Sequence[int],
    leave_out: Sequence[SelectionKind],
    budget: int = _BUDGET,
) -> Iterator[LayerView]:
    """Layer after layer; the model runs once for as many layers as fit into `budget` bytes of states."""
    group = max(1, budget // max(1, state_bytes(model, sentences)))
    hidden = [left_out_tokens(sentence, leave_out) for sentence in sentences]
    for first in range(0, len(layers), group):
        chosen = list(layers[first : first + group])
        views: list[list[SentenceView]] = [[] for _ in chosen]
        errors = torch.zeros(len(chosen), model.heads, dtype=torch.float64)
        forms = [model.forms(layer) for layer in chosen]
        for sentence, out in zip(sentences, hidden, strict=True):
            states = model.states(sentence, chosen)
            errors = errors.maximum(form_errors(states, forms))
            for row in range(len(chosen)):
                views[row].append(SentenceView(sentence, states.keys[row], states.queries[row], states.allowed & ~out))
        for row, layer in enumerate(chosen):
            yield LayerView(layer, tuple(views[row]), tuple(errors[row].tolist()))
            views[row] = []


def state_bytes(model: HeadModel, sentences: Sequence[Sentence]) -> int:
    """Bytes of keys and queries of one layer in float64."""
    return 2 * 8 * (model.width + 1) * sum(len(sentence) for sentence in sentences)
