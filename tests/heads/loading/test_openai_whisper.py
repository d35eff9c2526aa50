"""Whisper from the file of its authors, against a decoder written here from the paper's description of it."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from attsvm.heads import HeadModel, load
from heads.loading.small import attention_error
from heads.weights import real

from . import small

TEXT = "The quick brown fox jumped; it didn't return in 1999."


@pytest.fixture(scope="module")
def weights() -> dict[str, Tensor]:
    stored = torch.load(real("whisper") / "tiny.en.pt", weights_only=True)
    return {name: tensor.double() for name, tensor in stored["model_state_dict"].items()}


@pytest.fixture(scope="module")
def audio() -> Tensor:
    return torch.randn(20, 384, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def model(audio: Tensor) -> HeadModel:
    return load(real("whisper") / "tiny.en.pt", audio_features=audio)


def decoder_attention(weights: dict[str, Tensor], ids: Tensor, audio: Tensor, heads: int = 6) -> Tensor:
    """Self-attention of a pre-norm decoder with cross-attention, in float64, ``[layers, heads, T, T]``."""
    T, d = len(ids), weights["decoder.positional_embedding"].shape[1]

    def norm(name: str, x: Tensor) -> Tensor:
        return functional.layer_norm(x, (d,), weights[f"{name}.weight"], weights[f"{name}.bias"])

    def linear(name: str, x: Tensor) -> Tensor:
        return x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", torch.zeros(()).double())

    def attend(name: str, x: Tensor, memory: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = (linear(f"{name}.{part}", y) for part, y in (("query", x), ("key", memory), ("value", memory)))
        q, k, v = (y.reshape(len(y), heads, -1).transpose(0, 1) for y in (q, k, v))
        pattern = (q @ k.mT / math.sqrt(d / heads) + mask).softmax(-1)
        return linear(f"{name}.out", (pattern @ v).transpose(0, 1).reshape(T, d)), pattern

    x = weights["decoder.token_embedding.weight"][ids] + weights["decoder.positional_embedding"][:T]
    future = torch.full((T, T), -torch.inf).double().triu(1)
    found = []
    for layer in range(4):
        block = f"decoder.blocks.{layer}"
        y = norm(f"{block}.attn_ln", x)
        change, pattern = attend(f"{block}.attn", y, y, future)
        found.append(pattern)
        x = x + change
        x = x + attend(f"{block}.cross_attn", norm(f"{block}.cross_attn_ln", x), audio, torch.zeros(()))[0]
        x = x + linear(f"{block}.mlp.2", functional.gelu(linear(f"{block}.mlp.0", norm(f"{block}.mlp_ln", x))))
    return torch.stack(found)


def test_decoder_equals_one_written_from_scratch(model, weights, audio):
    sentence = model.encode([TEXT])[0]
    states = model.states(sentence)
    worst = float((decoder_attention(weights, sentence.ids, audio.double()) - states.attention).abs().max())
    print(f"{len(sentence)} tokens, off by {worst:.1e}; forms off by {float(attention_error(model, states).max()):.1e}")
    assert worst < 1e-5
    assert attention_error(model, states).max() < 1e-5


def test_what_it_is(model):
    assert (model.architecture, model.layers, model.heads, model.width, model.causal) == ("whisper", 4, 6, 384, True)
    assert model.notes == ("half precision weights (float16) were upcast to float32",)
    assert torch.equal(model.weights(0, 0).key[-1], torch.zeros(64).double())  # keys have no bias
    assert model.weights(0, 0).query[-1].abs().max() > 0


def test_tokens_are_those_of_gpt2_in_whispers_frame(model):
    sentence = model.encode([TEXT])[0]
    words = ("<|startoftranscript|>", "<|notimestamps|>", " The", " quick", " brown", " fox", " jumped", ";", " it")
    assert sentence.tokens == (*words, " didn", "'t", " return", " in", " 1999", ".", "<|endoftext|>")
    # Numbers of GPT-2's vocabulary; 50256 is its closing token, 50257 and 50362 are Whisper's.
    assert sentence.ids.tolist()[:7] == [50257, 50362, 383, 2068, 7586, 21831, 11687]
    assert sentence.ids.tolist()[-2:] == [13, 50256]
    assert sentence.special.tolist() == [True, True] + [False] * 13 + [True]


def test_silence_by_default_and_it_matters(model):
    silent = load(real("whisper") / "tiny.en.pt")
    assert silent.notes[-1] == "the decoder listens to silence"
    sentence = model.encode([TEXT])[0]
    there, here = silent.states(sentence), model.states(sentence)
    assert attention_error(silent, there).max() < 1e-5
    assert torch.allclose(there.keys[0], here.keys[0])  # nothing has been heard before the first layer
    assert not torch.allclose(there.keys[3], here.keys[3])
    assert silent.fingerprint() != model.fingerprint()


@pytest.mark.parametrize("bad", [torch.zeros(5, 3), torch.full((5, 24), torch.nan), torch.zeros(24)])
def test_audio_features_must_fit(bad):
    with pytest.raises(ValueError, match=r"audio_features must be finite and of shape \[frames, 24\]"):
        load(small.whisper(), audio_features=bad)
