from __future__ import annotations

import copy
import re
from importlib.resources import files
from typing import Any

import pytest
import torch

import attsvm
from attsvm.app.problem import (
    LARGEST,
    MOST_COMPANIONS,
    MOST_INPUTS,
    MOST_TOKENS,
    PRESET_OPTIONS,
    data_to_problem,
    data_to_state,
    problem_to_data,
    selection,
)
from attsvm.data import EXAMPLES, TokenDataset, example, starting_points

PROBLEM: dict[str, Any] = {
    "kind": "matrix",
    "head": [0.0, 2.0],
    "inputs": [
        {"label": 1, "query": [1, 0], "tokens": [{"x": [1, 2], "score": None}, {"x": [3, 4], "score": None}]},
        {"label": -1, "query": [0, 1], "tokens": [{"x": [5, 6]}]},
    ],
}


def changed(*path: str | int, to: object) -> dict[str, Any]:
    problem = copy.deepcopy(PROBLEM)
    place: Any = problem
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return problem


def test_a_problem_becomes_a_ragged_data_set():
    data = problem_to_data(PROBLEM)
    assert data.tokens[0].tolist() == [[1, 2], [3, 4]]
    assert data.tokens[1, 0].tolist() == [5, 6]
    assert data.mask is not None
    assert data.mask.tolist() == [[True, True], [True, False]]
    assert data.queries.tolist() == [[1, 0], [0, 1]]
    assert attsvm.token_scores(data).tolist() == [[4, 8], [-12, -torch.inf]]


def test_given_scores_count_instead_of_the_head():
    problem = changed("inputs", 0, "tokens", 1, "score", to=-3)
    problem["inputs"][1]["tokens"][0]["score"] = 7
    assert attsvm.token_scores(problem_to_data(problem)).tolist() == [[4, -3], [-7, -torch.inf]]


def test_a_prompt_has_no_queries():
    data = problem_to_data(changed("kind", to="prompt"))
    assert data.dq == 1
    assert data.queries.tolist() == [[1], [1]]


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_come_back_the_same(name):
    data = example(name)
    back = problem_to_data(data_to_problem(data))
    assert torch.equal(back.tokens, data.tokens)
    assert torch.equal(back.queries, data.queries)
    assert torch.equal(back.labels, data.labels)
    if data.head is not None:
        assert torch.equal(attsvm.token_scores(back), attsvm.token_scores(data))


def test_causal_data_show_each_prefix_as_an_input():
    tokens = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]], dtype=torch.float64)
    data = TokenDataset.causal(tokens, [[1, 1, -1]], head=torch.tensor([1.0, 0.0]).double())
    back = problem_to_data(data_to_problem(data))
    assert [len(each["tokens"]) for each in data_to_problem(data)["inputs"]] == [1, 2, 3]
    assert torch.equal(attsvm.token_scores(back), attsvm.token_scores(data))
    assert torch.equal(back.queries, data.queries)


@pytest.mark.parametrize(("problem", "words"), [
    (None, ("problem must be an object",)),
    ([], ("problem must be an object",)),
    ({}, ("problem must have an entry 'kind'",)),
    (changed("kind", to="cube"), ("kind", "'prompt' or 'matrix'", "cube")),
    (changed("kind", to=["prompt"]), ("kind",)),
    (changed("head", to=[1]), ("head", "two numbers")),
    (changed("head", to="ab"), ("head", "two numbers")),
    (changed("head", 0, to=float("nan")), ("head[0]", "finite", "nan")),
    (changed("inputs", to=[]), ("inputs", "1 to 8", "got 0")),
    (changed("inputs", to={"0": 1}), ("inputs must be a list",)),
    (changed("inputs", to=[PROBLEM["inputs"][0]] * 9), ("1 to 8", "got 9")),
    (changed("inputs", 0, to=3), ("inputs[0] must be an object",)),
    (changed("inputs", 1, "label", to=0), ("inputs[1].label", "1 or -1", "0")),
    (changed("inputs", 1, "label", to=True), ("inputs[1].label", "True")),
    (changed("inputs", 1, "label", to=[1]), ("inputs[1].label",)),
    (changed("inputs", 1, "query", to=None), ("inputs[1].query", "None")),
    (changed("inputs", 0, "tokens", to=[]), ("inputs[0].tokens", "1 to 12")),
    (changed("inputs", 0, "tokens", to=[{"x": [0, 0]}] * 13), ("1 to 12", "got 13")),
    (changed("inputs", 0, "tokens", 1, to="x"), ("inputs[0].tokens[1] must be an object",)),
    (changed("inputs", 0, "tokens", 1, "x", to=[1, 2, 3]), ("tokens[1].x", "two numbers")),
    (changed("inputs", 0, "tokens", 1, "x", to=[1, "2"]), ("tokens[1].x[1]", "number", "'2'")),
    (changed("inputs", 0, "tokens", 1, "x", to=[1, True]), ("tokens[1].x[1]", "True")),
    (changed("inputs", 0, "tokens", 1, "x", to=[1, float("inf")]), ("tokens[1].x[1]", "inf")),
    (changed("inputs", 0, "tokens", 1, "x", to=[1, 1001]), ("tokens[1].x[1]", "within 1000", "1001")),
    (changed("inputs", 0, "tokens", 1, "x", to=[1, 10**5000]), ("tokens[1].x[1]", "twenty digits")),
    (changed("inputs", 0, "tokens", 1, "score", to="high"), ("tokens[1].score", "high")),
])  # fmt: skip
def test_bad_problems_are_refused_in_a_sentence(problem, words):
    with pytest.raises(ValueError, match=re.escape(words[0])) as caught:
        problem_to_data(problem)
    for word in words:
        assert word in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(("data", "word"), [
    (attsvm.data.random_sphere(n=2, T=3, d=2, batch=4, seed=0), "batch"),
    (attsvm.data.random_sphere(n=2, T=3, d=3, seed=0), "plane"),
    (attsvm.data.random_sphere(n=9, T=3, d=2, seed=0), "9 of 3"),
    (attsvm.data.random_sphere(n=2, T=13, d=2, seed=0), "2 of 13"),
    (TokenDataset(torch.ones(1, 2, 2), torch.full((1, 1), 2.0), [1]), "queries must all be 1"),
    (TokenDataset(torch.full((1, 2, 2), 2e3), torch.ones(1, 1), [1]), "tokens must lie within 1000"),
    (TokenDataset(torch.ones(1, 2, 2), torch.ones(1, 1), [1], values=torch.ones(1, 2, 3)), "must have a head"),
])  # fmt: skip
def test_data_that_do_not_fit_the_page(data, word):
    with pytest.raises(ValueError, match=word):
        data_to_problem(data)


@pytest.mark.parametrize(("selected", "word"), [
    ("00", "list of 2"), ([0], "list of 2"), ([0, 1], r"selected\[1\]"), ([2, 0], "0..1"), ([-1, 0], "-1"),
    ([True, 0], "True"), ([0.0, 0], "0.0"), ([None, 0], "None"),
])  # fmt: skip
def test_bad_selections(selected, word):
    with pytest.raises(ValueError, match=word):
        selection(selected, problem_to_data(PROBLEM))


def test_the_limits_are_those_of_the_page():
    script = (files("attsvm.app") / "playground" / "state" / "limits.js").read_text(encoding="utf-8")
    limits = {name: float(number) for name, number in re.findall(r"(\w+): (\d+),", script)}
    assert (limits["inputs"], limits["tokens"], limits["companions"]) == (MOST_INPUTS, MOST_TOKENS, MOST_COMPANIONS)
    assert limits["coordinate"] == limits["score"] == LARGEST


def test_the_papers_starting_points_run_side_by_side():
    state = data_to_state(example("multi-input"), starting_points("multi-input"))
    assert state["settings"]["start"] == {"p": [1.0, 0.0]}
    assert [each["start"]["p"][0] for each in state["companions"]] == [0.5, 0.0, -0.5, -1.0, -1.5]
    assert state["settings"]["trainHead"] is False


def test_a_head_that_is_not_there_is_trained():
    state = data_to_state(example("joint-training-tight"), starting_points("joint-training-tight"))
    assert state["settings"] == {
        "trained": "p",
        "trainHead": True,
        "start": {"p": [0.0, -1.0]},
        "startHead": [-1.0, 0.0],
    }


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_keep_their_name_and_leave_their_scene_to_the_page(name):
    state = data_to_state(example(name, **PRESET_OPTIONS.get(name, {})))
    assert state["preset"] == name
    assert not state.keys() & {"companions", "view"}
    script = (files("attsvm.app") / "playground" / "presets.js").read_text(encoding="utf-8")
    assert f'name: "{name}"' in script


def test_other_data_and_other_starts_have_no_preset():
    assert data_to_state(example("loss-comparison"))["preset"] is None  # C = 1; the advice speaks of C = 10
    changed = example("two-inputs")
    changed = TokenDataset(changed.tokens + 0.01, changed.queries, changed.labels, head=changed.head)
    assert data_to_state(changed)["preset"] is None
    assert data_to_state(example("multi-input"), starting_points("multi-input"))["preset"] is None


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (("two-inputs",), "data must be a TokenDataset.*'two-inputs'"),
        ((example("two-inputs"), "zeros"), "starting must be StartingPoints"),
    ],
)
def test_what_is_no_data_set_is_refused(given, word):
    with pytest.raises(ValueError, match=word):
        data_to_state(*given)
