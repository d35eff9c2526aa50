"""What the analysis of heads reads: sentences, hidden states, key-query weights, and the model that gives them.

Where the key or query projections have biases, hidden states get a last coordinate of 1, so that biases are part of the
weights and the logits of a head are one bilinear form x^T W z. Where that form does not reproduce a model's own
attention, `check_exact` says so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Text = str | Sequence[int]

# A float32 forward pass is off by about 1e-6 times the largest logit; a wrong form is off by far more than this.
TOLERANCE = 1e-3


@dataclass(frozen=True, eq=False)
class Sentence:
    """One encoded text.

    Arguments:
        text: as it was given.
        tokens: the name of each token, as the tokenizer writes it.
        ids: token numbers, ``[T]``.
        special: True at tokens that the tokenizer adds ([CLS], [SEP], <s>, padding), ``[T]``.
        left_out: how many tokens were cut off because the model has no more positions.
    """

    text: str
    tokens: tuple[str, ...]
    ids: Int[Tensor, " T"]
    special: Bool[Tensor, " T"]
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True, eq=False)
class SentenceStates:
    """What the heads of each layer see in one sentence: hidden states of width d, or d + 1 with a last coordinate of 1.

    Arguments:
        keys: input of the key projection, after the layer's own normalization, and a 1 where biases need it,
            ``[layers, T, D]`` in float64.
        queries: the same for the query projection, ``[layers, T, E]``.
        attention: what the model itself computed; row = query, column = token, ``[layers, heads, T, T]``.
        allowed: True where a query may look at a token, ``[T, T]``.
    """

    keys: Float[Tensor, "layers T D"]
    queries: Float[Tensor, "layers T E"]
    attention: Float[Tensor, "layers heads T T"]
    allowed: Bool[Tensor, "T T"]


@dataclass(frozen=True, eq=False)
class HeadWeights:
    """A head's bilinear form, factored: the logits of query z over tokens X are ``X key query^T z``.

    Biases, where there are, stand in the last row, which meets the constant coordinate; the scale 1/sqrt(d_head) is
    inside `query`.

    >>> head = HeadWeights(key=torch.eye(3, 2), query=2 * torch.eye(3, 2))
    >>> head.weights.diagonal().tolist()
    [2.0, 2.0, 0.0]
    """

    key: Float[Tensor, "D m"]
    query: Float[Tensor, "E m"]

    @property
    def weights(self) -> Float[Tensor, "D E"]:
        """The matrix W = key query^T, of rank at most m."""
        return self.key @ self.query.T


class HeadModel(ABC):
    """A transformer whose heads can be read exactly: logits are bilinear in the hidden states.

    Attributes:
        name: for reports.
        architecture: the family, in words.
        layers: number of layers.
        heads: number of query heads in each layer.
        width: d, without the constant coordinate.
        causal: whether a query sees only itself and the tokens before it.
        notes: what a reader of results should know, one sentence each.
        sentences: those that came with the model; empty where the model encodes texts.
    """

    name: str
    architecture: str
    layers: int
    heads: int
    width: int
    causal: bool
    notes: tuple[str, ...] = ()
    sentences: tuple[Sentence, ...] = ()

    @abstractmethod
    def encode(self, texts: Sequence[Text]) -> list[Sentence]:
        """Tokenize `texts`; each may also be a sequence of token numbers.

        Raises:
            ValueError: if there are no texts, one is blank, or the model has no tokenizer.
        """

    @abstractmethod
    def states(self, sentence: Sentence, layers: Sequence[int] | None = None) -> SentenceStates:
        """Run the model on one sentence; `layers` chooses and orders the leading axis (None: all).

        Raises:
            ValueError: if a layer does not exist or the sentence is not one of this model's.
        """

    @abstractmethod
    def weights(self, layer: int, head: int) -> HeadWeights:
        """The float64 key-query form of one head, layers and heads counted from 0.

        Raises:
            ValueError: if there is no such head.
        """

    @property
    def has_untrained(self) -> bool:
        """Whether `untrained` can make a twin."""
        return True

    @abstractmethod
    def untrained(self, seed: int) -> HeadModel:
        """The same architecture, sizes and tokenizer with freshly initialised weights.

        Raises:
            ValueError: if the model does not know how it was initialised (`has_untrained` is False).
        """

    @abstractmethod
    def fingerprint(self) -> str:
        """A hash of weights, settings and tokenizer: equal only where results are equal."""

    def forms(self, layer: int) -> list[HeadWeights]:
        """`weights` of all heads of one layer."""
        return [self.weights(layer, head) for head in range(self.heads)]

    def _chosen_layers(self, layers: Sequence[int] | None) -> list[int]:
        chosen = list(range(self.layers)) if layers is None else list(layers)
        for layer in chosen:
            check_index("layer", layer, self.layers, self.name)
        return chosen

    def _check_head(self, layer: int, head: int) -> None:
        check_index("layer", layer, self.layers, self.name)
        check_index("head", head, self.heads, self.name)

    def _check_length(self, sentence: Sentence, limit: int) -> None:
        if not 0 < len(sentence) <= limit:
            raise ValueError(f"sentence must have 1 to {limit} tokens for {self.name}; got {len(sentence)}")

    def __repr__(self) -> str:
        kind = "causal" if self.causal else "bidirectional"
        sizes = f"{self.layers} layers x {self.heads} heads, width {self.width}"
        return f"{type(self).__name__}({self.name!r}, {self.architecture}, {sizes}, {kind})"


def check_index(name: str, value: object, size: int, model: str) -> None:
    """Raise ValueError unless `value` is a whole number from 0 to size - 1."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < size:
        raise ValueError(f"{name} must lie in 0..{size - 1} for {model}; got {value!r}")


def counted(count: int, what: str) -> str:
    """A number and its noun.

    >>> counted(1, "text"), counted(1200, "text")
    ('1 text', '1,200 texts')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def allowed_tokens(length: int, causal: bool) -> Bool[Tensor, "length length"]:
    """Which tokens each query may look at: all of them, or in a causal model itself and those before it.

    >>> allowed_tokens(2, causal=True).tolist()
    [[True, False], [True, True]]
    """
    everything = torch.ones(length, length, dtype=torch.bool)
    return everything.tril() if causal else everything


def with_constant(states: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch D"]:
    """`states` in float64 on the CPU with a last coordinate of 1.

    >>> with_constant(torch.tensor([[3.0, 4.0]])).tolist()
    [[3.0, 4.0, 1.0]]
    """
    wide = states.detach().to("cpu", torch.float64)
    return torch.cat([wide, wide.new_ones(*wide.shape[:-1], 1)], dim=-1)


def head_weights(
    key: Float[Tensor, "d m"],
    query: Float[Tensor, "d m"],
    key_bias: Float[Tensor, " m"] | None,
    query_bias: Float[Tensor, " m"] | None,
    scale: float,
) -> HeadWeights:
    """The form of logits ``scale (key^T x + key_bias) . (query^T z + query_bias)``, in float64.

    A factor with a bias has it in a last row, for states with a constant coordinate; without (None) it has no such row.
    """
    return HeadWeights(key=_with_bias(key, key_bias), query=scale * _with_bias(query, query_bias))


def _with_bias(weight: Tensor, bias: Tensor | None) -> Tensor:
    wide = weight.detach().to("cpu", torch.float64)
    return wide if bias is None else torch.cat([wide, bias.detach().to("cpu", torch.float64)[None]])


def recomputed_attention(
    keys: Float[Tensor, "T D"], queries: Float[Tensor, "T E"], head: HeadWeights, allowed: Bool[Tensor, "T T"]
) -> Float[Tensor, "T T"]:
    """softmax(X key query^T z) over the allowed tokens X, for every query z; row = query.

    >>> one = torch.ones(2, 1)
    >>> recomputed_attention(one, one, HeadWeights(torch.ones(1, 1), torch.ones(1, 1)), torch.eye(2) > -1).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    logits = (queries @ head.query) @ (keys @ head.key).T
    return logits.masked_fill(~allowed, -torch.inf).softmax(-1)


def form_errors(states: SentenceStates, forms: Sequence[Sequence[HeadWeights]]) -> Float[Tensor, "layers heads"]:
    """Largest difference between the attention in `states` and the one recomputed from `forms`, for each head."""
    error = torch.zeros(states.attention.shape[:2], dtype=torch.float64)
    for row, heads in enumerate(forms):
        for head, form in enumerate(heads):
            again = recomputed_attention(states.keys[row], states.queries[row], form, states.allowed)
            error[row, head] = (again - states.attention[row, head]).abs().max()
    return error


def attention_error(
    model: HeadModel, states: SentenceStates, layers: Sequence[int] | None = None
) -> Float[Tensor, "layers heads"]:
    """`form_errors` of the model's own forms; `states` holds `layers` (None: all)."""
    chosen = range(model.layers) if layers is None else layers
    return form_errors(states, [model.forms(layer) for layer in chosen])


def check_exact(model: HeadModel, states: SentenceStates, layers: Sequence[int]) -> None:
    """Raise ValueError unless the forms of `model` reproduce its own attention on `states`, which holds `layers`."""
    error = attention_error(model, states, layers)
    worst = float(error.max())
    if not worst <= TOLERANCE:
        row, head = divmod(int(error.nan_to_num(torch.inf).argmax()), model.heads)
        raise ValueError(
            f"{model.name} is more than softmax(X K Q^T z): the attention of L{layers[row]}H{head} recomputed"
            f" from its key and query weights is off by {worst:.1e} (adapters, masks, or another scale?); pass its"
            " hidden states and effective weights to from_arrays instead"
        )
