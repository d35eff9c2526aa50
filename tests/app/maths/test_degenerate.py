"""Degenerate positions: two tokens on top of each other, zero queries, one token, ties, no tokens, broken numbers."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

PROBLEMS = 2000


@pytest.mark.slow
def test_nothing_throws_and_every_number_is_finite(maths):
    script = (Path(__file__).parent / "degenerate.js").read_text(encoding="utf-8")
    found = maths.page.evaluate(script.strip().rstrip(";"), [11, PROBLEMS])
    print(f"{found['problems']} problems; {found['statuses']}")
    assert found["problems"] == PROBLEMS
    assert found["wrong"] == []
    counts = found["statuses"]
    for status in ("solved", "infeasible", "degenerate"):
        assert counts[f"maxMargin {status}"] > 100, "the problems do not reach every status"


def matrix(*inputs):
    return {"kind": "matrix", "head": [1.0, 0.5], "inputs": list(inputs)}


def one_input(tokens, query=(1.0, 0.0), label=1):
    return {"label": label, "query": list(query), "tokens": [{"x": list(x), "score": None} for x in tokens]}


def test_two_tokens_on_top_of_each_other(maths):
    found = maths.call("maxMargin", matrix(one_input([(1, 2), (1, 2), (0, 0)])), [0], {})
    assert found["status"] == "infeasible"
    assert found["sentence"] == (
        "Infeasible: tokens 0 and 1 of input 0 lie on top of each other, so no weights tell them apart."
    )
    assert found["weights"] is None
    assert found["duals"] == [[0, 1, 0]]


def tilted(e, kind):
    """Tokens (0, 0), (-1, -e), (1, -e): (0, 1/e) separates the first for every e > 0, and nothing does for e = 0."""
    return {**matrix(one_input([(0, 0), (-1, -e), (1, -e)], query=(0.7, 0.1))), "kind": kind}


@pytest.mark.parametrize("kind", ["prompt", "matrix"])
def test_infeasible_is_said_only_with_an_exact_proof(maths, kind):
    for norm in ("frobenius", "nuclear", "spectral", "max-entry"):
        for power in range(30, 60, 3):
            found = maths.call("maxMargin", tilted(2.0**-power, kind), [0], {"norm": norm})
            assert found["status"] in ("solved", "not found", "degenerate"), (norm, power)
        assert found["status"] == "not found"
        assert found["sentence"].startswith("No separating weights found: any would have a norm of about ")
        assert maths.call("maxMargin", tilted(0.0, kind), [0], {"norm": norm})["status"] == "infeasible"


def test_infeasible_is_what_exact_arithmetic_says(maths):
    """Random problems in the plane, on grids and nearly so, against the library's exact proofs."""
    counts = dict.fromkeys(("infeasible", "not found", "solved", "degenerate"), 0)
    generator = np.random.default_rng()  # fresh numbers every time; a failure shows the problem
    tokens = generator.integers(-2, 3, (300, 2, 4, 2)) + generator.choice([0.0, 1e-13], (300, 2, 4, 2))
    queries = generator.integers(-1, 3, (300, 2, 2)) + generator.choice([0.0, 0.1], (300, 2, 2))
    problems = [matrix(*map(one_input, *each)) for each in zip(tokens.tolist(), queries.tolist(), strict=True)]
    answers = maths.calls([("maxMargin", [given, [0, 0], {}]) for given in problems])
    for found, given, x, z in zip(answers, problems, tokens, queries, strict=True):
        counts[found["status"]] += 1
        if found["status"] in ("infeasible", "solved"):
            assert exactly_feasible(x, z) == (found["status"] == "solved"), f"{found['status']}: {given}"
    print(counts)
    assert counts["infeasible"] > 20
    assert counts["solved"] > 20


def exactly_feasible(tokens, queries):
    """Whether some W separates the first token of each input, by Fourier-Motzkin elimination in fractions."""
    rows = []
    for x, z in zip(tokens.tolist(), queries.tolist(), strict=True):
        for other in x[1:]:
            difference = [Fraction(a) - Fraction(b) for a, b in zip(x[0], other, strict=True)]
            rows.append(tuple(d * Fraction(q) for d in difference for q in z))
    for column in range(4):  # <a, W> > 0 for all rows: combine the rows until no coordinate is left
        up, down = ([a for a in rows if sign * a[column] > 0] for sign in (1, -1))
        rows = [a for a in rows if a[column] == 0]
        rows += [tuple(-b[column] * x + a[column] * y for x, y in zip(a, b, strict=True)) for a in up for b in down]
    return not rows


def test_zero_query(maths):
    problem = matrix(one_input([(1, 2), (0, 0)], query=(0, 0)))
    found = maths.call("maxMargin", problem, [0], {"norm": "nuclear"})
    assert found["status"] == "infeasible"
    assert "query of input 0 is zero" in found["sentence"]
    settings = {"trained": "W", "optimizer": "normalized", "loss": "logistic", "stepSize": 0.1, "steps": 50}
    run = maths.call("train", problem, {**settings, "start": {"W": [[1, 2], [3, 4]]}}, [0, 50])
    assert run["stalled"]
    assert run["weights"] == [[1, 2, 3, 4], [1, 2, 3, 4]]
    assert "exactly zero" in run["notes"][0]


def test_one_token_an_input(maths):
    found = maths.call("maxMargin", matrix(one_input([(1, 2)]), one_input([(0, 1)])), [0, 0], {})
    assert found["status"] == "degenerate"
    assert found["weights"] == [0, 0, 0, 0]
    assert found["gap"] == 0
    assert "nothing to separate" in found["sentence"]
    assert maths.call("isLocallyOptimal", matrix(one_input([(1, 2)])), [0], {})["answer"]


def test_tied_scores(maths):
    problem = {**matrix(one_input([(1, 1), (1, -1), (0, 0)])), "head": [1.0, 0.0]}
    assert maths.call("optimalTokens", problem) == {"tokens": [0], "tied": [True]}
    verdict = maths.call("isLocallyOptimal", problem, [0], {})
    assert not verdict["answer"]
    assert verdict["violations"] == [[0, 1]]


def test_factors_that_start_at_the_saddle(maths):
    zeros = [[0, 0], [0, 0]]
    settings = {"trained": "KQ", "optimizer": "normalized", "loss": "logistic", "stepSize": 0.1, "steps": 5}
    run = maths.call("train", matrix(one_input([(1, 2), (0, 0)])), {**settings, "start": {"K": zeros, "Q": zeros}}, [])
    assert run["stalled"]
    assert "saddle" in run["notes"][0]


def test_steps_that_leave_the_range_are_not_taken(maths):
    settings = {"trained": "W", "optimizer": "normalized", "loss": "linear", "stepSize": 1e29, "steps": 5}
    problem = matrix(one_input([(1, 2), (0, 0)]))
    far = {**settings, "start": {"W": [[1e30, 0], [0, 0]]}, "steps": 400}
    assert not maths.call("train", problem, far, [])["overflowed"]
    given = {"kind": "matrix", "head": [1e30, 0], "inputs": [one_input([(1e30, 0), (0, 0)])]}
    run = maths.call("train", given, {**settings, "optimizer": "gradient", "start": {"W": [[0, 0], [0, 0]]}}, [0])
    assert run["overflowed"]
    assert run["weights"][-1] == [0, 0, 0, 0]
    assert any("range of floating point" in note for note in run["notes"])


@pytest.mark.parametrize("given", [None, {}, {"inputs": []}, {"kind": "matrix", "inputs": [{}]}])
def test_what_is_no_problem_at_all(maths, given):
    names = ("scores", "optimalTokens", "localOptima")
    maths.calls([(name, [given]) for name in names])
    run = maths.call("train", given, {"steps": 3}, [0])
    assert run["steps"] == [0, 3]
    assert maths.call("maxMargin", given, [0], {})["status"] == "degenerate"


@pytest.mark.parametrize(("first", "second"), [([0, 0], [1, 0]), ([1, 0], None), ([1, 0], [1, 0, 0, 0])])
def test_no_direction_no_cosine(maths, first, second):
    assert maths.call("directionCosine", first, second) is None
