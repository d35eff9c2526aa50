"""W_fin against closed forms and an independent minimiser, W_svm, clashes in words, and the automaton."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from attsvm.next_token import finite_part, from_ids, from_text, predict_limit, priority_graph
from next_token.samples import random_samples


def restricted_loss(data, kept, weights):
    """The mean over samples of -log of the label's share among the kept tokens, token by token."""
    table, total = data.embeddings, 0.0
    for row, keep, y, k in zip(data.ids.tolist(), kept.tolist(), data.labels.tolist(), data.last.tolist(), strict=True):
        tokens = [token for token, held in zip(row, keep, strict=True) if held]
        shares = torch.softmax(table[tokens] @ weights @ table[k], 0)
        total = total - sum(share for token, share in zip(tokens, shares, strict=True) if token == y).log()
    return total / data.n


def test_two_tokens_share_by_their_counts():
    # After c: a three times, b once, both in the window each time.
    data = from_ids([[0, 1, 2]] * 4, [0, 0, 0, 1], np.eye(3))
    finite = finite_part(priority_graph(data))
    assert finite.certified
    half = math.log(3) / 2
    assert torch.allclose(finite.weights[:, 2], torch.tensor([half, -half, 0.0]).double(), atol=1e-12)
    assert not finite.weights[:, :2].any()


def test_repeats_count_by_their_number():
    # b stands twice in every window, so that equal shares of a and b need a logit of a that is log 2 higher.
    data = from_ids([[0, 1, 1, 2]] * 2, [0, 1], np.eye(3))
    weights = finite_part(priority_graph(data)).weights
    assert float(weights[0, 2] - weights[1, 2]) == pytest.approx(math.log(2), abs=1e-12)


@pytest.mark.parametrize(("tokens", "d", "orthonormal"), [(5, 5, True), (4, 6, False), (6, 3, False)])
@pytest.mark.parametrize("seed", range(2))
def test_the_finite_part_against_another_minimiser(tokens, d, orthonormal, seed):
    data = random_samples(seed, tokens, d, n=24, orthonormal=orthonormal)
    graph = priority_graph(data)
    finite = finite_part(graph)
    # S_fin by brute force: all pairs of kept tokens of all samples, as a matrix of flattened products.
    rows = [
        torch.outer(data.embeddings[row[0]] - data.embeddings[token], data.embeddings[k]).flatten()
        for ids, keep, k in zip(data.ids, graph.kept, data.last.tolist(), strict=True)
        for row in [ids[keep].tolist()] for token in row[1:]
    ]  # fmt: skip
    _, sizes, basis = torch.linalg.svd(torch.stack(rows))
    basis = basis[: int((sizes > 1e-9 * sizes[0]).sum())]
    assert int(finite.space.dimension) == len(basis)
    assert torch.allclose(finite.space.project(finite.weights[None])[0], finite.weights, atol=1e-12)
    direction = torch.randn(1, d, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    ours = finite.space.project(direction).flatten()
    assert torch.allclose(ours, basis.mT @ (basis @ direction.flatten()), atol=1e-12)

    def value_and_slope(point):
        at = torch.tensor(point, requires_grad=True)
        value = restricted_loss(data, graph.kept, (at @ basis).reshape(d, d))
        (slope,) = torch.autograd.grad(value, at)
        return float(value.detach()), slope.numpy()

    found = minimize(value_and_slope, np.zeros(len(basis)), jac=True, method="BFGS", options={"gtol": 1e-9})
    other = (torch.from_numpy(found.x) @ basis).reshape(d, d)
    assert finite.certified
    assert torch.allclose(finite.weights, other, atol=1e-5)
    assert finite.distance_bound < 1e-7


@pytest.mark.parametrize("seed", range(4))
def test_the_distance_bound_is_one(seed, monkeypatch):
    graph = priority_graph(random_samples(seed, n=24))
    exact = finite_part(graph)
    for coarse in (1e-3, 1e-4, 1e-6):
        monkeypatch.setattr("attsvm.next_token.finite._ACCURATE", coarse)
        early = finite_part(graph)
        away = float((early.weights - exact.weights).norm())
        assert away <= early.distance_bound + exact.distance_bound
        assert early.distance_bound < 100 * away + 1e-6 or early.distance_bound == math.inf


@pytest.mark.parametrize("seed", range(4))
def test_the_parts_of_the_limit(seed):
    data = random_samples(seed, n=20)
    limit = predict_limit(data)
    assert limit.standing.value == "proved"
    assert bool(limit.solution.solved)
    overlap = limit.finite.space.project(limit.svm_component[None])[0]
    assert float(overlap.norm()) < 1e-7 * float(limit.svm_component.norm())  # W_svm is orthogonal to S_fin
    # In training windows the label's component survives, with the probabilities of W_fin.
    for row, kept, k in zip(data.ids, limit.graph.kept, data.last.tolist(), strict=True):
        answer = limit.answer(row.tolist())
        assert set(answer.words) == {data.words[token] for token in row[kept].tolist()}
        assert answer.by_graph
        assert answer.seen
        shares = torch.softmax(data.embeddings[row[kept]] @ limit.finite_component @ data.embeddings[k], 0)
        for word, share in zip(answer.words, answer.probabilities, strict=True):
            own = [float(s) for token, s in zip(row[kept].tolist(), shares, strict=True) if data.words[token] == word]
            assert share == pytest.approx(sum(own), abs=1e-9)


def test_a_clash_is_told_in_words():
    # One dimension: 'x' before 'y' after a positive query and after a negative one cannot both hold.
    table = np.array([[1.0], [2.0], [-1.0], [3.0]])
    data = from_ids([[0, 1, 3], [0, 1, 2]], [0, 0], table, ("x", "y", "minus", "plus"))
    limit = predict_limit(data)
    assert bool(limit.solution.infeasible)
    told = {str(one) for one in limit.clash}
    assert told <= {str(one) for last, losers in (("plus", ("y", "plus")), ("minus", ("y", "minus")))
                    for one in (f"after {last!r}: 'x' before {loser!r}" for loser in losers)}  # fmt: skip
    assert len(told) >= 2
    assert "relations clash (proved), no weights in 1 dimensions meet all of: after" in limit.verdict
    assert limit.standing is None
    assert torch.isnan(limit.finite_component).all()
    with pytest.raises(ValueError, match="there is no limit to ask: relations clash"):
        limit.answer([0, 1])
    assert json.loads(limit.to_json())["clash"]


@pytest.mark.parametrize("seed", range(3))
def test_relations_after_one_token_that_clash_by_themselves_are_told_alone(seed):
    """After token 0 each of 20 others beats a random half of the later ones: too much for three dimensions."""
    rng = np.random.default_rng(seed)
    table = rng.standard_normal((21, 3))
    windows = [[winner, *(winner + 1 + np.flatnonzero(rng.random(20 - winner) < 0.5)), 0] for winner in range(1, 20)]
    mild = [[3, 4, 5], [6, 7, 8]]
    data = from_ids(windows + mild, [window[0] for window in windows + mild], table)
    limit = predict_limit(data)
    assert bool(limit.solution.infeasible)
    assert {one.last for one in limit.clash} == {"0"}
    rows = np.stack([table[int(one.winner)] - table[int(one.loser)] for one in limit.clash])
    weights = np.array([one.weight for one in limit.clash])
    assert (weights > 0).all()
    assert np.abs(weights @ rows).max() < 1e-9  # a positive combination of relations that vanishes: no u meets them all
    combined = limit.graph.problem.combine(limit.solution.duals)
    assert float(combined.abs().max()) < 1e-9 * float(limit.solution.duals.abs().max())


def test_without_a_strict_priority_the_weights_converge():
    data = from_ids([[0, 1]] * 3 + [[1, 0, 1]], [0, 1, 1, 1], np.eye(2))
    limit = predict_limit(data)
    assert not limit.svm_component.any()
    assert "no strict priority" in str(limit)
    assert limit.standing.value == "proved"


def test_new_windows_and_unknown_queries():
    data = from_ids([[0, 1, 2], [3, 0, 2]], [0, 3], np.eye(5), names="abcde")
    limit = predict_limit(data)
    assert limit.answer("b a d c").words == ("d",)  # d before a before b
    assert limit.answer("b a d c").by_graph
    unknown = limit.answer("a b e")
    assert not unknown.seen
    assert unknown.probabilities == pytest.approx((1 / 3,) * 3)
    assert not unknown.decided
    level = limit.answer("c b c")  # both lose to a, and nothing compares them
    assert set(level.words) == {"b", "c"}
    assert str(level) == "c, b (level under W_svm; how they share is not decided)"
    assert str(unknown) == "a, b, e (no sample ends in this token)"
    assert limit.answer("b a c").decided
    with pytest.raises(ValueError, match=r"context must lie in 0\.\.4, .*; got 9 at 0"):
        limit.answer([9])


def test_a_text_end_to_end():
    text = "the cat sat on the mat . the dog sat on the mat . the cat saw the dog . the dog saw the cat . " * 3
    limit = predict_limit(from_text(text, window=8))
    assert limit.finite.certified
    assert limit.answer("the dog sat on").words == ("the",)
    printed = json.loads(limit.to_json())
    assert printed["status"] == "solved"
    assert "Certificate of W_fin: at most" in str(limit)
