"""Presets: the papers' data to the last bit, every one opens and says what to try."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from attsvm.app.problem import problem_to_data
from attsvm.data import EXAMPLES, starting_points

from .playground import Playground, broken_words

PAPER = {name for name in EXAMPLES if name != "two-inputs"} | {"descent-vs-normalized"}
SURPRISING = {"optimal-not-reached", "bystander", "lever", "out-of-reach", "optimizers"}
OPTIONS = {"loss-comparison": {"C": 10.0}}
DATA_OF = {"descent-vs-normalized": "multi-input", "optimizers": "two-inputs"}
REACHED = {
    "single-input-global": [0],
    "single-input-local": [1],
    "multi-input": [0, 0, 0],
    "joint-training-tight": [1, 1, 1],
    "joint-training-relaxed": [1, 1, 1],
    "loss-comparison": [1, 1],
    "optimal-not-reached": [1],
    "bystander": [0],
    "out-of-reach": [2],
}


def test_every_preset_opens_and_shows_the_papers_data(playground: Playground) -> None:
    names = playground.find('select[aria-label="preset"] option[value]:not([value=""], [value="text"])').evaluate_all(
        "all => all.map((option) => option.value)"
    )
    assert set(names) >= PAPER | SURPRISING
    for name in names:
        playground.load(name)
        state = playground.state
        assert state["preset"] == name
        assert broken_words(playground.text) == []
        assert playground.find("[data-item^=token]").count() == sum(
            len(each["tokens"]) for each in state["problem"]["inputs"]
        )
        advice = playground.find(".advice > span").first.inner_text()
        assert len(re.findall(r"[.?!](?:\s|$)", advice)) == 2, f"{name}: two sentences on what to try"
        if name in REACHED:
            assert playground.selected == REACHED[name]
        source = DATA_OF.get(name, name)
        if source in EXAMPLES:
            _same_as_python(state, source)


def _same_as_python(state: dict[str, Any], name: str) -> None:
    expected, shown = EXAMPLES[name](**OPTIONS.get(name, {})), problem_to_data(state["problem"])
    assert torch.equal(shown.tokens, expected.tokens)
    assert torch.equal(shown.queries, expected.queries)
    assert torch.equal(shown.labels, expected.labels)
    assert torch.equal(shown.values, expected.values)
    if expected.head is not None:
        assert shown.head is not None
        assert torch.equal(shown.head, expected.head)
    assert state["settings"]["trainHead"] == (expected.head is None)


@pytest.mark.parametrize("name", ["single-input-global", "single-input-local", "multi-input"])
def test_all_starts_of_the_paper_are_there(playground: Playground, name: str) -> None:
    playground.load(name)
    state = playground.state
    shown = {tuple(state["settings"]["start"]["p"])} | {tuple(each["start"]["p"]) for each in state["companions"]}
    assert shown == {tuple(start.flatten().tolist()) for start in starting_points(name).weights}


def test_joint_training_starts_where_the_paper_does(playground: Playground) -> None:
    for name in ("joint-training-tight", "joint-training-relaxed"):
        playground.load(name)
        settings, start = playground.state["settings"], starting_points(name)
        assert start.head is not None
        assert settings["start"]["p"] == start.weights[0].flatten().tolist()
        assert settings["startHead"] == start.head[0].tolist()


def test_a_preset_in_the_list_is_walked_through_with_the_arrows(playground: Playground) -> None:
    first = playground.state["preset"]
    playground.button("next preset").click()
    playground.settle()
    assert playground.state["preset"] != first
    playground.button("previous preset").click()
    playground.settle()
    assert playground.state["preset"] == first
