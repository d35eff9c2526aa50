"""Descent in the page walks the same path as `attsvm.fit`, number by number, as far as a path means anything."""

from __future__ import annotations

import pytest

from app.vector_problems import case_names, vector_problem

from .closeness import TOLERANCE, apart

pytestmark = pytest.mark.slow  # the vectors take some seconds to write

TRAINED = [name for name in case_names() if vector_problem(name).plans]


@pytest.mark.parametrize("name", TRAINED)
def test_same_path(maths, vectors, name):
    case = vectors[name]
    runs = case["runs"]
    answers = maths.calls([("train", [case["problem"], run["settings"], run["record"]]) for run in runs])
    for mine, run in zip(answers, runs, strict=True):
        label = f"{name} {run['settings']}"
        assert mine["steps"] == run["record"], label
        last = run["meaningful"]
        assert last > 0, label
        for part in ("weights", "risk", "norm"):
            assert apart(mine[part][:last], run[part][:last]) < TOLERANCE, f"{part} of {label}"
        for part in ("K", "Q", "head"):
            if run[part] is not None:
                kept = [row[part] for row in mine["parameters"]]
                assert apart(kept[:last], run[part][:last]) < TOLERANCE, f"{part} of {label}"
        for i, tokens in enumerate(run["logAttention"]):
            rows = [row[i] for row in run["attention"]]
            assert apart([row[i] for row in mine["attention"]][:last], rows[:last]) < TOLERANCE, label
            if last == len(run["record"]):
                assert apart(mine["logAttention"][-1][i], tokens) < TOLERANCE, label
        assert mine["selected"] == run["selected"], label
        final = [tokens[t] for tokens, t in zip(mine["attention"][-1], mine["selected"], strict=True)]
        assert mine["probability"][-1] == final, label
        assert mine["stalled"] == run["stalled"], label
        assert not mine["overflowed"], label


def test_most_paths_are_compared_to_their_end(vectors):
    """Only factors that oscillate (or a prompt that does) lose their numbers before the last step."""
    runs = [(case["name"], run) for case in vectors.values() for run in case["runs"]]
    cut = [(name, run) for name, run in runs if run["meaningful"] < len(run["record"])]
    for name, run in cut:
        at = run["record"][run["meaningful"]]
        chosen = " ".join(str(run["settings"][key]) for key in ("trained", "optimizer", "loss", "trainHead"))
        print(f"{name} {chosen}: compared up to step {at} of {run['record'][-1]}")
    print(f"{len(runs) - len(cut)} of {len(runs)} paths compared to their end")
    assert len(runs) > 200
    assert len(cut) < len(runs) / 10


def test_a_changed_token_changes_the_path(maths, vectors):
    """The comparison can fail: a token moved by 1e-6 is seen."""
    case = vectors["single-input-local"]
    run = case["runs"][0]
    moved = {**case["problem"], "inputs": [{**case["problem"]["inputs"][0]}]}
    tokens = [dict(token) for token in moved["inputs"][0]["tokens"]]
    tokens[0]["x"] = [tokens[0]["x"][0] + 1e-6, tokens[0]["x"][1]]
    moved["inputs"][0]["tokens"] = tokens
    mine = maths.call("train", moved, run["settings"], run["record"])
    assert apart(mine["weights"], run["weights"]) > TOLERANCE
