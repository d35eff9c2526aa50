"""Edits of a head: the smallest change by another solver, demands that hold in the edited model, clashes, bad input."""

from __future__ import annotations

import cvxpy
import pytest
import torch

from attsvm.heads import edit, load, why
from attsvm.norms import Nuclear
from heads.loading.small import HALF, IDS, VOCABULARY, albert, bert, big_code, gpt2, lately, whisper
from heads.planted import planted

MODELS = {
    "bert": bert,
    "gpt2, fused": gpt2,
    "fused, one key head": lambda: big_code(True),
    "fused, by head": lambda: big_code(False),
    "whisper": whisper,
    "llama": lambda: lately("Llama"),
    "half turned, biases": lambda: lately("Phi", **HALF),
    "neighbours": lambda: lately("GPTJ", rotary_dim=4),
    "t5": lambda: lately("T5", d_kv=6, d_ff=32),
    "bloom": lambda: lately("Bloom"),
}
OTHERS = torch.randint(0, VOCABULARY, (4, 7), generator=torch.Generator().manual_seed(3)).tolist()


def all_choices(model, texts, layer, head):
    found = {}
    for text in texts:
        (sentence,) = model.encode([text])
        attention = model.states(sentence, [layer]).attention[0, head]
        found |= {(tuple(text), query): int(attention[query].argmax()) for query in range(len(text))}
    return found


@pytest.mark.parametrize("name", MODELS)
def test_demands_hold_in_the_edited_model_and_kept_choices_stay(name):
    model = load(MODELS[name]())
    before = all_choices(model, [IDS, *OTHERS], 1, 2)
    # The chosen tokens are given to nobody again: the second and the first token instead.
    demands = [(IDS, query, 1 if before[tuple(IDS), query] != 1 else 2) for query in (4, 6)]
    found = edit(model, "L1H2", demands, keep=OTHERS)
    assert found.possible, found.sentence
    edited = found.apply(model)
    after = all_choices(edited, [IDS, *OTHERS], 1, 2)
    gaps = []
    for text, query, token in demands:
        assert after[tuple(text), query] == token
        gaps.append(why(edited, text, "L1H2", query, upstream=False).gap)
    assert min(gaps) == pytest.approx(1.0, rel=2e-3)  # at least one binds
    changed = {place for place in before if before[place] != after[place]} - {(tuple(IDS), k) for k in range(len(IDS))}
    assert len(changed) <= len(found.moved)
    for head in (0, 1, 3):  # the other heads of the layer do not see it
        assert all_choices(edited, [IDS], 1, head) == all_choices(model, [IDS], 1, head)


def test_the_change_is_the_smallest():
    model = load(lately("Llama"))
    found = edit(model, "L1H1", [(IDS, 5, 2), (OTHERS[0], 6, 3)], keep=[OTHERS[1]])
    change = cvxpy.Variable(found.solution.weights.shape)
    rows = []
    for choice, margin in [*((c, 1.0) for c in found.demands), *((c, None) for c in found.kept)]:
        seen = model.states(choice.sentence, [1]).layer(0)
        form = model.weights(1, 1)
        logits = form.logits(seen)[choice.query]
        others = [t for t in range(len(choice.sentence)) if bool(seen.allowed[choice.query, t]) and t != choice.token]
        gap = float(logits[choice.token] - logits[others].max())
        asked = margin or min(0.1, gap / 2)
        # Turning the query by minus its angle and the key by its own is turning the key by the distance.
        keys = form.turned(seen.keys @ form.key, seen.phases)
        keys = form.turned(keys, seen.phases[choice.query].conj().expand_as(seen.phases))
        query = seen.queries[choice.query].numpy()
        rows += [
            float(logits[choice.token] - logits[t]) + (keys[choice.token] - keys[t]).numpy() @ change @ query >= asked
            for t in others
        ]
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.norm(change, "fro")), rows)
    problem.solve(solver="CLARABEL")
    assert problem.status == "optimal"
    assert float(found.solution.weights.norm()) == pytest.approx(problem.value, rel=1e-5)
    low = edit(model, "L1H1", [(IDS, 5, 2), (OTHERS[0], 6, 3)], norm=Nuclear())
    assert low.possible
    assert low.rank <= edit(model, "L1H1", [(IDS, 5, 2), (OTHERS[0], 6, 3)]).rank


def test_demands_that_clash_are_named():
    model = load(bert())
    found = edit(model, "L2H1", [(IDS, 4, 1), (OTHERS[0], 3, 2), (IDS, 4, 6)], keep=[OTHERS[1]])
    assert not found.possible
    assert bool(found.solution.infeasible)
    assert {(choice.query, choice.token) for choice in found.clash} == {(4, 1), (4, 6)}
    assert "can do this, because these demands clash: " in found.sentence
    with pytest.raises(ValueError, match="these demands clash"):
        found.apply(model)


def test_a_kept_choice_that_stands_in_the_way_has_to_move():
    """In layer 0 of Llama a query knows its own token only: the same token, with the same keys, asks twice."""
    model = load(lately("Llama"))
    one, other = [5, 9, 7], [5, 9, 7, 30]  # the third token sees the same in both
    now = all_choices(model, [one], 0, 0)[tuple(one), 2]
    found = edit(model, "L0H0", [(one, 2, (now + 1) % 3)], keep=[other])
    assert found.possible
    assert [(choice.query, choice.token) for choice in found.moved] == [(2, now)]
    assert "1 had to move" in found.sentence


def test_an_edited_model_is_saved_and_loaded(tmp_path):
    model = load(lately("Llama"))
    found = edit(model, "L1H2", [(IDS, 5, 1)])
    folder = found.save(model, tmp_path / "edited")
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    again = load(folder)
    assert torch.equal(again.weights(1, 2).query, found.apply(model).weights(1, 2).query)
    assert why(again, IDS, "L1H2", 5).chosen == 1
    with pytest.raises(ValueError, match="folder must be new or empty"):
        found.save(model, folder)


@pytest.mark.parametrize(("make", "demands", "message"), [
    (gpt2, [], "demands must hold at least one"),
    (gpt2, [(IDS, 2)], r"demands\[0\] is"),
    (gpt2, [(IDS, 4, 2), (IDS, 2, 5)], r"demands\[1\]: .* this query does not see that token"),
    (gpt2, [(IDS, 0, 0)], "this query sees one token only"),
    (gpt2, [(IDS, 4, 12)], r"demands\[0\]: token must be a position in 0..7"),
    (albert, [(IDS, 4, 2)], "shares the weights of several layers"),
    (lambda: lately("Qwen3"), [(IDS, 4, 2)], "normalizes queries inside the head"),
])  # fmt: skip
def test_bad_input(make, demands, message):
    with pytest.raises(ValueError, match=message):
        edit(load(make()), "L0H1", demands)


def test_arrays_cannot_be_edited():
    with pytest.raises(ValueError, match="was not loaded from weights"):
        edit(planted(), "L0H0", [([1, 2], 1, 0)])
