"""Priority graphs against reachability by brute force, and the Graph-SVM against the one over all samples."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import attsvm
from attsvm import AttentionSVM
from attsvm.next_token import from_ids, priority_graph
from next_token.samples import random_samples

SEEDS = range(6)


def reachable(data, last):
    """Pairs of tokens with a way from one to the other, straight from the samples."""
    edges = {
        (int(y), x) for row, y, k in zip(data.ids.tolist(), data.labels, data.last, strict=True) if k == last
        for x in row if x not in (-1, int(y))
    }  # fmt: skip
    found = set(edges)
    while True:
        further = found | {(a, c) for (a, b), (b2, c) in itertools.product(found, edges) if b == b2}
        if further == found:
            return edges, found
        found = further


@pytest.mark.parametrize("seed", SEEDS)
def test_components_and_order_are_those_of_reachability(seed):
    data = random_samples(seed, n=12 + 6 * seed)
    graph = priority_graph(data)
    for last in graph.last_tokens:
        edges, ways = reachable(data, last)
        components = graph.components(last)
        present = {token for row, k in zip(data.ids.tolist(), data.last, strict=True) if k == last for token in row}
        assert sorted(itertools.chain(*components)) == sorted(present - {-1})
        place = {token: number for number, tokens in enumerate(components) for token in tokens}
        for one, other in itertools.permutations(place, 2):
            assert (place[one] == place[other]) == ((one, other) in ways and (other, one) in ways)
            assert (place[one] == place[other]) == (graph.component_of(last, one) == graph.component_of(last, other))
            if (one, other) in ways and place[one] != place[other]:
                assert place[one] < place[other]
        strict = {(place[a], place[b]) for a, b in edges if place[a] != place[b]}
        assert graph.condensation(last) == strict
        own = graph.last == last
        assert set(zip(graph.winner[own].tolist(), graph.loser[own].tolist(), strict=True)) == edges


@pytest.mark.parametrize("seed", SEEDS)
def test_collapsing_keeps_every_priority_and_repeats_none(seed):
    graph = priority_graph(random_samples(seed, n=25))
    for last in graph.last_tokens:
        groups, arrows = graph.collapsed(last)
        _, ways = reachable(graph.data, last)
        ahead = set(arrows)
        while True:
            further = ahead | {(a, c) for (a, b), (b2, c) in itertools.product(ahead, arrows) if b == b2}
            if further == ahead:
                break
            ahead = further
        place = {token: number for number, group in enumerate(groups) for part in group for token in part}
        for one, other in itertools.permutations(place, 2):
            if place[one] != place[other]:
                assert ((place[one], place[other]) in ahead) == ((one, other) in ways)
        for arrow in arrows:  # none follows from the others
            assert not any((arrow[0], middle) in ahead and (middle, arrow[1]) in ahead for middle in range(len(groups)))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("wide", [32, 3])
def test_the_condensed_problem_is_the_problem_of_all_samples(seed, wide, monkeypatch):
    monkeypatch.setattr("attsvm.next_token.graph._WIDE", wide)
    graph = priority_graph(random_samples(seed, n=20))
    data = graph.data
    whole = attsvm.solve(AttentionSVM(data.dataset, selected_set=graph.kept, rows=data.mask))
    condensed = attsvm.solve(graph.problem)
    assert bool(whole.solved)
    assert torch.allclose(whole.weights, condensed.weights, atol=1e-7)
    assert wide >= graph.problem.data.T


def test_kept_tokens_are_those_of_the_labels_component():
    # After c: a and b beat each other, both beat c.
    data = from_ids([[0, 1, 2], [0, 1, 0, 2], [0, 2, 2]], [0, 1, 0], np.eye(3))
    graph = priority_graph(data)
    assert graph.kept.tolist() == [[True, True, False, False], [True, True, True, False], [True, False, False, False]]
    assert not graph.acyclic
    assert "{0, 1} > 2" in str(graph)
    assert "2 strict" in repr(graph)


def test_other_data_are_refused():
    with pytest.raises(ValueError, match="data must come from next_token"):
        priority_graph(attsvm.data.random_sphere(n=2, T=2, d=2, seed=0))
