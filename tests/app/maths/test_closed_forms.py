"""Solutions and limits that are known in closed form, and invariances, computed in the page."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attsvm.app.problem import data_to_problem
from attsvm.data import example

NORMS = ("frobenius", "nuclear", "spectral", "max-entry")


def prompt(tokens, labels=None):
    inputs = [
        {"label": 1 if labels is None else labels[i], "query": None, "tokens": [{"x": x, "score": None} for x in each]}
        for i, each in enumerate(tokens)
    ]
    return {"kind": "prompt", "head": [0.0, 1.0], "inputs": inputs}


def matrix(tokens, queries):
    inputs = [
        {"label": 1, "query": query, "tokens": [{"x": x, "score": None} for x in each]}
        for each, query in zip(tokens, queries, strict=True)
    ]
    return {"kind": "matrix", "head": [0.0, 1.0], "inputs": inputs}


@pytest.mark.parametrize(("selected", "expected"), [([0], [-10 / 101, 100 / 101]), ([1], [1, 0])])
def test_single_input(maths, selected, expected):
    found = maths.call("maxMargin", prompt([[[-0.1, 1], [1, 0], [0, 0]]]), selected, {})
    assert found["weights"] == pytest.approx(expected, abs=1e-14)
    assert found["support"] == [[0, 2]]


@pytest.mark.parametrize("norm", ["frobenius", "nuclear", "spectral"])
def test_parallel_queries_have_the_rank_one_solution_in_every_unitary_norm(maths, norm):
    # W = w z^T / |z|^2 with the shortest w; the spectral norm alone would let W do anything orthogonally to z.
    problem = matrix([[[-0.1, 1], [1, 0], [0, 0]], [[0, 0], [0, -3]]], [[0.6, 0.8], [1.2, 1.6]])
    found = maths.call("maxMargin", problem, [0, 0], {"norm": norm})
    w = np.array([-10 / 101, 100 / 101])
    assert found["weights"] == pytest.approx(np.outer(w, [0.6, 0.8]).ravel(), abs=1e-12)
    assert found["norm"] == pytest.approx(float(np.linalg.norm(w)), abs=1e-12)


def test_joint_training(maths):
    tight = prompt([[[0, 0], [1, 1]], [[0, 0], [1, -1]], [[0, 0], [0.5, 1]]], [1, -1, 1])
    relaxed = prompt([[[0, 0], [1, 1]], [[0, 0], [1, -1]], [[0, 0], [0.5, 1.5]]], [1, -1, 1])
    settings = {"trained": "p", "optimizer": "normalized", "trainHead": True}
    first = maths.call("predict", tight, settings, [1, 1, 1])
    assert first["weights"] == pytest.approx([4 / 3, 1 / 3], abs=1e-12)
    assert first["label"] == "Frobenius"
    for optimizer in ("normalized", "gradient"):
        second = maths.call("predict", relaxed, {**settings, "optimizer": optimizer}, [1, 1, 1])
        assert second["weights"] == pytest.approx([1, 0], abs=1e-12)
        assert second["label"] == "relaxed"
    for problem in (tight, relaxed):
        assert maths.call("labelMargin", problem, [1, 1, 1])["head"] == pytest.approx([0, 1], abs=1e-14)
    sides = {"rightHandSide": [1, 1, 0]}
    assert maths.call("maxMargin", relaxed, [1, 1, 1], sides)["weights"] == pytest.approx([1, 0], abs=1e-14)


def test_loss_comparison(maths):
    found = maths.call("maxMargin", prompt([[[0, 0], [1, 1]], [[0, 0], [1, -1]]]), [1, 1], {})
    assert found["weights"] == pytest.approx([1, 0], abs=1e-14)


def test_one_input_two_tokens(maths):
    """W = (x_1 - x_2) z^T / (|x_1 - x_2|^2 |z|^2) for Frobenius and nuclear; the others in value."""
    difference, query = np.array([1.5, -0.5]), np.array([0.3, 0.8])
    problem = matrix([[[1.5, 0.0], [0.0, 0.5]]], [query.tolist()])
    row = np.outer(difference, query)
    expected = row / (row**2).sum()
    values = {norm: maths.call("maxMargin", problem, [0], {"norm": norm}) for norm in NORMS}
    for norm in ("frobenius", "nuclear"):
        assert values[norm]["weights"] == pytest.approx(expected.ravel().tolist(), abs=1e-14)
    length = float(np.linalg.norm(row))
    assert values["spectral"]["norm"] == pytest.approx(1 / length, rel=1e-12)
    assert values["max-entry"]["norm"] == pytest.approx(1 / np.abs(row).sum(), rel=1e-12)


def test_orthonormal_queries_split_the_frobenius_problem(maths):
    tokens = [[[1.0, 0.4], [0.2, -0.3], [-0.5, 0.1]], [[-0.6, 0.9], [0.3, 0.2], [0.1, -1.0]]]
    angle = 0.7
    queries = [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
    both = maths.call("maxMargin", matrix(tokens, queries), [0, 0], {})
    halves = [maths.call("maxMargin", prompt([each]), [0], {})["weights"] for each in tokens]
    expected = sum(np.outer(half, query) for half, query in zip(halves, queries, strict=True))
    assert both["weights"] == pytest.approx(expected.ravel().tolist(), abs=1e-13)


def turned(problem, left, right):
    """The same problem with tokens turned by `left` and queries by `right`."""
    inputs = []
    for each in problem["inputs"]:
        tokens = [{"x": (left @ token["x"]).tolist(), "score": None} for token in each["tokens"]]
        inputs.append({**each, "tokens": tokens, "query": (right @ each["query"]).tolist()})
    return {**problem, "inputs": inputs}


@pytest.mark.parametrize("norm", ["frobenius", "nuclear", "spectral"])
@pytest.mark.parametrize("seed", range(4))
def test_rotation_and_scaling(maths, norm, seed):
    """W -> L W R^T under rotations of tokens and queries; W -> W / c under scaling of the tokens by c."""
    stream = np.random.default_rng(seed)
    problem = matrix(stream.standard_normal((2, 3, 2)).tolist(), stream.standard_normal((2, 2)).tolist())
    left, right = (np.linalg.qr(stream.standard_normal((2, 2)))[0] for _ in range(2))
    selections = [[a, b] for a in range(3) for b in range(3)]
    solved = 0
    for selected in selections:
        first, second, third = maths.calls([
            ("maxMargin", [problem, selected, {"norm": norm}]),
            ("maxMargin", [turned(problem, left, right), selected, {"norm": norm}]),
            ("maxMargin", [turned(problem, 5 * np.eye(2), np.eye(2)), selected, {"norm": norm}]),
        ])  # fmt: skip
        assert first["status"] == second["status"] == third["status"]
        if first["status"] != "solved":
            continue
        solved += 1
        weights = np.reshape(first["weights"], (2, 2))
        assert second["norm"] == pytest.approx(first["norm"], rel=1e-10)
        assert third["norm"] == pytest.approx(first["norm"] / 5, rel=1e-10)
        if norm != "spectral":  # whose solutions need not be unique
            assert np.allclose(np.reshape(second["weights"], (2, 2)), left @ weights @ right.T, atol=1e-8)
    assert solved > 0


def test_a_token_that_supports_nothing_may_move(maths):
    problem = matrix([[[1.0, 0.5], [0.0, 0.0], [-2.0, -1.0]]], [[1.0, 0.0]])
    moved = matrix([[[1.0, 0.5], [0.0, 0.0], [-3.0, -0.5]]], [[1.0, 0.0]])
    first, second = (maths.call("maxMargin", each, [0], {}) for each in (problem, moved))
    assert first["support"] == second["support"] == [[0, 1]]
    assert first["weights"] == second["weights"]


def test_margins_are_those_of_the_weights(maths):
    problem = data_to_problem(example("hyperplanes"))
    found = maths.call("maxMargin", problem, [0, 0], {})
    weights = np.reshape(found["weights"], (2, 2))
    for i, each in enumerate(problem["inputs"]):
        places = np.array([token["x"] for token in each["tokens"]])
        expected = (places[0] - places) @ weights @ np.array(each["query"])
        assert np.allclose(found["margins"][i], expected, atol=1e-13)
        assert (np.delete(expected, 0) >= 1 - 1e-12).all()


@pytest.mark.parametrize(("trained", "optimizer", "label"), [
    ("W", "normalized", "Frobenius"), ("W", "gradient", "Frobenius"), ("KQ", "normalized", "nuclear"),
    ("W", "sign", "max-entry"), ("W", "spectral", "spectral"), ("KQ", "sign", "none"),
])  # fmt: skip
def test_predicted_norm(maths, trained, optimizer, label):
    settings = {"trained": trained, "optimizer": optimizer}
    found = maths.call("predict", data_to_problem(example("two-inputs")), settings, [0, 0])
    assert found["label"] == label
    assert (found["weights"] is None) == (label == "none")


@pytest.mark.parametrize(("trained", "others"), [("W", "nuclear"), ("KQ", "frobenius")])
def test_descent_tends_to_its_prediction(maths, trained, others):
    problem = data_to_problem(example("two-inputs"))
    settings = {
        "trained": trained, "optimizer": "normalized", "loss": "logistic", "stepSize": 0.1, "steps": 5000,
        "start": {"W": [[0, 0], [0, 0]], "K": [[0.1, 0], [0, 0.1]], "Q": [[0, 0], [0, 0]]},
    }  # fmt: skip
    run = maths.call("train", problem, settings, [])
    prediction = maths.call("predict", problem, settings, run["selected"])
    cosine = maths.call("directionCosine", run["weights"][-1], prediction["weights"])
    other = maths.call("maxMargin", problem, run["selected"], {"norm": others})["weights"]
    print(f"{trained}: cosine {cosine:.6f} to the {prediction['label']} solution")
    assert cosine > 0.999
    assert cosine > maths.call("directionCosine", run["weights"][-1], other) + 0.05


@pytest.mark.parametrize(("optimizer", "better"), [("spectral", 0.95), ("sign", 0.9)])
def test_steepest_descent_nears_the_margin_of_its_norm(maths, optimizer, better):
    """Solutions are not unique there, so margins are compared: that of the run's direction over the best one."""
    problem = data_to_problem(example("two-inputs"))
    settings = {
        "trained": "W", "optimizer": optimizer, "loss": "logistic", "stepSize": 0.02, "steps": 20000,
        "start": {"W": [[0, 0], [0, 0]]},
    }  # fmt: skip
    run = maths.call("train", problem, settings, [])
    assert run["selected"] == [0, 0]
    prediction = maths.call("predict", problem, settings, run["selected"])
    weights = np.reshape(run["weights"][-1], (2, 2))
    size = np.linalg.norm(weights, 2) if optimizer == "spectral" else np.abs(weights).max()
    margins = [
        (np.array(each["tokens"][0]["x"]) - token["x"]) @ weights @ each["query"]
        for each in problem["inputs"]
        for token in each["tokens"][1:]
    ]
    efficiency = min(margins) / size * prediction["solution"]["norm"]
    print(f"{optimizer}: {efficiency:.4f} of the best margin in the {prediction['label']} norm")
    assert better < efficiency <= 1 + 1e-12
