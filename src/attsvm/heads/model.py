"""What the analysis of heads reads: sentences, hidden states, key-query weights, and the model that gives them."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Complex, Float, Int
from torch import Tensor

from attsvm.heads.form import HeadWeights, LayerStates

Text = str | Sequence[int]
Place = tuple[int, int]  # layer and head, counted from 0

# A float32 forward pass is off by about 1e-6 times the largest logit; a wrong form is off by far more than this.
TOLERANCE = 1e-3


@dataclass(frozen=True, eq=False)
class Sentence:
    """One encoded text."""

    text: str  #: as it was given
    tokens: tuple[str, ...]  #: the name of each token, as the tokenizer writes it
    ids: Int[Tensor, " T"]  #: token numbers
    special: Bool[Tensor, " T"]  #: True at tokens that the tokenizer adds ([CLS], [SEP], <s>, padding)
    left_out: int = 0  #: how many tokens were cut off because the model has no more positions

    def __len__(self) -> int:
        return len(self.tokens)

    def place(self, query: int | str | None, name: str = "query") -> int:
        """The position of a token: a number, or a word that occurs once, whose last token counts; else a ValueError.

        Digits are a position. None means the last token that is not special.
        """
        length = len(self)
        if query is None:
            return max((k for k in range(length) if not bool(self.special[k])), default=length - 1)
        if isinstance(query, str) and re.fullmatch(r"-?\d+", query.strip()):
            query = int(query)
        if isinstance(query, bool) or not isinstance(query, int | str):
            raise ValueError(f"{name} must be a position or a word; got {query!r}")
        if isinstance(query, int):
            if not 0 <= query < length:
                raise ValueError(f"{name} must be a position in 0..{length - 1} or a word of the text; got {query}")
            return query
        words = [plain_word(token) for token in self.tokens]
        for same in (str, str.lower):  # as it is written first
            wanted = same(query.strip())
            found = [
                last for last in range(length) for first in range(last + 1)
                if wanted and same("".join(words[first : last + 1])) == wanted and words[first] and words[last]
            ]  # fmt: skip
            if len(found) == 1:
                return found[0]
            if found:
                where = f"{len(found)} times, at tokens {', '.join(map(str, found))}"
                raise ValueError(f"{name} {query!r} occurs {where}; give one of these numbers")
        shown = " ".join(f"{k}:{token}" for k, token in enumerate(self.tokens[:40]))
        raise ValueError(f"{name} {query!r} is not in the text; its tokens are {shown}")


def plain_word(token: str) -> str:
    """A token without the marks of its tokenizer for spaces and for pieces of words.

    >>> plain_word("Ġdog"), plain_word("##ing"), plain_word("▁cat")
    ('dog', 'ing', 'cat')
    """
    return token.removeprefix("##").strip("Ġ▁ ").removesuffix("</w>")


def spaced(token: str) -> str:
    """A token with the space before it, where its tokenizer marks one.

    >>> spaced("Ġdog"), spaced("##ing")
    (' dog', '##ing')
    """
    return " " + token[1:] if token.startswith(("Ġ", "▁")) else token


@dataclass(frozen=True, eq=False)
class SentenceStates:
    """What the heads of each layer see in one sentence, as `attsvm.heads.form.LayerStates` of all layers, in float64.

    Hidden states have width d after the layer's own normalization, or d + 1 with a last coordinate of 1 where there are
    biases, so that these are part of the weights.
    """

    keys: Float[Tensor, "layers T D"]
    queries: Float[Tensor, "layers T E"]
    attention: Float[Tensor, "layers heads T T"]  #: what the model itself computed; row = query
    allowed: Bool[Tensor, "*layers T T"]  #: one for all layers, or for each where they differ (windows)
    phases: Complex[Tensor, "layers T F"] | None = None
    buckets: Int[Tensor, "T T"] | None = None

    def layer(self, row: int) -> LayerStates:
        """The states of the layer in this row."""
        allowed = self.allowed if self.allowed.ndim == 2 else self.allowed[row]
        phases = None if self.phases is None else self.phases[row]
        return LayerStates(self.keys[row], self.queries[row], allowed, phases, self.buckets)


class HeadModel(ABC):
    """A transformer whose heads can be read exactly: logits are bilinear in the hidden states."""

    name: str  #: for reports
    architecture: str  #: the family, in words
    layers: int
    heads: int  #: number of query heads in each layer
    width: int  #: d, without the constant coordinate
    causal: bool  #: whether a query sees only itself and the tokens before it
    notes: tuple[str, ...] = ()  #: what a reader of results should know, one sentence each
    sentences: tuple[Sentence, ...] = ()  #: those that came with the model; empty where the model encodes texts
    _verified = False  # whether the form was seen to reproduce the model's own attention

    @abstractmethod
    def encode(self, texts: Sequence[Text]) -> list[Sentence]:
        """Tokenize `texts`, each a string or a sequence of token numbers; a ValueError if one cannot be read."""

    @abstractmethod
    def states(self, sentence: Sentence, layers: Sequence[int] | None = None) -> SentenceStates:
        """Run the model on one sentence; `layers` chooses and orders the leading axis (None: all).

        A ValueError if a layer does not exist or the sentence is not one of this model's.
        """

    @abstractmethod
    def weights(self, layer: int, head: int) -> HeadWeights:
        """The float64 key-query form of one head, both counted from 0; a ValueError if there is no such head."""

    @property
    def has_untrained(self) -> bool:
        """Whether `untrained` can make a twin."""
        return True

    @abstractmethod
    def untrained(self, seed: int) -> HeadModel:
        """The same with freshly initialised weights; a ValueError where `has_untrained` is False."""

    @abstractmethod
    def fingerprint(self) -> str:
        """A hash of weights, settings and tokenizer: equal only where results are equal."""

    def forms(self, layer: int) -> list[HeadWeights]:
        """`weights` of all heads of one layer."""
        return [self.weights(layer, head) for head in range(self.heads)]

    def _chosen_layers(self, layers: Sequence[int] | None) -> list[int]:
        chosen = list(range(self.layers) if layers is None else layers)
        for layer in chosen:
            self._check_head(layer, 0)
        return chosen

    def _check_head(self, layer: int, head: int) -> None:
        check_index("layer", layer, self.layers, self.name)
        check_index("head", head, self.heads, self.name)

    def _checked(self, states: SentenceStates, layers: Sequence[int]) -> SentenceStates:
        """The same states, by `check_exact` where they are the first."""
        if not self._verified:
            check_exact(self, states, layers)
            self._verified = True
        return states

    def _check_length(self, sentence: Sentence, limit: int) -> None:
        if not 0 < len(sentence) <= limit:
            raise ValueError(f"sentence must have 1 to {limit} tokens for {self.name}; got {len(sentence)}")

    def __repr__(self) -> str:
        sizes = f"{self.layers} layers x {self.heads} heads, width {self.width}"
        kind = "causal" if self.causal else "bidirectional"
        return f"{type(self).__name__}({self.name!r}, {self.architecture}, {sizes}, {kind})"


def check_index(name: str, value: object, size: int, model: str) -> None:
    """Raise ValueError unless `value` is a whole number from 0 to size - 1."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < size:
        raise ValueError(f"{name} must lie in 0..{size - 1} for {model}; got {value!r}")


def head_place(model: HeadModel, head: str, argument: str = "head") -> Place:
    """Layer and head of ``"L3H7"``; a ValueError if it is no such name, or the model has no such head."""
    match = re.fullmatch(r"[Ll](\d+)[Hh](\d+)", head.strip()) if isinstance(head, str) else None
    if match is None:
        raise ValueError(f"{argument} must be a name such as 'L3H7' (layer and head, counted from 0); got {head!r}")
    layer, number = int(match[1]), int(match[2])
    if layer >= model.layers or number >= model.heads:
        there = f"layers 0..{model.layers - 1} with heads 0..{model.heads - 1}"
        raise ValueError(f"head {head} does not exist; {model.name} has {there}")
    return layer, number


def named_heads(model: HeadModel, heads: Sequence[str] | None) -> list[Place]:
    """Layer and head of each of `heads`, sorted; None means all."""
    if heads is None:
        return [(layer, head) for layer in range(model.layers) for head in range(model.heads)]
    return sorted({head_place(model, name) for name in heads})


def counted(count: int, what: str) -> str:
    """A number and its noun.

    >>> counted(1, "text"), counted(1200, "text")
    ('1 text', '1,200 texts')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def allowed_tokens(length: int, causal: bool, window: int | None = None) -> Bool[Tensor, "length length"]:
    """Which tokens each query may look at: all of them, or in a causal model itself and those before it.

    `window` is the largest number of them, the nearest ones; None means all.

    >>> allowed_tokens(3, causal=True, window=2).tolist()
    [[True, False, False], [True, True, False], [False, True, True]]
    """
    found = torch.ones(length, length, dtype=torch.bool)
    found = found.tril() if causal else found
    return found if window is None else found.triu(1 - window)


def with_constant(states: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch D"]:
    """`states` in float64 on the CPU with a last coordinate of 1.

    >>> with_constant(torch.tensor([[3.0, 4.0]])).tolist()
    [[3.0, 4.0, 1.0]]
    """
    wide = states.detach().to("cpu", torch.float64)
    return torch.cat([wide, wide.new_ones(*wide.shape[:-1], 1)], dim=-1)


def form_errors(states: SentenceStates, forms: Sequence[Sequence[HeadWeights]]) -> Float[Tensor, "layers heads"]:
    """Largest difference between the attention in `states` and the one recomputed from `forms`, for each head."""
    error = torch.zeros(states.attention.shape[:2], dtype=torch.float64)
    for row, heads in enumerate(forms):
        for head, form in enumerate(heads):
            error[row, head] = (form.attention(states.layer(row).of(form)) - states.attention[row, head]).abs().max()
    return error


def check_exact(model: HeadModel, states: SentenceStates, layers: Sequence[int]) -> None:
    """Raise ValueError unless the forms of `model` reproduce its own attention on `states`, which holds `layers`."""
    error = form_errors(states, [model.forms(layer) for layer in layers])
    if not (worst := float(error.max())) <= TOLERANCE:
        row, head = divmod(int(error.nan_to_num(torch.inf).argmax()), model.heads)
        raise ValueError(
            f"{model.name} is more than softmax(X K Q^T z) with its positions: the attention of L{layers[row]}H{head}"
            f" recomputed from its key and query weights is off by {worst:.1e} (adapters, masks, or another scale?);"
            " pass its hidden states and effective weights to from_arrays instead"
        )
