"""Scores, local optimality and the list of locally optimal selections agree with Python."""

from __future__ import annotations

import pytest

from app.vector_problems import case_names

from .closeness import TOLERANCE, apart

pytestmark = pytest.mark.slow  # the vectors take some seconds to write

CASES = case_names()


@pytest.mark.parametrize("name", CASES)
def test_same_scores(maths, vectors, name):
    case = vectors[name]
    mine, best = maths.calls([("scores", [case["problem"]]), ("optimalTokens", [case["problem"]])])
    for own, theirs in zip(mine, case["scores"], strict=True):
        assert apart(own, theirs) < TOLERANCE
    assert best["tokens"] == case["optimal"]
    assert not any(best["tied"])


@pytest.mark.parametrize("name", CASES)
def test_same_local_optimality(maths, vectors, name):
    case = vectors[name]
    wanted = [each for each in case["optimality"] if not each["undecided"]]
    assert wanted
    answers = maths.calls(
        [("isLocallyOptimal", [case["problem"], each["selected"], {"norm": each["norm"]}]) for each in wanted]
    )
    for mine, theirs in zip(answers, wanted, strict=True):
        assert mine["answer"] == theirs["answer"], theirs
        assert mine["violations"] == theirs["violations"], theirs


@pytest.mark.parametrize("name", CASES)
def test_same_enumeration(maths, vectors, name):
    case = vectors[name]
    wanted = case["enumerations"]
    answers = maths.calls([("localOptima", [case["problem"], {"norm": each["norm"]}]) for each in wanted])
    for mine, theirs in zip(answers, wanted, strict=True):
        assert theirs["exhaustive"]
        assert mine["complete"]
        assert mine["tried"] <= theirs["tried"]
        assert [each["selected"] for each in mine["selections"]] == theirs["selections"]
        assert apart([each["norm"] for each in mine["selections"]], theirs["norms"]) < TOLERANCE
        assert [each["isGlobal"] for each in mine["selections"]] == theirs["isGlobal"]


def test_a_limit_is_said(maths, vectors):
    """Cut short, the list says that it is not complete; the optimal selection is still looked at first."""
    problem = vectors["multi-input"]["problem"]
    found = maths.call("localOptima", problem, {"limit": 1})
    assert found["tried"] == 1
    assert not found["complete"]
    assert [each["selected"] for each in found["selections"]] == [[0, 0, 0]]


def test_some_selections_are_locally_optimal_and_some_are_not(vectors):
    answers = [each["answer"] for case in vectors.values() for each in case["optimality"]]
    print(f"{sum(answers)} of {len(answers)} selections are locally optimal")
    assert 10 < sum(answers) < len(answers) - 10
