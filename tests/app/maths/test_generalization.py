"""Random data, fresh inputs and the share selected right: repeated in Python, and counted by attsvm itself."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from attsvm.app.problem import data_to_problem
from attsvm.attention import evaluate, token_scores
from attsvm.data import TokenDataset, example, random_gaussian

MASK = 0xFFFFFFFF
SEEDS = (0, 7, 20260101 % 999999)


def scrambled(value: int) -> int:
    """The finalizer of MurmurHash3."""
    value &= MASK
    value = ((value ^ value >> 16) * 0x85EBCA6B) & MASK
    value = ((value ^ value >> 13) * 0xC2B2AE35) & MASK
    return value ^ value >> 16


def stream(seed: int) -> Iterator[float]:
    place = scrambled(seed)
    while True:
        place = (place + 0x9E3779B9) & MASK
        yield scrambled(place) / 2**32


def normal(numbers: Iterator[float]) -> float:
    radius = math.sqrt(-2 * math.log(1 - next(numbers)))
    return radius * math.cos(2 * math.pi * next(numbers))


def on_circle(angle: float) -> list[float]:
    return [math.floor(1000 * entry + 0.5) / 1000 for entry in (math.cos(angle), math.sin(angle))]


def drawn(numbers: Iterator[float], told: float, tokens: int, labels: str) -> dict[str, Any]:
    label = 1 if next(numbers) < 0.5 else -1
    scatter = 0.35 * normal(numbers)
    free = 2 * math.pi * next(numbers)
    query = free if labels == "free" else told + (0 if label > 0 else math.pi) + scatter
    places = [on_circle(2 * math.pi * next(numbers)) for _ in range(tokens)]
    return {"label": label, "query": on_circle(query), "tokens": [{"x": x, "score": None} for x in places]}


@pytest.mark.parametrize("labels", ["told", "free"])
def test_random_data_and_fresh_draws_are_what_the_seed_says(maths, labels):
    for seed in SEEDS:
        plan = {"seed": seed, "inputs": 5, "tokens": 4, "labels": labels}
        found = maths.call("randomData", plan)
        numbers = stream(seed)
        head, told = 2 * math.pi * next(numbers), 2 * math.pi * next(numbers)
        assert found["head"] == on_circle(head)
        assert found["inputs"] == [drawn(numbers, told, 4, labels) for _ in range(5)]
        fresh = maths.call("freshInputs", found, {"seed": 3, "count": 6, "spread": 0.2, "drawn": plan})
        others = stream(scrambled(3) ^ 0x5BD1E995)
        assert fresh == [drawn(others, told, 4, labels) for _ in range(6)]


def test_fresh_inputs_lie_around_the_training_ones(maths):
    problem = data_to_problem(example("two-inputs"))
    fresh = maths.call("freshInputs", problem, {"seed": 1, "count": 4000, "spread": 0.3, "drawn": None})
    noise = []
    for k, each in enumerate(fresh):
        own = problem["inputs"][k % 2]
        assert each["label"] == own["label"]
        places = [token["x"] for token in each["tokens"]] + [each["query"]]
        noise.append(np.array(places) - np.array([token["x"] for token in own["tokens"]] + [own["query"]]))
    flat = np.concatenate([each.ravel() for each in noise])
    assert abs(flat.mean()) < 4 * 0.3 / math.sqrt(flat.size)
    assert flat.std() == pytest.approx(0.3, rel=0.02)
    assert np.mean(np.abs(flat) < 0.3) == pytest.approx(0.6827, abs=0.01)  # a normal distribution's
    assert abs(np.corrcoef(flat[:-1], flat[1:])[0, 1]) < 4 / math.sqrt(flat.size)
    again = maths.call("freshInputs", problem, {"seed": 2, "count": 4, "spread": 0.3, "drawn": None})
    assert again != fresh[:4]


def data_of(inputs: list[dict[str, Any]], head: list[float], prompt: bool) -> TokenDataset:
    """The inputs as attsvm takes them; there may be more of them than the page draws."""
    tokens = torch.tensor([[token["x"] for token in each["tokens"]] for each in inputs], dtype=torch.float64)
    queries = torch.ones(len(inputs), 1) if prompt else torch.tensor([each["query"] for each in inputs])
    labels = torch.tensor([each["label"] for each in inputs], dtype=torch.float64)
    given = inputs[0]["tokens"][0]["score"] is not None
    values = None
    if given:
        scores = torch.tensor([[token["score"] for token in each["tokens"]] for each in inputs], dtype=torch.float64)
        values = torch.cat([tokens, scores[..., None]], -1)
    vector = torch.tensor([0.0, 0.0, 1.0] if given else head, dtype=torch.float64)
    return TokenDataset(tokens, queries.to(torch.float64), labels, None, values, vector)


@pytest.mark.parametrize("name", ["two-inputs", "hyperplanes", "multi-input", "single-input-local", "gaussian"])
def test_the_share_selected_right_is_attsvms(maths, name):
    """Attention of attsvm on the fresh inputs: the share whose most attended token has the best score."""
    data = random_gaussian(n=4, T=5, d=2, seed=5) if name == "gaussian" else example(name)
    problem = data_to_problem(data)
    prompt = problem["kind"] == "prompt"
    settings = {"trained": "p" if prompt else "W", "optimizer": "normalized", "loss": "logistic", "stepSize": 0.1}
    run = maths.call("train", problem, {**settings, "steps": 300, "start": {}}, [5])
    shares = []
    for seed in (1, 2):
        fresh = maths.call("freshInputs", problem, {"seed": seed, "count": 200, "spread": 0.6, "drawn": None})
        taken = data_of(fresh, problem["head"], prompt)
        for weights in run["weights"]:
            found = maths.call("selectedRight", fresh, weights, problem["head"])
            matrix = torch.tensor(weights, dtype=torch.float64).reshape(2, -1)
            selected, best = evaluate(taken, matrix).selected, token_scores(taken).argmax(-1)
            assert found["selected"] == selected.tolist()
            assert found["right"] == (selected == best).tolist()
            assert found["count"] == int((selected == best).sum())
            shares.append(found["count"] / 200)
    assert 0 < min(shares) < 1, f"the test must be able to fail; shares {shares}"


def test_nothing_is_right_before_the_first_step_and_ties_for_the_best_are(maths):
    problem = data_to_problem(example("two-inputs"))
    assert maths.call("selectedRight", problem["inputs"], [0, 0, 0, 0], problem["head"])["count"] == 0
    tied = [{"label": 1, "query": [1, 0], "tokens": [{"x": [1, 1], "score": 2}, {"x": [1, 1], "score": 2}]}]
    assert maths.call("selectedRight", tied, [1, 0, 0, 1], [0, 1])["right"] == [True]
    tied[0]["tokens"][1]["score"] = 3
    assert maths.call("selectedRight", tied, [1, 0, 0, 1], [0, 1])["right"] == [False]


def test_more_inputs_generalize_better_where_the_query_tells_the_label(maths):
    """Over twenty seeds nobody chose: the mean share with eight inputs beats that with one, and chance."""
    means = []
    for inputs in (1, 8):
        shares = []
        for seed in range(20):
            plan = {"seed": seed, "inputs": inputs, "tokens": 4, "labels": "told"}
            problem = maths.call("randomData", plan)
            settings = {"trained": "W", "optimizer": "normalized", "loss": "logistic", "stepSize": 0.1, "steps": 300}
            run = maths.call("train", problem, {**settings, "start": {}}, [])
            fresh = maths.call("freshInputs", problem, {"seed": 1, "count": 200, "spread": 0, "drawn": plan})
            shares.append(maths.call("selectedRight", fresh, run["weights"][-1], problem["head"])["count"] / 200)
        means.append(float(np.mean(shares)))
    print(f"mean share right with 1 and 8 inputs, 20 seeds: {means}")
    assert means[1] > means[0] + 0.05
    assert means[1] > 0.5
