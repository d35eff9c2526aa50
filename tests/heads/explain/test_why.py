"""Why a head attends there: sums are exact, stated changes flip the choice in the model itself, and bad input."""

from __future__ import annotations

import json
import math

import pytest
import torch

from attsvm.heads import Reading, load, max_margin, why
from attsvm.heads.analysis.lifted import Pairs
from attsvm.heads.analysis.selections import SentenceView, choices
from attsvm.heads.explain.trace import in_float64
from heads.loading.small import HALF, IDS, VOCABULARY, albert, bert, gpt2, lately, rope, whisper
from heads.planted import planted, sentence

MODELS = {
    "bert": bert,
    "albert": albert,
    "whisper": whisper,
    "llama": lambda: lately("Llama"),
    "yarn": lambda: lately("Llama", **rope("yarn", factor=4.0, original_max_position_embeddings=4)),
    "half turned": lambda: lately("Phi", **HALF),
    "t5": lambda: lately("T5", d_kv=6, d_ff=32),
    "bloom": lambda: lately("Bloom"),
    "head space": lambda: lately("Qwen3"),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_sum_is_the_gap(name):
    model = load(MODELS[name]())
    for head in ("L0H0", f"L{model.layers - 1}H3"):
        reading = Reading(model, IDS, head)
        for query in reading.choosing:
            found = reading.why(query)
            allowed = reading.seen.allowed[query]
            logits = reading.form.logits(reading.seen)[query].masked_fill(~allowed, -math.inf)
            top = logits.topk(2)
            assert (found.chosen, found.other) == tuple(top.indices.tolist())
            assert found.gap == pytest.approx(float(top.values[0] - top.values[1]))
            assert found.error < 1e-9
            assert sum(c.content + c.position for c in found.channels) == pytest.approx(found.gap, rel=1e-9)
            for side in (found.keys, found.queries):
                assert bool(side) == (name != "head space")
                if side:
                    assert math.fsum(share.value for share in side) == pytest.approx(found.gap, rel=1e-9)


def test_the_double_sum_has_both_sums_at_its_margins():
    reading = Reading(load(gpt2()), IDS, "L2H1")
    found, (names, table) = reading.why(6), reading.double_sum(6)
    for side, sums in ((found.keys, table.sum(1)), (found.queries, table.sum(0))):
        named = {share.name: share.value for share in side}
        assert [named.get(name, 0.0) for name in names] == pytest.approx(sums.tolist())
    with pytest.raises(ValueError, match="were not followed"):
        Reading(planted(), planted().sentences[0], "L0H0").double_sum(2)


def test_content_and_position():
    """Two tokens of one content differ by position only; at one distance they would differ by content only."""
    model = load(lately("Llama"))
    reading = Reading(model, [7, 3, 3, 20, 9], "L0H1")  # tokens 1 and 2 are the same before any attention
    chosen = reading.why(4).chosen
    for over in {1, 2} - {chosen}:
        found = reading.why(4, over)
        content = sum(c.content for c in found.channels)
        if chosen in (1, 2):
            assert content == pytest.approx(0.0, abs=1e-12)
    seen, form = reading.seen, reading.form
    found = reading.why(4)
    s, r = found.chosen, found.other

    def logit(content: int, place: int) -> float:
        """Of a token with this content at this place."""
        key = form.turned((seen.keys[content] @ form.key)[None], seen.phases[place][None])
        query = form.turned((seen.queries[4] @ form.query)[None], seen.phases[4][None])
        return float((key * query).sum())

    expected = (logit(s, s) - logit(r, s) + logit(s, r) - logit(r, r)) / 2
    assert sum(c.content for c in found.channels) == pytest.approx(expected)


def chosen_with(model, reading, found, flip, factor):
    """What the model itself chooses when a state is changed on its way into the projection."""
    layer = model._layers[reading.layer]
    module = (layer.query if flip.state == "query" else layer.key).module
    calls = []

    def change(_, given):
        calls.append(None)
        if len(calls) - 1 != (reading.layer if model.architecture == "albert" else 0):
            return None  # a shared module serves all layers
        moved = given[0].clone()
        moved[0, flip.token] += factor * flip.change.to(moved)
        return (moved, *given[1:])

    with in_float64(model):
        hook = module.register_forward_pre_hook(change)
        try:
            states = model.states(reading.sentence, [reading.layer])
        finally:
            hook.remove()
    return int(states.attention[0, reading.number, found.query].argmax())


@pytest.mark.parametrize("name", ["bert", "albert", "whisper", "llama", "yarn", "half turned", "t5"])
def test_stated_changes_flip_the_choice_in_the_model(name):
    model = load(MODELS[name]())
    tried = 0
    for head in ("L1H0", "L2H3"):
        reading = Reading(model, IDS, head, upstream=False)
        for query in reading.choosing[::3]:
            found = reading.why(query)
            assert [flip.state for flip in found.flips] == ["query", "chosen key", "other key"]
            for flip in found.flips:
                tried += 1
                assert chosen_with(model, reading, found, flip, 0.9) == found.chosen
                assert chosen_with(model, reading, found, flip, 1.001) != found.chosen
                assert flip.relative > 0
    assert tried >= 12


def test_support_examples_add_up_to_the_gap_under_the_max_margin_weights():
    model = load(lately("Llama"))
    generator = torch.Generator().manual_seed(0)
    texts = torch.randint(0, VOCABULARY, (12, 9), generator=generator).tolist()
    best = max_margin(model, "L1H2", texts, confidence=0.3, queries=30)
    assert best.solved
    reading = Reading(model, IDS, "L1H2", support=best)
    found = reading.why(5)
    assert math.fsum(share.value for share in found.support) == pytest.approx(found.support_gap)
    view = SentenceView(**vars(reading.seen), sentence=reading.sentence)
    own = choices([view], reading.form)
    pairs = Pairs.of(reading.form, [view], own[own.position == 5].triples)
    logits = best.solution.logits(pairs)
    expected = logits[pairs.token == found.chosen] - logits[pairs.token == found.other]
    assert found.support_gap == pytest.approx(float(expected), rel=1e-6)
    with pytest.raises(ValueError, match="support must be the solved W_mm of L0H0; got one that is of L1H2"):
        why(model, IDS, "L0H0", support=best)


def test_arrays_are_explained_without_earlier_parts():
    model = planted()
    found = why(model, model.sentences[3], "L0H0", 3)
    assert found.chosen == 2
    assert found.keys == ()
    assert found.gap == pytest.approx(found.channels[0].content)
    assert "were not followed" in found.notes[0]


def test_words():
    said = sentence("[CLS]", "Ġplay", "ing", "Ġcards", "Ġthe", "ĠThe", "Ġx", "Ġx", special=(0,))
    assert said.place("playing") == 2
    assert said.place("cards") == said.place("CARDS") == said.place(3) == said.place("3") == 3
    assert said.place("the") == 4
    assert said.place(None) == 7
    with pytest.raises(ValueError, match="query 'x' occurs 2 times, at tokens 6, 7"):
        said.place("x")
    with pytest.raises(ValueError, match="query 'dog' is not in the text; its tokens are 0:"):
        said.place("dog")
    with pytest.raises(ValueError, match=r"position in 0\.\.7"):
        said.place(8)


@pytest.mark.parametrize(("asked", "message"), [
    ({"head": "L9H0"}, "head L9H0 does not exist; GPT2LMHeadModel has layers 0..2 with heads 0..3"),
    ({"head": "7"}, "head must be a name such as 'L3H7'"),
    ({"query": 0}, "has nothing to choose: it sees 1 token"),
    ({"over": 7}, "over must be another candidate of the query; token 7 is not seen by this query"),
    ({"query": 12}, "query must be a position"),
])  # fmt: skip
def test_bad_input(asked, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        why(load(gpt2()), IDS, **{"head": "L1H1", "query": 5, "upstream": False, **asked})


def test_the_page_holds_every_query_that_chooses(tmp_path):
    reading = Reading(load(gpt2()), IDS, "L1H1")
    page = reading.save_html(tmp_path / "why.html", 4).read_text()
    data = json.loads(page.partition('type="application/json">')[2].partition("</script>")[0])
    assert list(data["queries"]) == [str(k) for k in range(1, len(IDS))]
    assert data["first"] == 4
    shown = data["queries"]["4"]
    found = reading.why(4)
    assert sum(bar["value"] for bar in shown["panels"]["By part of the model, in the two keys"]) == pytest.approx(
        found.gap
    )
    assert "http" not in page.replace("http://www.w3.org", "")
    json.dumps(found.to_json(), allow_nan=False)
