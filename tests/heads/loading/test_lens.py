"""TransformerLens models, by a stand-in with the package's names; the same checks were made once on the package."""

from __future__ import annotations

import pytest
import torch

from attsvm.heads import load
from heads.loading.small import attention_error

from .lens_stand_in import make
from .test_tokenizers import Letters

IDS = [3, 9, 9, 27, 1, 14]


@pytest.mark.parametrize("changes", [
    {}, {"attention_dir": "bidirectional"}, {"n_key_value_heads": 2}, {"n_key_value_heads": 1},
    {"use_attn_scale": False}, {"attn_scale": 0.7}, {"scale_attn_by_inverse_layer_idx": True},
    {"use_split_qkv_input": True},
], ids=str)  # fmt: skip
def test_exact(changes):
    live = make(**changes)
    model = load(live)
    assert (model.name, model.architecture, model.layers, model.heads) == ("stand-in", "TransformerLens", 2, 4)
    assert model.causal == (changes.get("attention_dir") != "bidirectional")
    sentence = model.encode([IDS])[0]
    states = model.states(sentence)
    assert attention_error(model, states).max() < 1e-5
    assert states.attention[..., -1, :].max() > 0.5
    assert torch.equal(states.allowed, torch.ones(6, 6).tril() > 0 if model.causal else torch.ones(6, 6) > 0)
    assert torch.equal(model.states(sentence, [1]).keys[0], states.keys[1])


def test_unset_scale_is_that_of_the_head_size():
    live = make()
    expected = load(live).weights(0, 0).query
    live.cfg.attn_scale = -1.0
    live.cfg.d_head = 3
    assert torch.allclose(load(live).weights(0, 0).query, expected)


def test_a_wrong_scale_is_noticed():
    live = make()
    model = load(live)
    live.blocks[1].attn.cfg = type(live.cfg)(**(vars(live.cfg) | {"attn_scale": 0.5}))
    with pytest.raises(ValueError, match=r"stand-in is more than softmax\(X K Q\^T z\) with its positions: the att"):
        model.states(model.encode([IDS])[0])


@pytest.mark.parametrize(("changes", "sentence"), [
    *(
        ({"positional_embedding_type": kind}, rf"has positions of the kind '{kind}', which is not read from Transf")
        for kind in ("rotary", "alibi", "relative_positional_bias", "novel")
    ),
    ({"attn_scores_soft_cap": 30.0}, r"stand-in caps its attention logits"),
    ({"use_qk_norm": True}, r"stand-in normalizes queries and keys inside the head"),
    ({"use_local_attn": True}, r"stand-in lets a query see only a window of tokens"),
], ids=str)  # fmt: skip
def test_refusals(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        load(make(**changes))


def test_half_precision_and_nan():
    with pytest.raises(ValueError, match=r"stand-in runs in half precision; load it with dtype=torch.float32"):
        load(make().half())
    live = make()
    with torch.no_grad():
        live.blocks[0].attn.W_Q[0, 0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"the weights of stand-in must be finite; blocks.0.attn.W_Q holds NaN"):
        load(live)


def test_texts_start_with_the_opening_token():
    live = make(Letters(), d_vocab=50)
    assert load(live).encode(["ab"])[0].ids.tolist() == [1, ord("a") % 40 + 4, ord("b") % 40 + 4, 2]  # not twice
    bare = Letters()
    bare.__class__ = type("Bare", (Letters,), {"__call__": lambda self, text: {"input_ids": [5, 6]}})
    assert load(make(bare, d_vocab=50)).encode(["ab"])[0].ids.tolist() == [1, 5, 6]
    assert load(make(bare, d_vocab=50, default_prepend_bos=False)).encode(["ab"])[0].ids.tolist() == [5, 6]
    with pytest.raises(ValueError, match="stand-in has no tokenizer"):
        load(make()).encode(["ab"])


def test_untrained_twins_and_fingerprints():
    live = make(seed=5)
    model = load(live)
    state = torch.random.get_rng_state()
    first, again, other = model.untrained(1), model.untrained(1), model.untrained(2)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert live.cfg.seed == 5
    assert first.fingerprint() == again.fingerprint()
    assert len({m.fingerprint() for m in (model, first, other)}) == 3
    assert first.name == "stand-in, untrained (1)"
    assert attention_error(first, first.states(first.encode([IDS])[0])).max() < 1e-5


def test_the_model_is_left_as_it_is():
    live = make().train()
    model = load(live)
    model.states(model.encode([IDS])[0])
    assert live.training
    assert not any(block.attn._forward_pre_hooks for block in live.blocks)
    with pytest.raises(ValueError, match=r"sentence must have 1 to 10 tokens for stand-in; got 11"):
        model.states(load(make(n_ctx=20)).encode([[1] * 11])[0])
