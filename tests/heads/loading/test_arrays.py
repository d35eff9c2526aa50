"""Models given as arrays, against logits written out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

from attsvm.heads import from_arrays, load
from heads.loading.small import attention_error

from . import small
from .small import IDS

LAYERS, HEADS, KEY_HEADS, D, M = 2, 4, 2, 5, 3


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def arrays() -> dict[str, object]:
    return {
        "states": [draw(LAYERS, 6, D, seed=1), draw(LAYERS, 1, D, seed=2)],
        "key": draw(LAYERS, KEY_HEADS, D, M, seed=3),
        "query": draw(LAYERS, HEADS, D, M, seed=4),
        "key_bias": draw(LAYERS, KEY_HEADS, M, seed=5),
        "query_bias": draw(LAYERS, HEADS, M, seed=6),
    }


def by_hand(arrays: dict[str, object], sentence: int, causal: bool, scale: float = M**-0.5) -> Tensor:
    """Attention with loops over everything; query heads 0 and 1 share key head 0, heads 2 and 3 key head 1."""
    seen = arrays["states"][sentence]
    asking = arrays.get("query_states", arrays["states"])[sentence]
    T = seen.shape[1]
    found = torch.zeros(LAYERS, HEADS, T, T, dtype=torch.float64)
    for layer in range(LAYERS):
        for head in range(HEADS):
            shared = {0: 0, 1: 0, 2: 1, 3: 1}[head]
            for i in range(T):
                q = asking[layer, i] @ arrays["query"][layer, head] + arrays["query_bias"][layer, head]
                ks = [
                    seen[layer, j] @ arrays["key"][layer, shared] + arrays["key_bias"][layer, shared] for j in range(T)
                ]
                weights = [float(torch.exp(scale * k @ q)) if j <= i or not causal else 0.0 for j, k in enumerate(ks)]
                found[layer, head, i] = torch.tensor(weights) / sum(weights)
    return found


@pytest.mark.parametrize("causal", [False, True])
def test_grouped_heads_by_hand(arrays, causal):
    model = from_arrays(**arrays, causal=causal)
    assert (model.layers, model.heads, model.width, model.causal) == (LAYERS, HEADS, D, causal)
    for number, sentence in enumerate(model.sentences):
        states = model.states(sentence)
        assert torch.allclose(states.attention, by_hand(arrays, number, causal), atol=1e-12)
        assert attention_error(model, states).max() < 1e-12


def test_queries_of_other_states_and_another_scale(arrays):
    arrays["query_states"] = [draw(LAYERS, 6, D, seed=7), draw(LAYERS, 1, D, seed=8)]
    model = from_arrays(**arrays, scale=1.0)
    states = model.states(model.sentences[0])
    assert torch.allclose(states.attention, by_hand(arrays, 0, False, scale=1.0), atol=1e-12)
    assert not torch.equal(states.keys, states.queries)


def test_biases_are_zero_where_none_are_given(arrays):
    bare = from_arrays(arrays["states"], arrays["key"], arrays["query"])
    zero = from_arrays(
        arrays["states"],
        arrays["key"],
        arrays["query"],
        key_bias=torch.zeros(LAYERS, KEY_HEADS, M),
        query_bias=torch.zeros(LAYERS, HEADS, M),
    )
    assert bare.weights(1, 3).weights.shape == (D, D)  # nothing is added where there is no bias
    assert torch.equal(bare.weights(1, 3).weights, zero.weights(1, 3).weights[:D, :D])
    for number, sentence in enumerate(bare.sentences):
        assert torch.equal(bare.states(sentence).keys, arrays["states"][number])
        assert torch.allclose(bare.states(sentence).attention, zero.states(sentence).attention, atol=1e-12)


@pytest.mark.parametrize("given", ["key_bias", "query_bias"])
def test_one_bias_widens_one_side(arrays, given):
    missing = ({"key_bias", "query_bias"} - {given}).pop()
    model = from_arrays(**{**arrays, missing: None})
    assert model.weights(0, 0).weights.shape == ((D + 1, D) if given == "key_bias" else (D, D + 1))
    by_loops = by_hand({**arrays, missing: torch.zeros_like(arrays[missing])}, 0, False)
    assert torch.allclose(model.states(model.sentences[0]).attention, by_loops, atol=1e-12)


def test_numpy_and_float32(arrays):
    plain = {name: [a.float().numpy() for a in value] if name == "states" else value.float().numpy() for name, value in arrays.items()}  # fmt: skip  # noqa: E501
    ours, theirs = from_arrays(**arrays), from_arrays(**plain)
    assert torch.allclose(ours.weights(0, 1).weights, theirs.weights(0, 1).weights, atol=1e-6)
    assert theirs.weights(0, 1).key.dtype == torch.float64
    assert theirs.notes == ()


def test_half_precision_is_said(arrays):
    arrays["key"] = arrays["key"].half()
    model = from_arrays(**arrays)
    assert model.notes == ("half precision arrays were upcast to float64",)


def test_names_and_numbers(arrays):
    marks = [np.array([True] + [False] * 5), torch.tensor([False])]
    words = [["[CLS]", "a", "b", "a", "c", "b"], ["b"]]
    model = from_arrays(**arrays, tokens=words, texts=["first", "second"], special=marks)
    first, second = model.sentences
    assert first.tokens == tuple(words[0])
    assert first.ids.tolist() == [0, 1, 2, 1, 3, 2]
    assert second.ids.tolist() == [2]  # one name is one token, in all sentences
    assert (first.text, second.text) == ("first", "second")
    assert first.special.tolist() == marks[0].tolist()


def test_layers_are_chosen(arrays):
    model = from_arrays(**arrays)
    everything, one = model.states(model.sentences[0]), model.states(model.sentences[0], [1])
    assert torch.equal(one.keys, everything.keys[[1]])
    assert torch.equal(one.attention, everything.attention[[1]])


def test_arrays_of_a_real_model_reproduce_it():
    # What a user does with a model of their own: take inputs and weights out of it by hand.
    live = small.bert()
    theirs = load(live)
    sentence = theirs.encode([IDS])[0]
    states = theirs.states(sentence)
    parts = [layer.attention.self for layer in live.encoder.layer]
    weights = {
        name: torch.stack([getattr(part, name).weight.T.reshape(24, 4, 6).transpose(0, 1) for part in parts])
        for name in ("key", "query")
    }
    biases = {
        name: torch.stack([getattr(part, name).bias.reshape(4, 6) for part in parts]) for name in ("key", "query")
    }
    ours = from_arrays(
        [states.keys[..., :-1]],
        weights["key"],
        weights["query"],
        key_bias=biases["key"],
        query_bias=biases["query"],
        attention=[states.attention],
    )
    for layer in range(3):
        for head in range(4):
            assert torch.equal(ours.weights(layer, head).weights, theirs.weights(layer, head).weights)


def test_grouped_heads_of_a_llama_without_rotary_positions():
    # With the rotation turned off, its own attention is the truth for four query heads on two key heads.
    config = transformers.LlamaConfig(
        vocab_size=30,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        attn_implementation="eager",
    )
    live = small.loud(transformers.LlamaModel(config))
    live.rotary_emb.register_forward_hook(lambda _, inputs, output: (torch.ones_like(output[0]), 0 * output[1]))
    seen: list[Tensor] = []
    for block in live.layers:
        block.self_attn.k_proj.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0][0]))
    with torch.no_grad():
        own = torch.stack(live(torch.tensor([IDS]) % 30, output_attentions=True, use_cache=False).attentions)[:, 0]
    keys = torch.stack([block.self_attn.k_proj.weight.T.reshape(16, 2, 4).transpose(0, 1) for block in live.layers])
    queries = torch.stack([block.self_attn.q_proj.weight.T.reshape(16, 4, 4).transpose(0, 1) for block in live.layers])
    model = from_arrays([torch.stack(seen)], keys, queries, causal=True, attention=[own])
    assert own[..., -1, :].max() > 0.5
    assert attention_error(model, model.states(model.sentences[0])).max() < 1e-5
    assert torch.equal(model.weights(0, 0).key, model.weights(0, 1).key)
    assert not torch.equal(model.weights(0, 1).key, model.weights(0, 2).key)


def test_wrong_attention_is_refused(arrays):
    own = [by_hand(arrays, 0, True), by_hand(arrays, 1, True)]
    from_arrays(**arrays, attention=own, causal=True)
    with pytest.raises(
        ValueError,
        match=r"arrays is more than softmax\(X K Q\^T z\) with its positions: the attention of L\dH\d recomputed",
    ):
        from_arrays(**arrays, attention=own, causal=False)


def test_fingerprints(arrays):
    first = from_arrays(**arrays).fingerprint()
    assert from_arrays(**arrays).fingerprint() == first
    changed = dict(arrays, states=[arrays["states"][0], arrays["states"][1] + 1e-9])
    prints = {first, from_arrays(**changed).fingerprint(), from_arrays(**arrays, causal=True).fingerprint()}
    assert len(prints) == 3


def test_untrained_twins_come_from_the_user(arrays):
    model = from_arrays(**arrays)
    assert not model.has_untrained
    with pytest.raises(ValueError, match=r"arrays was given as arrays and has no untrained twin; pass untrained="):
        model.untrained(0)
    twin = from_arrays(**arrays, untrained=lambda seed: from_arrays(**arrays, name=f"twin {seed}"))
    assert twin.has_untrained
    assert twin.untrained(3).name == "twin 3"


def test_texts_cannot_be_read(arrays):
    model = from_arrays(**arrays)
    with pytest.raises(ValueError, match=r"was given as arrays and cannot read texts; use its own sentences"):
        model.encode(["a text"])
    other = from_arrays(**arrays, texts=["x", "y"])
    with pytest.raises(ValueError, match=r"sentence must be one of the 2 of arrays; got 'x'"):
        model.states(other.sentences[0])


@pytest.mark.parametrize(("changes", "sentence"), [
    ({"states": []}, r"states must hold at least one sentence; got none"),
    ({"states": [draw(LAYERS, 6, D + 1)]}, r"states\[0\] must have shape \[2, T, 5\] \(layers, T, d\); got \[2, 6"),
    ({"states": [draw(LAYERS, 0, D)]}, r"states\[0\] must have shape \[2, T, 5\]"),
    ({"states": [draw(LAYERS, 6, D) / 0]}, r"states\[0\] must be finite; got .* at layer 0, token 0, coordinate 0"),
    ({"states": [torch.ones(LAYERS, 6, D).long()]}, r"states\[0\] must hold floating-point numbers; got int64"),
    ({"query": draw(HEADS, D, M)}, r"query must have shape \[layers, heads, d, m\], none of them 0; got \[4, 5, 3\]"),
    ({"key": draw(LAYERS, 3, D, M)}, r"key must have a number of heads that divides the 4 query heads; got 3"),
    ({"key": draw(LAYERS, 0, D, M)}, r"key must have a number of heads that divides the 4 query heads; got 0"),
    ({"key": draw(LAYERS, KEY_HEADS, D, M + 1)}, r"key must have shape \[2, 2, 5, 3\]"),
    ({"key": torch.full((LAYERS, KEY_HEADS, D, M), torch.nan)}, r"key must be finite; got nan at layer 0, head 0"),
    ({"key_bias": draw(LAYERS, HEADS, M)}, r"key_bias must have shape \[2, 2, 3\] \(layers, heads, m\); got \[2, 4"),
    ({"query_states": [draw(LAYERS, 6, D)]}, r"query_states must have one entry for each of the 2 sentences; got 1"),
    ({"query_states": 2 * [draw(LAYERS, 6, D)]}, r"query_states\[1\] must have the 1 tokens of states\[1\]; got 6"),
    ({"tokens": [["a"] * 6, []]}, r"tokens\[1\] must name the 1 tokens of states\[1\]; got 0"),
    ({"texts": ["a", "b", "c"]}, r"texts must have one entry for each of the 2 sentences; got 3"),
    ({"texts": ["same", "same"], "states": 2 * [draw(LAYERS, 3, D)]}, r"texts must differ .*\[1\] repeats 'same'"),
    ({"special": [torch.zeros(6), torch.zeros(1)]}, r"special\[0\] must be a boolean mask; got float32"),
    ({"attention": 2 * [draw(LAYERS, HEADS, 6, 6)]}, r"attention\[1\] must have shape \[2, 4, 1, 1\]"),
])  # fmt: skip
def test_arrays_that_do_not_fit(arrays, changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        from_arrays(**{**arrays, **changes})
