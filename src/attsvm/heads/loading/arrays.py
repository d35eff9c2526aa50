"""Heads of any model, from arrays: hidden states and key-query weights that the user has extracted from it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from attsvm.data.checks import as_mask, as_tensor, check_finite, check_shape, type_name
from attsvm.heads.form import HeadWeights, LayerStates, head_weights
from attsvm.heads.model import HeadModel, Sentence, SentenceStates, Text, allowed_tokens, check_exact, with_constant


class ArraysModel(HeadModel):
    """What `from_arrays` makes: stored sentences with their states; it encodes no texts and runs no model."""

    def __init__(
        self,
        name: str,
        forms: Sequence[Sequence[HeadWeights]],
        width: int,
        stored: Sequence[tuple[Sentence, SentenceStates]],
        causal: bool,
        notes: tuple[str, ...],
        twin: Callable[[int], HeadModel] | None,
    ) -> None:
        self.name, self.architecture, self.causal, self.notes = name, "arrays", causal, notes
        self.layers, self.heads, self.width = len(forms), len(forms[0]), width
        self._forms, self._twin = forms, twin
        self.sentences = tuple(sentence for sentence, _ in stored)
        self._states: dict[tuple[object, ...], SentenceStates] = {}
        for index, (sentence, states) in enumerate(stored):
            if self._states.setdefault(_identity(sentence), states) is not states:
                raise ValueError(f"texts must differ from each other; texts[{index}] repeats {sentence.text!r}")

    def encode(self, texts: Sequence[Text]) -> list[Sentence]:
        raise ValueError(f"{self.name} was given as arrays and cannot read texts; use its own sentences (texts=None)")

    def states(self, sentence: Sentence, layers: Sequence[int] | None = None) -> SentenceStates:
        chosen = self._chosen_layers(layers)
        if (stored := self._states.get(_identity(sentence))) is None:
            raise ValueError(f"sentence must be one of the {len(self.sentences)} of {self.name}; got {sentence.text!r}")
        if layers is None:
            return stored
        keys = stored.keys[chosen]
        queries = keys if stored.queries is stored.keys else stored.queries[chosen]
        return SentenceStates(keys, queries, stored.attention[chosen], stored.allowed)

    def weights(self, layer: int, head: int) -> HeadWeights:
        self._check_head(layer, head)
        return self._forms[layer][head]

    @property
    def has_untrained(self) -> bool:
        return self._twin is not None

    def untrained(self, seed: int) -> HeadModel:
        if self._twin is None:
            raise ValueError(
                f"{self.name} was given as arrays and has no untrained twin; pass untrained=, a function of a seed that"
                " returns from_arrays of a freshly initialised model"
            )
        return self._twin(seed)

    def fingerprint(self) -> str:
        digest = hashlib.sha256(repr((self.name, self.layers, self.heads, self.width, self.causal)).encode())
        for form in (form for layer in self._forms for form in layer):
            digest.update(form.key.numpy().tobytes() + form.query.numpy().tobytes())
        for sentence, states in zip(self.sentences, self._states.values(), strict=True):
            digest.update(repr(_identity(sentence)).encode())
            digest.update(repr((sentence.tokens, sentence.special.tolist())).encode())
            digest.update(states.keys.numpy().tobytes() + states.queries.numpy().tobytes())
        return digest.hexdigest()


def from_arrays(
    states: Sequence[object],
    key: object,
    query: object,
    *,
    key_bias: object = None,
    query_bias: object = None,
    query_states: Sequence[object] | None = None,
    scale: float | None = None,
    causal: bool = False,
    attention: Sequence[object] | None = None,
    tokens: Sequence[Sequence[str]] | None = None,
    texts: Sequence[str] | None = None,
    special: Sequence[object] | None = None,
    name: str = "arrays",
    untrained: Callable[[int], HeadModel] | None = None,
) -> HeadModel:
    """A model from hidden states and weights, with logits ``scale (key^T x + key_bias) . (query^T z + query_bias)``.

    Without biases W = scale key query^T is ``[d, d]``, and `analyze` solves for the `states` as they are given. A bias
    of the keys adds a last coordinate of 1 to the keys, and a bias of the queries one to the queries: the last row of
    W, or its last column, then holds the bias, and W_mm may use that coordinate as well.

    Arguments:
        states: for each sentence what the key projections see, after the layer's normalization, ``[layers, T, d]``.
        key: key weights, ``[layers, key heads, d, m]``; groups of query heads share a key head where there are fewer.
        query: query weights, ``[layers, heads, d, m]``.
        key_bias: ``[layers, key heads, m]``, or None for no bias.
        query_bias: ``[layers, heads, m]``, or None for no bias.
        query_states: what the query projections see, where it differs from `states`.
        scale: of the logits; None means 1/sqrt(m).
        causal: whether a query sees only itself and the tokens before it.
        attention: for each sentence the model's own, ``[layers, heads, T, T]``; the recomputed one must agree with it.
        tokens: for each sentence the names of its tokens; None numbers them.
        texts: a different name for each sentence; None numbers them.
        special: for each sentence True at tokens such as [CLS], ``[T]``; None means that there are none.
        name: for reports.
        untrained: a function that makes the same model from a seed, freshly initialised.

    Raises:
        ValueError: naming the array that does not fit, is not finite, or contradicts the given attention.

    >>> identity = torch.eye(2)[None, None]
    >>> model = from_arrays([torch.eye(2)[None]], identity, identity, scale=1.0)
    >>> model.states(model.sentences[0]).attention.shape
    torch.Size([1, 1, 2, 2])
    """
    notes: set[str] = set()
    forms = _forms(key, query, key_bias, query_bias, scale, notes)
    layers, heads, d = len(forms), len(forms[0]), as_tensor(query, "query").shape[2]
    if (n := len(states)) == 0:
        raise ValueError("states must hold at least one sentence; got none")
    given = {"query_states": query_states, "attention": attention, "tokens": tokens, "texts": texts, "special": special}
    for label, values in given.items():
        if values is not None and len(values) != n:
            raise ValueError(f"{label} must have one entry for each of the {n} sentences; got {len(values)}")
    numbers: dict[str, int] = {}
    stored = []
    for i in range(n):
        asking = seen = _seen(states[i], f"states[{i}]", layers, d, notes)
        T = seen.shape[1]
        if query_states is not None:
            asking = _seen(query_states[i], f"query_states[{i}]", layers, d, notes)
            if asking.shape[1] != T:
                raise ValueError(f"query_states[{i}] must have the {T} tokens of states[{i}]; got {asking.shape[1]}")
        keys = seen if key_bias is None else with_constant(seen)
        shared = query_states is None and (key_bias is None) == (query_bias is None)
        queries = keys if shared else asking if query_bias is None else with_constant(asking)
        allowed = allowed_tokens(T, causal)
        if attention is None:
            seen_by = [LayerStates(*both, allowed) for both in zip(keys, queries, strict=True)]
            made = [torch.stack([form.attention(one) for form in forms[k]]) for k, one in enumerate(seen_by)]
            own = torch.stack(made)
        else:
            own = _floats(attention[i], f"attention[{i}]", notes).to("cpu", torch.float64)
            check_shape(own, f"attention[{i}]", (layers, heads, T, T), "layers, heads, T, T")
        text = f"sentence {i}" if texts is None else str(texts[i])
        names = [str(token) for token in (range(T) if tokens is None else tokens[i])]
        if len(names) != T:
            raise ValueError(f"tokens[{i}] must name the {T} tokens of states[{i}]; got {len(names)}")
        # Tokens of one name are the same token, in all sentences.
        ids = torch.tensor([numbers.setdefault(token, len(numbers)) for token in names])
        marked = as_mask([False] * T if special is None else special[i], f"special[{i}]").to("cpu")
        check_shape(marked, f"special[{i}]", (T,), "T")
        stored.append((Sentence(text, tuple(names), ids, marked), SentenceStates(keys, queries, own, allowed)))
    model = ArraysModel(name, forms, d, stored, causal, tuple(sorted(notes)), untrained)
    if attention is not None:
        for _, found in stored:
            check_exact(model, found, range(layers))
    return model


def _identity(sentence: Sentence) -> tuple[object, ...]:
    return (sentence.text, *sentence.ids.tolist())


def _floats(value: object, name: str, notes: set[str]) -> Tensor:
    tensor = as_tensor(value, name)
    if tensor.dtype in (torch.float16, torch.bfloat16):
        notes.add("half precision arrays were upcast to float64")
    elif tensor.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"{name} must hold floating-point numbers; got {type_name(tensor)}")
    return tensor


def _forms(
    key: object, query: object, key_bias: object, query_bias: object, scale: float | None, notes: set[str]
) -> list[list[HeadWeights]]:
    keys, queries = _floats(key, "key", notes), _floats(query, "query", notes)
    if queries.ndim != 4 or 0 in queries.shape:
        raise ValueError(f"query must have shape [layers, heads, d, m], none of them 0; got {list(queries.shape)}")
    layers, heads, d, m = queries.shape
    key_heads = keys.shape[1] if keys.ndim == 4 else heads
    check_shape(keys, "key", (layers, key_heads, d, m), "layers, key heads, d, m")
    if key_heads == 0 or heads % key_heads:
        raise ValueError(f"key must have a number of heads that divides the {heads} query heads; got {key_heads}")
    check_finite(keys, "key", ("layer", "head", "row", "column"))
    check_finite(queries, "query", ("layer", "head", "row", "column"))

    def biases(value: object, name: str, count: int) -> Tensor | list[list[None]]:
        if value is None:
            return [[None] * count] * layers
        bias = _floats(value, name, notes)
        check_shape(bias, name, (layers, count, m), "layers, heads, m")
        check_finite(bias, name, ("layer", "head", "coordinate"))
        return bias

    key_biases, query_biases = biases(key_bias, "key_bias", key_heads), biases(query_bias, "query_bias", heads)
    factor = m**-0.5 if scale is None else float(scale)

    shared = [(head * key_heads // heads, head) for head in range(heads)]  # the key head of each query head
    return [
        [head_weights(keys[i, k], queries[i, q], key_biases[i][k], query_biases[i][q], factor) for k, q in shared]
        for i in range(layers)
    ]


def _seen(value: object, name: str, layers: int, d: int, notes: set[str]) -> Tensor:
    seen = _floats(value, name, notes)
    check_shape(seen, name, (layers, "T", d), "layers, T, d")
    check_finite(seen, name, ("layer", "token", "coordinate"))
    return seen.detach().to("cpu", torch.float64)
