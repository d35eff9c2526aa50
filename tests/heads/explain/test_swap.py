"""Other attention in a head: the head's own changes nothing, none is what the sum without it gives."""

from __future__ import annotations

import math

import pytest
import torch

from attsvm.heads import load, max_margin, swap, swaps
from attsvm.heads.analysis.lifted import Pairs
from attsvm.heads.analysis.selections import choices, layers_of
from attsvm.heads.explain.swap import outcome
from heads.loading.small import IDS, POSITIONED, READERS, VOCABULARY, gpt2, lately
from heads.planted import planted

TEXTS = torch.randint(0, VOCABULARY, (24, 9), generator=torch.Generator().manual_seed(0)).tolist()
CASES = [(name, make) for name, make, *_ in READERS] + [
    (name, lambda kind=kind, changes=changes: lately(kind, **changes))
    for name, kind, changes in POSITIONED
    if "head space" not in name
]


@pytest.mark.parametrize(("name", "make"), CASES, ids=[name for name, _ in CASES])
def test_its_own_weights_change_nothing_and_others_do(name, make):
    model = load(make())
    (sentence,) = model.encode([IDS])
    before = outcome(model, sentence)
    with swap(model, {"L0H1": model.weights(0, 1), "L2H3": model.weights(2, 3)}):
        own = outcome(model, sentence)
    with swap(model, "L1H2", model.weights(1, 0)):
        other = outcome(model, sentence)
    after = outcome(model, sentence)
    torch.testing.assert_close(own.states, before.states, rtol=1e-4, atol=1e-4)
    assert torch.equal(after.states, before.states)  # nothing is left behind
    assert not torch.allclose(other.states, before.states, atol=1e-4)
    torch.testing.assert_close(other.attention[1][0], before.attention[1][0])
    if "gpt_bigcode, one key head" not in name:
        torch.testing.assert_close(other.attention[1][2], before.attention[1][0], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("name", "padded"), [("gpt2", "right"), ("llama", "right"), ("llama", "left")])
def test_every_text_of_a_batch_is_swapped(name, padded):
    """Two texts in one run, the shorter one padded, do what each does alone."""
    model = load(gpt2() if name == "gpt2" else lately("Llama"))
    texts, weights = [IDS, IDS[1:6]], {"L0H1": model.weights(1, 0), "L1H2": model.weights(0, 3), "L2H0": None}
    rows, marks = [], []
    for text in texts:
        fill = [0] * (len(IDS) - len(text))
        rows.append(fill + text if padded == "left" else text + fill)
        marks.append([0] * len(fill) + [1] * len(text) if padded == "left" else [1] * len(text) + [0] * len(fill))
    mask = torch.tensor(marks)
    places = (mask.cumsum(-1) - 1).clamp(min=0)
    with swap(model, weights), torch.no_grad():
        alone = [outcome(model, sentence).states for sentence in model.encode(texts)]
        together = model._core(input_ids=torch.tensor(rows), attention_mask=mask, position_ids=places).last_hidden_state
    for states, row, kept in zip(alone, together, mask.bool(), strict=True):
        torch.testing.assert_close(row[kept], states, rtol=1e-4, atol=1e-4)
    plain = model._core(input_ids=torch.tensor(rows), attention_mask=mask, position_ids=places).last_hidden_state
    assert not torch.allclose(plain[1], together[1], atol=1e-3)


def test_without_a_head():
    """GPT-2 with the head's rows of the output projection set to 0."""
    model = load(gpt2())
    (sentence,) = model.encode([IDS])
    with swap(model, "L1H2", None):
        found = outcome(model, sentence)
    with torch.no_grad():
        model._core.h[1].attn.c_proj.weight[12:18] = 0.0
    torch.testing.assert_close(found.states, outcome(model, sentence).states)
    assert found.loss > 0


@pytest.mark.parametrize("kind", ["Llama", "MPNet", "T5"])
def test_the_logits_of_w_mm_are_those_of_its_kernel(kind):
    changes = {"pad_token_id": 1} if kind == "MPNet" else {"d_kv": 6, "d_ff": 32} if kind == "T5" else {}
    model = load(lately(kind, **changes))
    best = max_margin(model, "L1H0", TEXTS[:10], confidence=0.3, queries=20)
    assert best.solved
    (layer,) = layers_of(model, model.encode([IDS]), [1], ())
    every = choices(layer.views, best.form)
    pairs = Pairs.of(best.form, layer.views, every.triples)
    logits = best.logits(layer.views[0])
    found = logits[every.position[pairs.query], pairs.token]
    torch.testing.assert_close(found, best.solution.logits(pairs))


def test_the_table_of_swaps():
    model = load(gpt2())
    found = {(row.heads, row.kind): row for row in swaps(model, TEXTS, ["L0H1", "L1H2"], confidence=0.3, queries=30)}
    names = {"L0H1", "L1H2", "layer 0", "layer 1", "all"}
    assert set(found) == {(name, kind) for name in names for kind in ("W_mm", "random", "removed")}
    assert found["all", "removed"].swapped == 2
    for name in names:
        assert found[name, "W_mm"].same_choice[0] > found[name, "random"].same_choice[0]
        assert math.isnan(found[name, "removed"].same_choice[0])
    assert all(-1 <= row.cosine[0] <= 1 and row.cosine[1] >= 0 for row in found.values())


def test_bad_input():
    model = load(gpt2())
    with pytest.raises(ValueError, match="head L7H0 does not exist"), swap(model, "L7H0", None):
        pass
    with pytest.raises(ValueError, match="must be a model of the transformers library"), swap(planted(), "L0H0", None):
        pass
    with pytest.raises(ValueError, match="texts must hold at least 4"):
        swaps(model, TEXTS[:3])
