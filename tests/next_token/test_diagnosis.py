"""What `next_token.diagnose` promises: proved where every condition was checked; refused where nothing is known."""

from __future__ import annotations

import numpy as np
import pytest

import attsvm
from attsvm import GradientDescent, KeyQuery, NormalizedGradientDescent
from attsvm.descent import InverseSqrt, TwoPartDescent
from attsvm.next_token import diagnose, from_ids, priority_graph, train, verify
from next_token.samples import random_samples


def missing(found):
    return {one.name for one in found.conditions if not bool(one.proved)}


def test_the_theorems_own_training_is_proved():
    data = random_samples(1, n=20)
    found = diagnose(data)
    assert found.standing.value == "proved"
    assert not missing(found)
    assert {"Graph-SVM feasible", "embeddings independent", "log loss"} <= {one.name for one in found.conditions}
    assert "Standing: proved\n" in f"{found}\n"
    assert diagnose(priority_graph(data)).verdict == found.verdict
    assert verify(found, found.finite_component + 300 * found.svm_component).holds


@pytest.mark.parametrize(("options", "names"), [
    ({"optimizer": GradientDescent(1.5)}, {"steps at most 1/L"}),
    ({"optimizer": GradientDescent(InverseSqrt(0.1))}, {"constant steps", "steps at most 1/L"}),
    ({"optimizer": NormalizedGradientDescent(0.1)}, {"plain gradient descent"}),
    ({"optimizer": TwoPartDescent(0.1)}, {"plain gradient descent"}),
    ({"parameterization": KeyQuery()}, {"W is trained"}),
])  # fmt: skip
def test_one_broken_condition_leaves_a_conjecture(options, names):
    found = diagnose(random_samples(1, n=20), **options)
    assert found.standing.value == "conjectured"
    assert missing(found) == names
    for name in names:
        assert name in str(found).partition("not proved here: ")[2]


def test_dependent_embeddings_and_clashes():
    free = from_ids([[0, 1, 2]], [0], np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]))
    found = diagnose(free, optimizer=GradientDescent(0.1))
    assert missing(found) == {"embeddings independent"}
    assert found.standing.value == "conjectured"
    table = np.array([[1.0], [2.0], [-1.0], [3.0]])
    clash = diagnose(from_ids([[0, 1, 3], [0, 1, 2]], [0, 0], table))
    assert clash.standing is None
    assert bool(clash.conditions[0].refuted)
    assert "Limit: relations clash (proved)" in str(clash)


def test_the_norm_is_that_of_the_training():
    data = random_samples(1, n=20)
    assert isinstance(diagnose(data, KeyQuery()).solution.norm, attsvm.Nuclear)
    assert isinstance(diagnose(data, optimizer=attsvm.MirrorDescent(3, 0.1)).solution.norm, attsvm.Entrywise)
    limit = diagnose(data)
    run = train(limit, steps=2)
    assert np.isfinite(verify(limit, run).cosine)


@pytest.mark.parametrize(("options", "sentence"), [
    ({"loss": attsvm.Logistic()}, r"loss must be the log loss, attention\.Log\(\).*got Logistic"),
    ({"parameterization": KeyQuery(), "optimizer": attsvm.Adam(0.1)}, "no limit is proved or conjectured"),
])  # fmt: skip
def test_what_is_not_known_is_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        diagnose(random_samples(1, n=20), **options)
    with pytest.raises(ValueError, match="data must come from next_token"):
        diagnose(attsvm.data.random_sphere(n=2, T=2, d=2, seed=0))
