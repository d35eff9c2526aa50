"""Positions where mathematics gives out are drawn and said: no exception, no NaN."""

from __future__ import annotations

from typing import Any

import pytest

from .playground import Playground, broken_words


def _state(inputs: list[dict[str, Any]], **settings: Any) -> dict[str, Any]:
    return {"problem": {"head": [0, 1], "inputs": inputs}, "settings": {"trained": "W", "steps": 200, **settings}}


def _input(
    *places: tuple[float, float], query: tuple[float, float] = (1, 0), scores: tuple[float, ...] = ()
) -> dict[str, Any]:
    tokens = [{"x": list(x), "score": scores[t] if scores else None} for t, x in enumerate(places)]
    return {"label": 1, "query": list(query), "tokens": tokens}


CASES = {
    "twins": (_state([_input((0.5, 0.5), (0.5, 0.5), (0, 0))]), "lie on top of each other"),
    "zero query": (_state([_input((1, 0), (0, 1), query=(0, 0))]), "query of input 0 is zero"),
    "one token": (_state([_input((1, 0))]), "descent does not move"),
    "tie": (_state([_input((1, 0.5), (-1, 0.5), (0, 0))]), "tie for the best score"),
    "all the same score": (_state([_input((1, 0), (0, 1), (-1, 0), scores=(1, 1, 1))], trained="p"), "score the same"),
    "all at the origin": (_state([_input((0, 0), (0, 0))]), "lie on top of each other"),
    "far away": (_state([_input((1000, 1000), (-1000, 999), (0.001, 0))]), "descent"),
    "saddle": (_state([_input((1, 0), (0, 1))], trained="KQ", start={"K": [[0, 0], [0, 0]]}), "descent does not move"),
    "best inside": (
        _state([_input((0, 0), (1, 0), (-1, 1), (-1, -1), scores=(1, 0, 0, 0.1))], trained="p"),
        "would score best, but nothing separates it",
    ),
    "wild step": (_state([_input((1, 0), (0, 1))], optimizer="gradient", loss="exponential", stepSize=100), "descent"),
    "zero head": ({"problem": {"head": [0, 0], "inputs": [_input((1, 0), (0, 1))]}}, "score the same"),
}  # fmt: skip


_TRAINING = """([trained, optimizer]) => { const root = document.getElementById('playground').shadowRoot;
for (const value of [trained, optimizer]) root.querySelector(`.choices button[data-value="${value}"]`).click(); }"""


@pytest.mark.parametrize("name", CASES)
def test_said_and_drawn(playground: Playground, name: str) -> None:
    state, words = CASES[name]
    assert playground.page.evaluate("(state) => handle.setState(state)", state) is None
    playground.settle()
    assert words in playground.words.lower()
    markup = playground.find(".plane").evaluate("svg => svg.outerHTML")
    assert broken_words(markup) == []
    assert broken_words(playground.text) == []
    for trained in ("p", "KQ", "W"):
        for optimizer in ("sign", "spectral", "normalized"):
            playground.page.evaluate(_TRAINING, [trained, optimizer])
            playground.settle()
            markup = playground.find(".plane").evaluate("svg => svg.outerHTML")
            assert broken_words(markup) == []
            assert broken_words(playground.text) == []


def test_a_selection_that_nothing_separates_is_shown_with_its_conflict(playground: Playground) -> None:
    playground.load("out-of-reach")
    playground.page.evaluate("() => { const state = handle.getState(); state.shown = [0]; handle.setState(state); }")
    playground.settle()
    assert "infeasible" in playground.find(".plane").evaluate("svg => svg.textContent")
    assert "the dashed pulls cancel" in playground.words
    assert playground.find('.plane line[stroke-dasharray="6 4"]').count() >= 2
    assert playground.find(".cosine").inner_text() == "\N{EN DASH}"


@pytest.mark.parametrize("name", ["twins", "zero query", "all at the origin"])
def test_pulls_are_said_to_cancel_only_where_some_are_drawn(playground: Playground, name: str) -> None:
    playground.page.evaluate("(state) => handle.setState(state)", CASES[name][0])
    playground.settle()
    assert "dashed pulls" not in playground.words


def test_no_theorem_is_claimed_for_a_selection_that_is_not_locally_optimal(playground: Playground) -> None:
    # Token 1 is held by token 2, which scores the same in the global variant and less in the local one.
    for preset, claimed in (("single-input-global", False), ("single-input-local", True)):
        playground.load(preset)
        playground.page.evaluate("handle.setState({ ...handle.getState(), shown: [1] })")
        playground.settle()
        text = playground.find(".readout").inner_text()
        assert ("proved from a suitable start" in text) is claimed
        assert ("No theorem promises this direction" in text) is not claimed


def test_one_step_is_one_step(playground: Playground) -> None:
    playground.page.evaluate("(state) => handle.setState(state)", _state([_input((1, 0), (0, 1))], steps=1))
    playground.settle()
    assert "after 1 step attention" in playground.words.lower()


def test_dragging_one_token_onto_another(playground: Playground) -> None:
    target = playground.centre("token-0-0")
    own = playground.centre("token-0-1")
    playground.drag("token-0-1", (target[0] - own[0], target[1] - own[1]))
    first, second = (playground.state["problem"]["inputs"][0]["tokens"][t]["x"] for t in (0, 1))
    if first == second:
        assert "on top of each other" in playground.words
    assert broken_words(playground.text) == []
