"""Max-margin solutions in the page are those of `attsvm.solve`, and Python's certificate proves them."""

from __future__ import annotations

import pytest
import torch

from app.vector_problems import case_names
from app.vectors import NORMS
from attsvm.app.problem import problem_to_data
from attsvm.svm import AttentionSVM, certify

from .closeness import TOLERANCE, apart

pytestmark = pytest.mark.slow  # the vectors take some seconds to write

STATUS = {
    "solved": "solved",
    "infeasible": "infeasible",
    "numerically_infeasible": "not found",
    "no_rows": "degenerate",
}
CASES = case_names()


@pytest.mark.parametrize("name", CASES)
def test_same_solutions(maths, vectors, name):
    case = vectors[name]
    wanted = case["solutions"]
    answers = maths.calls(
        [("maxMargin", [case["problem"], each["selected"], {"norm": each["norm"]}]) for each in wanted]
    )
    for mine, theirs in zip(answers, wanted, strict=True):
        label = f"{name} {theirs['norm']} {theirs['selected']}"
        assert mine["status"] == STATUS[theirs["status"]], label
        if theirs["status"] != "solved":
            continue
        assert mine["norm"] == pytest.approx(theirs["value"], rel=TOLERANCE), label
        if theirs["unique"]:
            assert apart(mine["weights"], theirs["weights"]) < TOLERANCE, label
            if theirs["ambiguous"] == 0:
                assert mine["support"] == theirs["support"], label


@pytest.mark.parametrize("name", CASES)
def test_python_certifies_them(maths, vectors, name):
    """Weights and duals of the page, judged by the library from the data alone: solutions and rays of infeasibility."""
    case = vectors[name]
    data = problem_to_data(case["problem"])
    wanted = case["solutions"]
    answers = maths.calls(
        [("maxMargin", [case["problem"], each["selected"], {"norm": each["norm"]}]) for each in wanted]
    )
    for mine, theirs in zip(answers, wanted, strict=True):
        label = f"{name} {theirs['norm']} {theirs['selected']}"
        problem = AttentionSVM(data, theirs["selected"])
        rows = [row + [0.0] * (data.T - len(row)) for row in mine["duals"]]
        duals = torch.tensor(rows, dtype=torch.float64)
        weights = mine["weights"] or [0.0] * (2 * data.dq)
        matrix = torch.tensor(weights, dtype=torch.float64).reshape(2, data.dq)
        proof = certify(problem, NORMS[theirs["norm"]], matrix, duals)
        if mine["status"] == "solved":
            assert bool(proof.proves_optimal(1e-10)), f"{label}: {proof}"
            assert abs(mine["gap"]) <= 1e-10, label
        elif mine["status"] == "infeasible":
            assert bool(proof.holds_ray(1e-10)), f"{label}: {proof}"


@pytest.mark.parametrize("name", CASES)
def test_same_label_margins(maths, vectors, name):
    case = vectors[name]
    if not case["labels"]:
        assert maths.call("labelMargin", case["problem"], case["optimal"])["status"] == "degenerate"
        return
    answers = maths.calls([("labelMargin", [case["problem"], each["selected"]]) for each in case["labels"]])
    for mine, theirs in zip(answers, case["labels"], strict=True):
        assert (mine["status"] == "solved") == theirs["solved"], theirs
        if theirs["solved"]:
            assert apart(mine["head"], theirs["head"]) < TOLERANCE, theirs
            assert mine["supportInputs"] == theirs["supportInputs"], theirs


@pytest.mark.parametrize("name", CASES)
def test_same_joint_predictions(maths, vectors, name):
    case = vectors[name]
    calls = []
    for each in case["joint"]:
        settings = {"trained": each["trained"], "optimizer": each["optimizer"], "trainHead": True}
        calls.append(("predict", [case["problem"], settings, each["selected"]]))
    for mine, theirs in zip(maths.calls(calls), case["joint"], strict=True):
        assert (mine["weights"] is not None) == theirs["predicted"], theirs
        if theirs["predicted"]:
            assert apart(mine["weights"], theirs["weights"]) < TOLERANCE, theirs
            assert apart(mine["head"], theirs["head"]) < TOLERANCE, theirs
            assert (mine["label"] != "relaxed") == theirs["tight"], theirs
