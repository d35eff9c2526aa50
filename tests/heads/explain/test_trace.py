"""What earlier parts give keys and queries: sums that are exact, and parts that are what they say."""

from __future__ import annotations

import pytest
import torch

from attsvm.heads import load
from attsvm.heads.explain.trace import trace
from heads.loading.small import IDS, POSITIONED, READERS, bert, gpt2, lately, whisper

# In float64 these two refuse to run; heads that are seen in head space have no parts.
WITHOUT = ("gpt2, unscaled", "gpt_oss, sinks and windows")


def traced(module):
    model = load(module)
    (sentence,) = model.encode([IDS])
    return model, trace(model, sentence)


def check_sums(model, found):
    layer = model.layers - 1
    for head in range(model.heads):
        form = model.weights(layer, head)
        parts = found.parts(layer, form)
        seen = found.seen[layer]
        sides = (parts.keys, seen.keys @ form.key), (parts.queries, seen.queries @ form.query)
        for side, whole in ((side, form.turned(whole, seen.phases)) for side, whole in sides):
            torch.testing.assert_close(side.sum(0), whole, rtol=1e-10, atol=1e-10 * float(whole.abs().max()))
        assert {f"L{k}H{h}" for k in range(layer) for h in range(model.heads)} <= set(parts.names)
        assert {f"L{k} MLP" for k in range(layer)} <= set(parts.names)


@pytest.mark.parametrize(("name", "make"), [case[:2] for case in READERS], ids=[case[0] for case in READERS])
def test_parts_add_up(name, make):
    model, found = traced(make())
    if name in WITHOUT:
        assert found.parts(0, model.weights(0, 0)) is None
    else:
        check_sums(model, found)


@pytest.mark.parametrize(("name", "kind", "changes"), POSITIONED, ids=[case[0] for case in POSITIONED])
def test_parts_add_up_with_positions(name, kind, changes):
    model, found = traced(lately(kind, **changes))
    if name in WITHOUT or "head space" in name:
        assert found.parts(0, model.weights(0, 0)) is None
    else:
        check_sums(model, found)


def test_the_weights_are_back_to_the_last_bit():
    module = whisper()
    model = load(module)
    before = model.fingerprint()
    model._fingerprint = None
    heard = model._heard.clone()
    trace(model, model.encode([IDS])[0])
    assert model.fingerprint() == before
    assert torch.equal(model._heard, heard)
    assert heard.dtype == model._heard.dtype
    assert next(model._core.parameters()).dtype == torch.float32


def test_parts_are_what_they_say():
    """GPT-2 by hand: embeddings and the heads of layer 0 through the frozen norm of layer 1."""
    model, found = traced(gpt2())
    form, core = model.weights(1, 2), model._core.double()
    parts = dict(zip((kept := found.parts(1, form)).names, kept.keys, strict=True))
    ids, place = torch.tensor(IDS), torch.arange(len(IDS))
    block, norm = core.h[0], core.h[1].ln_1
    with torch.no_grad():
        words, positions = core.wte(ids), core.wpe(place)
        stream = words + positions
        read = block.ln_1(stream)
        wide = torch.cat([read, torch.ones(len(IDS), 1)], 1).double()
        values = block.attn.c_attn(read)[:, 48:].reshape(len(IDS), 4, 6)
        attention = model.states(model.encode([IDS])[0]).attention[0]
        heads = [attention[h] @ values[:, h] @ block.attn.c_proj.weight[6 * h : 6 * h + 6] for h in range(4)]
        stream = stream + sum(heads) + block.attn.c_proj.bias
        mlp = block.mlp(block.ln_2(stream))
        spread = ((stream + mlp).var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt()

        def key_of(part):
            return (part - part.mean(-1, keepdim=True)) / spread * norm.weight @ form.key[:-1]

        assert wide.shape[1] == len(form.key)
        for name, part in (("embedding", words), ("positions", positions), ("L0 MLP", mlp), ("L0H1", heads[1])):
            torch.testing.assert_close(parts[name], key_of(part), rtol=1e-5, atol=1e-5)


def test_a_sum_that_misses_a_part_is_refused():
    model, found = traced(bert())
    found._writes.pop(0)
    with pytest.raises(ValueError, match="is not a sum of what its linear layers write"):
        found.parts(1, model.weights(1, 0))
