"""Live models are copied and left alone; untrained twins draw from their own seed."""

from __future__ import annotations

import pytest
import torch
import transformers

from attsvm.heads import load
from heads.loading.small import attention_error

from . import small
from .small import IDS, READERS


def test_a_live_model_is_left_as_it_is():
    live = small.gpt2().train()
    live.set_attn_implementation("sdpa")
    before = {name: tensor.clone() for name, tensor in live.state_dict().items()}
    state = torch.random.get_rng_state()
    model = load(live)
    sentence = model.encode([IDS])[0]
    form, attention = model.weights(1, 1).weights, model.states(sentence).attention
    assert live.training
    assert live.config._attn_implementation == "sdpa"
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(before[name], tensor) for name, tensor in live.state_dict().items())
    with torch.no_grad():
        for parameter in live.parameters():
            parameter.mul_(2)
    assert torch.equal(model.weights(1, 1).weights, form)  # training goes on without changing what we hold
    assert torch.equal(model.states(sentence).attention, attention)


def test_dropout_is_off():
    model = load(small.bert(attention_probs_dropout_prob=0.5, hidden_dropout_prob=0.5).train())
    sentence = model.encode([IDS])[0]
    assert torch.equal(model.states(sentence).attention, model.states(sentence).attention)


def test_half_precision():
    model = load(small.bert().half())
    assert model.notes == ("half precision weights (float16) were upcast to float32",)
    assert attention_error(model, model.states(model.encode([IDS])[0])).max() < 1e-5


def test_task_heads_change_nothing():
    bare = small.bert(add_cross_attention=False)
    masked = transformers.BertForMaskedLM(bare.config)
    masked.bert.load_state_dict(bare.state_dict(), strict=False)
    ids = [IDS]
    first, second = load(bare), load(masked)
    assert torch.equal(first.states(first.encode(ids)[0]).attention, second.states(second.encode(ids)[0]).attention)


def test_nan_weights():
    live = small.bert()
    with torch.no_grad():
        live.encoder.layer[0].attention.self.key.weight[0, 0] = torch.nan
    with pytest.raises(
        ValueError, match=r"weights of BertModel must be finite; encoder.layer.0.attention.self.key.weight"
    ):
        load(live)


def test_adapters_must_be_merged():
    live = small.bert()
    live.encoder.layer[0].attention.self.query.register_parameter("adapter", torch.nn.Parameter(torch.ones(2)))
    with pytest.raises(
        ValueError, match=r"weights that BertModel does not know, such as encoder.*adapter; merge adapters"
    ):
        load(live)


def test_other_parts_in_place_of_a_layer():
    live = small.bert()
    live.encoder.layer[0].attention.self.query = torch.nn.Sequential(live.encoder.layer[0].attention.self.query)
    with pytest.raises(
        ValueError, match=r"BertModel lacks 2 weights that its architecture needs, such as encoder.layer.0"
    ):
        load(live)


@pytest.mark.parametrize("make", [reader[1] for reader in READERS], ids=[reader[0] for reader in READERS])
def test_untrained_twins(make):
    trained = load(make())
    state = torch.random.get_rng_state()
    first, again, other = trained.untrained(1), trained.untrained(1), trained.untrained(2)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert trained.has_untrained
    sizes = ("architecture", "layers", "heads", "width", "causal", "notes")
    assert [getattr(first, name) for name in sizes] == [getattr(trained, name) for name in sizes]
    assert first.name == f"{trained.name}, untrained (1)"
    assert first.fingerprint() == again.fingerprint()
    assert len({model.fingerprint() for model in (trained, first, other)}) == 3
    sentence = first.encode([IDS])[0]
    assert torch.equal(first.states(sentence).attention, again.states(sentence).attention)
    assert attention_error(first, first.states(sentence)).max() < 1e-5
    # The library draws weights with a standard deviation of 0.02 (times sqrt(6) for the scale inside the query).
    assert first.weights(0, 0).key[:-1].std() == pytest.approx(0.02, rel=0.3)


@pytest.mark.parametrize(("layer", "head", "sentence"), [
    (3, 0, r"layer must lie in 0..2 for BertModel; got 3"),
    (-1, 0, r"layer must lie in 0..2 for BertModel; got -1"),
    (0, 4, r"head must lie in 0..3 for BertModel; got 4"),
    (0, 1.5, r"head must lie in 0..3 for BertModel; got 1.5"),
])  # fmt: skip
def test_heads_that_do_not_exist(layer, head, sentence):
    model = load(small.bert())
    with pytest.raises(ValueError, match=sentence):
        model.weights(layer, head)


def test_layers_that_do_not_exist():
    model = load(small.bert())
    with pytest.raises(ValueError, match=r"layer must lie in 0..2 for BertModel; got 7"):
        model.states(model.encode([IDS])[0], [0, 7])
