from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attsvm.app.certify import NORMS, certify
from attsvm.app.problem import LARGEST, data_to_problem
from attsvm.data import example
from attsvm.svm import Status


def asked(name: str, selected: list[int], **more: object) -> dict[str, Any]:
    return certify({"problem": data_to_problem(example(name)), "selected": selected, **more})


def test_the_closed_form_of_the_single_input():
    answer = asked("single-input-local", [0])
    assert answer["status"] == "solved"
    assert answer["weights"] == pytest.approx([-10 / 101, 100 / 101], abs=1e-12)
    assert answer["relative_gap"] < 1e-12
    assert answer["min_margin"] == pytest.approx(1, abs=1e-12)
    assert answer["locally_optimal"] is answer["optimal"] is True


@pytest.mark.parametrize(("name", "local"), [("single-input-local", True), ("single-input-global", False)])
def test_the_second_token_is_locally_optimal_unless_its_neighbour_ties(name, local):
    answer = asked(name, [1])
    assert answer["weights"] == pytest.approx([1, 0], abs=1e-12)
    assert answer["locally_optimal"] is local
    assert answer["optimal"] is False
    assert ("token 2 of input 0" in answer["sentence"]) is not local


@pytest.mark.parametrize("norm", ["frobenius", "nuclear", "spectral", "max-entry"])
def test_every_norm_the_page_speaks_of(norm):
    answer = asked("two-inputs", [0, 0], norm=norm)
    assert (answer["status"], answer["norm"]) == ("solved", norm)
    assert len(answer["weights"]) == 4
    assert answer["relative_gap"] < 1e-8


def test_no_solution_is_plain_json_too():
    tokens = [{"x": [0, 0]}, {"x": [1, 0]}, {"x": [-1, 0]}]
    problem = {"kind": "prompt", "head": [0, 1], "inputs": [{"label": 1, "query": None, "tokens": tokens}]}
    answer = certify({"problem": problem, "selected": [0]})
    assert answer["status"] == "infeasible"
    assert answer["weights"] is None
    assert answer["locally_optimal"] is False
    json.dumps(answer, allow_nan=False)


def test_one_token_an_input_leaves_nothing_to_separate():
    problem = {"kind": "prompt", "head": [0, 1], "inputs": [{"label": 1, "query": None, "tokens": [{"x": [3, 4]}]}]}
    answer = certify({"problem": problem, "selected": [0]})
    assert (answer["status"], answer["weights"], answer["min_margin"]) == ("no_rows", [0, 0], None)
    json.dumps(answer, allow_nan=False)


@pytest.mark.parametrize(("request_", "word"), [
    (None, "object"), ([1], "object; got .1."), ({}, "problem"), ({"problem": {}}, "selected"),
    ({"problem": {}, "selected": [], "norm": "cosy"}, "cosy"), ({"problem": {}, "selected": [], "norm": {}}, "got {}"),
    ({"problem": {}, "selected": [], "norm": "x" * 10_000}, r"got 'x{56}\.\.\.$"),
])  # fmt: skip
def test_bad_requests(request_, word):
    with pytest.raises(ValueError, match=word):
        certify(request_)


# Few places, so that tokens lie on top of each other, queries vanish and scores tie; and the ends of what is allowed.
NUMBERS = st.sampled_from([0, 0, 0, 1, -1, 2, 1e-9, -1e-300, LARGEST, -LARGEST])
POINTS = st.lists(NUMBERS, min_size=2, max_size=2)
TOKENS = st.fixed_dictionaries({"x": POINTS, "score": st.none() | NUMBERS})
INPUTS = st.fixed_dictionaries(
    {"label": st.sampled_from([1, -1]), "query": POINTS, "tokens": st.lists(TOKENS, min_size=1, max_size=4)}
)
PROBLEMS = st.fixed_dictionaries(
    {"kind": st.sampled_from(["prompt", "matrix"]), "head": POINTS, "inputs": st.lists(INPUTS, min_size=1, max_size=3)}
)


@given(PROBLEMS, st.sampled_from(sorted(NORMS)), st.data())
def test_degenerate_problems_are_answered(problem, norm, draw):
    selected = [draw.draw(st.integers(0, len(each["tokens"]) - 1)) for each in problem["inputs"]]
    answer = certify({"problem": problem, "selected": selected, "norm": norm})
    json.dumps(answer, allow_nan=False)
    assert answer["status"] in [status.name.lower() for status in Status]
    assert (answer["weights"] is None) <= answer["status"].endswith("infeasible")
    assert not answer["locally_optimal"] or answer["status"] in ("solved", "no_rows")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.sampled_from(["kind", "head", "x"]), inside),
    max_leaves=8,
)


@given(
    JSON, st.sampled_from(["problem", "kind", "head", "inputs", "tokens", "x", "label", "query", "selected", "norm"])
)
def test_any_json_in_any_place_is_answered_or_refused(value, place):
    problem = data_to_problem(example("trajectories"))
    question: dict[str, Any] = {"problem": problem, "selected": [0, 0], "norm": "frobenius"}
    one = problem["inputs"][1]
    for where in (question, problem, one, one["tokens"][0]):
        if place in where:
            where[place] = value
    said: object
    try:
        said = certify(question)
    except ValueError as error:
        said = str(error)
    assert 10 < len(json.dumps(said, allow_nan=False)) < 1000


def test_a_run_is_measured_by_hand():
    """One input, tokens (0, 1), (1, 0) and 0 with weights 2 (1, 1/2): logits 1, 2, 0."""
    tokens = [{"x": [0, 1]}, {"x": [1, 0]}, {"x": [0, 0]}]
    problem = {"kind": "prompt", "head": [0, 1], "inputs": [{"label": 1, "query": None, "tokens": tokens}]}
    run = certify({"problem": problem, "selected": [1], "weights": [2, 1]})["run"]
    assert run["selected"] == [1]
    assert run["margins"] == pytest.approx([1.0])
    assert run["size"] == pytest.approx(5**0.5)
    assert run["margin"] == pytest.approx(1 / 5**0.5)
    # The best direction minimises |w| with w1 - w2 >= 1 and w1 >= 1: it is (1, 0), of margin 1.
    assert run["efficiency"] == pytest.approx(1 / 5**0.5)
    assert run["cosine"] == pytest.approx(2 / 5**0.5)
    still = certify({"problem": problem, "selected": [1], "weights": [0, 0]})["run"]
    assert (still["margin"], still["efficiency"], still["cosine"]) == (None, None, None)
    assert certify({"problem": problem, "selected": [1]})["run"] is None
    json.dumps(run, allow_nan=False)


@pytest.mark.parametrize("weights", ["2", [1], [1, 2, 3], [1, True], [1, None], [1e301, 0], [10**400, 0], {}])
def test_weights_that_are_none_are_refused(weights):
    with pytest.raises(ValueError, match=r"weights(\[.\])? must be"):
        asked("single-input-local", [0], weights=weights)
