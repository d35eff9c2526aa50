"""The scene of a text against Python: samples, priority graphs, the limit, training, answers."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from attsvm.next_token import LimitPrediction, from_text, predict_limit, respond, train, verify

from .closeness import TOLERANCE, apart
from .page import MathsPage

STEPS = 100


def _random(seed: int) -> tuple[str, int]:
    random = np.random.default_rng(seed)
    return " ".join(random.choice(list("abcdefg")[: 3 + seed % 5], size=30 + 5 * seed)), 3 + seed % 4


TEXTS = {
    "animals": (
        "The cat saw the dog. The dog saw the cat. The cat saw the mouse. The mouse saw the cat. The dog saw the cat.",
        6,
    ),
    "one graph decides": ("a b a b c a b c a c b a", 3),
    "marks and capitals": (
        "It's late, isn't it? It is! Is it late? It isn\u2019t; it's early, _so_ early. It's 5 — no: 6!",
        9,
    ),
    **{f"random {seed}": _random(seed) for seed in range(5)},
}


@cache
def _limit(name: str) -> LimitPrediction:
    text, window = TEXTS[name]
    return predict_limit(from_text(text, window=window))


def _read(maths: MathsPage, name: str) -> dict[str, Any]:
    read: dict[str, Any] = maths.call("readText", *TEXTS[name])
    assert read["sentence"] is None
    return read


def _logits(limit: LimitPrediction, weights: torch.Tensor, graph: dict[str, Any]) -> list[float]:
    """Logits of the words of a graph; the embeddings are orthonormal, so that nothing else tells of the weights."""
    table = limit.data.embeddings
    return (table[graph["nodes"]] @ weights @ table[graph["last"]]).tolist()


@pytest.mark.parametrize("name", TEXTS)
def test_samples_and_graphs(maths: MathsPage, name: str) -> None:
    limit, read = _limit(name), _read(maths, name)
    assert (read["words"], read["count"], read["leftOut"]) == (
        list(limit.data.words), limit.data.n, limit.data.left_out,
    )  # fmt: skip
    assert [graph["last"] for graph in read["graphs"]] == limit.graph.last_tokens
    orders = maths.calls([("collapsedOrder", [graph]) for graph in read["graphs"]])
    for graph, order in zip(read["graphs"], orders, strict=True):
        last = graph["last"]
        assert [tuple(each) for each in graph["components"]] == limit.graph.components(last)
        assert {tuple(pair) for pair in graph["strict"]} == limit.graph.condensation(last)
        groups, arrows = limit.graph.collapsed(last)
        assert [[tuple(each) for each in group] for group in order["groups"]] == groups
        assert {tuple(pair) for pair in order["arrows"]} == arrows


@pytest.mark.parametrize("name", TEXTS)
def test_the_limit(maths: MathsPage, name: str) -> None:
    limit = _limit(name)
    for graph in _read(maths, name)["graphs"]:
        assert apart(graph["svm"], _logits(limit, limit.svm_component, graph)) < TOLERANCE
        assert apart(graph["finite"], _logits(limit, limit.finite_component, graph)) < TOLERANCE


@pytest.mark.parametrize("name", TEXTS)
def test_training_and_answers(maths: MathsPage, name: str) -> None:
    limit, read = _limit(name), _read(maths, name)
    zero = torch.zeros(limit.data.d, limit.data.d, dtype=torch.float64)
    run = train(limit, STEPS, initial={"finite": zero, "growing": zero})
    trained = maths.call("trainText", read, STEPS)
    for graph, growing, finite in zip(read["graphs"], trained["growing"], trained["finite"], strict=True):
        assert apart(np.add(growing, finite), _logits(limit, run.weights, graph)) < TOLERANCE
    compared = verify(limit, run)
    assert trained["distance"] == pytest.approx(compared.finite_distance, abs=1e-7)
    if not np.isnan(compared.cosine):
        assert trained["cosine"] == pytest.approx(compared.cosine, abs=TOLERANCE)
    random = np.random.default_rng(0)
    for length in (1, 3, 5, 8):
        prompt = [str(word) for word in random.choice(limit.data.words, size=length)]
        answer, shares = limit.answer(prompt), respond(limit.data, run.weights, prompt)
        found = maths.call("askText", read, trained, " ".join(prompt))
        predicted = dict.fromkeys(answer.dropped, 0.0) | dict(zip(answer.words, answer.probabilities, strict=True))
        assert {each["word"] for each in found["shares"]} == set(predicted) == set(shares)
        for each in found["shares"]:
            assert each["predicted"] == pytest.approx(predicted[each["word"]], abs=TOLERANCE)
            # Shares move as much as logits do, and these are known to a billionth of their size.
            size = max(1.0, float(torch.linalg.matrix_norm(run.weights)))
            assert each["trained"] == pytest.approx(shares[each["word"]], abs=TOLERANCE * size)
        assert [found[each] for each in ("seen", "byGraph", "decided")] == [
            answer.seen,
            answer.by_graph,
            answer.decided,
        ]


def test_the_comparison_can_fail(maths: MathsPage) -> None:
    """One step more is another layer."""
    read = _read(maths, "animals")
    one, other = (maths.call("trainText", read, steps)["growing"][0] for steps in (STEPS, STEPS + 1))
    assert apart(one, other) > 1e3 * TOLERANCE


@pytest.mark.parametrize(
    ("text", "window"),
    [(" \n", 3), ("a a a a a", 3), ("a b c", 3), ("a b c d e f g", 3), ("a a a a b b", 1), ("a a b b b c c", 1)],
)
def test_texts_without_a_relation_are_refused_by_both(maths: MathsPage, text: str, window: int) -> None:
    with pytest.raises(ValueError, match=r"empty|single different token|window"):
        from_text(text, window=window)
    assert maths.call("readText", text, window)["sentence"]


@pytest.mark.parametrize("text", ["a b " * 250, " ".join(f"w{k}" for k in range(70)) * 2])
def test_what_is_too_long_is_refused_in_words(maths: MathsPage, text: str) -> None:
    assert "at most" in maths.call("readText", text, 3)["sentence"]
