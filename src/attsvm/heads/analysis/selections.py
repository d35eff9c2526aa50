"""What the heads of one layer see, which token each selects for every query, and what these choices are in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attsvm.heads.form import HeadWeights, LayerStates
from attsvm.heads.model import HeadModel, Sentence, form_errors
from attsvm.heads.report.records import SelectionKind, Selectivity

BUDGET = 3 * 2**30  # bytes of hidden states held at once; half of them where keys and queries are made of the same
NO_TOKEN = "(no token)"  # the name of a learned sink
# The largest logit and the next are a tie where they differ by less than this times the largest in size.
_TIE = 1e-9
_FIXED = 0.3  # share of a head's selections from which on a distance or a place counts as fixed
_WORD_MARKS = "Ġ▁#Ċ"  # how tokenizers write a space, a line end, or the middle of a word


@dataclass(frozen=True, eq=False)
class SentenceView(LayerStates):
    """Hidden states of one layer for `sentence`; a query is allowed its candidates only, the tokens it may select."""

    sentence: Sentence = field(kw_only=True)

    def __reduce__(self) -> tuple[Any, ...]:
        """Sent to a worker: each tensor without the layers around it, in half the bytes where nothing is lost."""
        same = self.queries.data_ptr() == self.keys.data_ptr() and self.queries.shape == self.keys.shape
        parts = {**vars(self), "queries": None if same else self.queries}
        return _unpacked, ({name: _packed(part) for name, part in parts.items()},)

    def logits(self, form: HeadWeights) -> Float[Tensor, "T T"]:
        """Logits of every query over its candidates, -inf elsewhere; row = query."""
        return form.logits(self).masked_fill(~self.allowed, -torch.inf)


Views = Sequence[SentenceView]
"""All sentences, as the heads of a layer or one head see them."""


def _packed(part: Any) -> Any:
    if not isinstance(part, Tensor):
        return part
    short = part.float() if part.dtype == torch.float64 else part
    return (short if torch.equal(short.to(part.dtype), part) else part).numpy()


def _unpacked(packed: dict[str, Any]) -> SentenceView:
    arrays = {name: torch.tensor(part) for name, part in packed.items() if isinstance(part, np.ndarray)}
    keys = arrays["keys"].double()
    queries = arrays["queries"].double() if "queries" in arrays else keys
    return SentenceView(**packed | arrays | {"keys": keys, "queries": queries})


@dataclass(frozen=True, eq=False)
class LayerView:
    """All sentences at one layer, and how far each head's attention is from the one recomputed from its form."""

    index: int
    views: tuple[SentenceView, ...]
    attention_error: tuple[float, ...]


def layers_of(
    model: HeadModel, sentences: Sequence[Sentence], layers: Sequence[int], leave_out: Sequence[SelectionKind]
) -> Iterator[LayerView]:
    """Layer after layer; the model runs once for as many layers as fit into `BUDGET` bytes of states."""
    group = max(1, BUDGET // max(1, state_bytes(model, sentences)))
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
                own = vars(states.layer(row))
                views[row].append(SentenceView(**own | {"allowed": own["allowed"] & ~out}, sentence=sentence))
        for row, layer in enumerate(chosen):
            yield LayerView(layer, tuple(views[row]), tuple(errors[row].tolist()))
            views[row] = []


def seen_by(form: HeadWeights, views: Views, leave_out: Sequence[SelectionKind]) -> tuple[HeadWeights, Views]:
    """A head and what it sees.

    A learned sink becomes one more candidate behind the last token, with nothing but a learned bias, so that a query
    may select no token at all; where delimiters are left out, so is the sink.
    """
    own = tuple(view.of(form) for view in views)
    if form.sink is None or SelectionKind.DELIMITER in leave_out:
        return replace(form, sink=None), own
    biases = form.key.new_zeros(0) if form.relative is None else form.relative
    form = replace(form, sink=None, relative=torch.cat([biases, biases.new_tensor([form.sink])]))
    return form, tuple(_with_sink(view, len(biases)) for view in own)


def _with_sink(view: SentenceView, bucket: int) -> SentenceView:
    """With a last token of its own bucket, which every query may select and which asks for nothing itself."""
    size, sentence, pad = len(view.keys), view.sentence, torch.nn.functional.pad
    allowed = pad(view.allowed, (0, 1, 0, 1))
    allowed[:size, size] = True
    buckets = torch.full((size, size), -1) if view.buckets is None or bucket == 0 else view.buckets
    return SentenceView(
        keys=pad(view.keys, (0, 0, 0, 1)),
        queries=pad(view.queries, (0, 0, 0, 1)),
        allowed=allowed,
        phases=None if view.phases is None else torch.cat([view.phases, torch.ones_like(view.phases[:1])]),
        buckets=pad(buckets, (0, 1, 0, 1), value=bucket),
        sentence=replace(
            sentence, tokens=(*sentence.tokens, NO_TOKEN), ids=pad(sentence.ids, (0, 1), value=-1),
            special=pad(sentence.special, (0, 1), value=True),
        ),
    )  # fmt: skip


def state_bytes(model: HeadModel, sentences: Sequence[Sentence]) -> int:
    """Bytes of keys and queries of one layer in float64."""
    return 2 * 8 * (model.width + 1) * sum(len(sentence) for sentence in sentences)


@dataclass(frozen=True, eq=False)
class Choices:
    """The queries of some sentences that have a choice (two candidates or more), for one head."""

    sentence: Int[Tensor, " n"]  # index of the query's sentence
    position: Int[Tensor, " n"]  # of the query in it
    selected: Int[Tensor, " n"]  # position of the token with the largest logit
    mass: Float[Tensor, " n"]  # attention on it
    entropy: Float[Tensor, " n"]  # of the attention, in nats
    options: Int[Tensor, " n"]  # number of candidates
    tied: Bool[Tensor, " n"]  # another candidate has the same logit to round-off, so that nothing is selected

    def __len__(self) -> int:
        return len(self.sentence)

    def __getitem__(self, index: Tensor) -> Choices:
        return Choices(*(getattr(self, part.name)[index] for part in fields(self)))

    @property
    def triples(self) -> list[tuple[int, int, int]]:
        """(sentence, position of the query, position of the selected token) of each."""
        return list(zip(self.sentence.tolist(), self.position.tolist(), self.selected.tolist(), strict=True))

    def confident(self, threshold: float) -> Choices:
        """Those with more attention than `threshold` on one token, and no tie."""
        return self[(self.mass > threshold) & ~self.tied]

    def within(self, sentences: Bool[Tensor, " sentences"]) -> Choices:
        """Those of the marked sentences."""
        return self[sentences[self.sentence]]

    def draw(self, count: int, generator: torch.Generator) -> Choices:
        """At most `count` of them, without repetition, in order."""
        if len(self) <= count:
            return self
        return self[torch.randperm(len(self), generator=generator)[:count].sort().values]


def choices(views: Views, form: HeadWeights) -> Choices:
    """Every query's choice under the form."""
    none = torch.zeros(0, dtype=torch.int64)
    parts: list[tuple[Tensor, ...]] = [(none, none, none, none.double(), none.double(), none, none.bool())]
    for index, view in enumerate(views):
        options = view.allowed.sum(-1)
        position = torch.nonzero(options > 1)[:, 0]
        if position.numel() == 0:
            continue
        logits = view.logits(form)[position]
        top = logits.topk(2, dim=-1)
        log_attention = form.log_attention(logits)
        entropy = -torch.where(logits.isinf(), 0.0, log_attention.exp() * log_attention).sum(-1)
        size = logits.masked_fill(logits.isinf(), 0.0).abs().amax(-1)
        parts.append((
            torch.full_like(position, index), position, top.indices[:, 0],
            log_attention.gather(-1, top.indices[:, :1])[:, 0].exp(), entropy.clamp(min=0.0), options[position],
            top.values[:, 0] - top.values[:, 1] <= _TIE * size,
        ))  # fmt: skip
    return Choices(*(torch.cat(column) for column in zip(*parts, strict=True)))


def selectivity(found: Choices, views: Views, threshold: float) -> Selectivity:
    """Summarise the choices of a head over `views`."""
    return Selectivity(
        queries=len(found),
        no_choice=sum(token != NO_TOKEN for view in views for token in view.sentence.tokens) - len(found),
        tied=int(found.tied.sum()),
        entropy=float(found.entropy.mean()),
        relative_entropy=float((found.entropy / found.options.double().log()).mean()),
        top_mass=float(found.mass.mean()),
        confident=float(((found.mass > threshold) & ~found.tied).double().mean()),
    )


def delimiters(sentence: Sentence) -> Bool[Tensor, " T"]:
    """Special tokens, and tokens without a letter or a digit.

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

    A distance to the query, or to the end of the sentence, at which the head makes at least `_FIXED` of its selections
    is a kind of its own, such as "2 before" or "1 before the last": before delimiters, same tokens and content.
    """
    marks = {index: delimiters(sentences[index]) for index in {index for index, _, _ in selections}}
    total = max(len(selections), 1)

    def often(places: Sequence[int]) -> set[int]:
        return {place for place, count in Counter(places).items() if count >= _FIXED * total}

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
