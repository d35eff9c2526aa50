"""Prediction of the reached selection: a few growing steps name what thousands of steps reach."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

import attsvm
from attsvm.theory.optimality import is_locally_optimal
from attsvm.theory.prediction import Blocks, GrowingSteps, _measured, optimizer_kind, predict_selection

FRESH = 7000  # no rule was tuned on seeds from 1000 on


def sigmas(gain):
    """How many standard errors the mean of paired differences lies above 0."""
    return float(gain.mean() / (gain.std() / math.sqrt(len(gain))))


@pytest.fixture(scope="module")
def sphere():
    """300 fresh data sets, their starts and what descent reached."""
    data = attsvm.data.random_sphere(n=6, T=8, d=10, batch=300, seed=FRESH)
    start = attsvm.fit(data, steps=0, seed=FRESH, keep=()).weights
    run = attsvm.fit(data, steps=8000, seed=FRESH, record=8000, keep=())
    return data, start, run.selected


@pytest.fixture(scope="module")
def optimal_right(sphere):
    data, _, reached = sphere
    return (attsvm.optimal_tokens(data) == reached).all(-1).double()


@pytest.fixture(scope="module")
def default_guess(sphere):
    data, start, _ = sphere
    return predict_selection(data, initial=start)


# --------------------------------------------------------------------------------------------------------- accuracy


def test_the_default_is_right_on_nearly_all_data_sets(sphere, optimal_right, default_guess):
    """300 fresh data sets of one seed against 8,000 steps; measured on 1,000 others: see docs/prediction.md."""
    right = (default_guess.selected == sphere[2]).all(-1).double()
    assert float(right.mean()) > 0.96
    assert sigmas(right - optimal_right) > 3


def test_the_default_is_right_for_factors():
    data = attsvm.data.random_sphere(n=6, T=8, d=10, batch=200, seed=FRESH + 1)
    kind = attsvm.KeyQuery()
    run = attsvm.fit(data, parameterization=kind, steps=4000, seed=FRESH + 1, record=4000, keep=())
    guess = predict_selection(data, parameterization=kind, seed=FRESH + 1)
    assert float((guess.selected == run.selected).all(-1).double().mean()) > 0.94


@pytest.mark.parametrize(
    "optimizer",
    [
        attsvm.GradientDescent(1.0),
        attsvm.SteepestDescent(attsvm.MaxEntry(), 0.01),
        attsvm.SteepestDescent(attsvm.Spectral(), 0.03),
        attsvm.Adam(0.01),
    ],
    ids=optimizer_kind,
)
def test_other_steps_are_predicted_by_their_own(optimizer):
    """The rule follows the optimizer that it is told: it names what that one reaches more often than another's end."""
    data = attsvm.data.random_sphere(n=6, T=8, d=10, batch=60, seed=FRESH + 2)
    how = {"optimizer": optimizer, "initial": attsvm.fit(data, steps=0, seed=FRESH + 2).weights}
    run = attsvm.fit(data, steps=3000, record=3000, keep=(), **how)
    right = (predict_selection(data, rule=GrowingSteps(horizon=3000), **how).selected == run.selected).all(-1)
    assert float(right.double().mean()) > 0.8


def test_few_steps_are_less_often_right_than_many(sphere):
    """The comparison can fail: with ten steps the rule is clearly worse."""
    data, start, reached = sphere
    few = predict_selection(data, initial=start, rule=GrowingSteps(10))
    assert float((few.selected == reached).all(-1).double().mean()) < 0.9


def test_all_steps_are_the_run_itself():
    data = attsvm.data.random_sphere(n=3, T=4, d=5, batch=5, seed=FRESH + 3)
    run = attsvm.fit(data, steps=60, seed=4, record=60)
    guess = predict_selection(data, seed=4, rule=GrowingSteps(steps=100, horizon=60))
    assert torch.equal(guess.selected, run.selected)
    assert torch.equal(guess.confidence, run.attention.amax(-1).amin(-1))


def test_blocks_add_up_to_the_steps_they_stand_for():
    for schedule in (attsvm.descent.Constant(0.1), attsvm.descent.InverseSqrt(0.3)):
        sizes = Blocks(schedule, 50, 2000).sizes(0, 50)
        assert sizes.sum() == pytest.approx(schedule.sizes(0, 2000).sum(), rel=1e-12)
        assert sizes[0] == pytest.approx(schedule.sizes(0, 1)[0])
        assert (Blocks(schedule, 50, 2000).sizes(20, 7) == sizes[20:27]).all()


def test_accuracy_is_told_where_it_was_measured_only():
    data = attsvm.data.random_sphere(n=3, T=4, d=5, seed=1)
    told = predict_selection(data).accuracy
    assert told is not None
    rows = [row for row in _measured() if row["trained"] == "W" and row["start_norm"] == 3.0]
    rows = [row for row in rows if row["optimizer"] == "NormalizedGradientDescent"]
    assert told.lowest == min(row["accuracy"] for row in rows)
    assert f"{told.lowest:.1%}" in str(told)
    assert predict_selection(data, rule=GrowingSteps(300)).accuracy is None
    assert predict_selection(data, attsvm.QuadraticHead(data.head, 0.1)).accuracy is None
    assert predict_selection(data, initial=torch.full((5, 5), 1e6, dtype=torch.float64)).accuracy is None
    assert predict_selection(data, optimizer=attsvm.MirrorDescent(3.0, 0.1)).accuracy is None


def test_what_the_package_says_is_what_the_benchmark_published():
    path = Path(__file__).parents[2] / "benchmarks" / "results" / "prediction.json"
    published = [row for row in json.loads(path.read_text())["rows"] if row["rule"] == GrowingSteps().name]
    assert len(published) == len(_measured()) > 0
    for row, told in zip(published, _measured(), strict=True):
        assert {key: row[key] for key in told} == told


def test_a_comparison_with_itself_shows_no_gain(optimal_right):
    shuffled = optimal_right[torch.randperm(300, generator=torch.Generator().manual_seed(0))]
    assert abs(sigmas(shuffled - optimal_right.flip(0))) < 3


def test_equal_scores_leave_only_the_optimal_tokens():
    """Measured, not proved for n > 1: on these data the default start leads to the optimum."""
    data = attsvm.data.equal_scores(n=3, T=5, d=8, batch=20, seed=6)
    optimal = attsvm.optimal_tokens(data)
    assert torch.equal(predict_selection(data).selected, optimal)


def test_the_start_decides_between_two_local_optima():
    """[TaSVM, local convergence]: from far out in the cone of a locally optimal selection it is that one."""
    data = attsvm.data.example("single-input-local")
    for token in (0, 1):
        far = 30 * attsvm.solve(attsvm.AttentionSVM(data, [token])).weights
        assert attsvm.fit(data, initial=far, steps=500).selected.tolist() == [token]
        assert predict_selection(data, initial=far).selected.tolist() == [token]


# ------------------------------------------------------------------------------------------------------- ingredients


def test_the_reached_selection_is_locally_optimal_and_a_fixed_point_of_ascent(sphere):
    data, _, reached = sphere
    assert float(is_locally_optimal(data, None, reached).holds.double().mean()) > 0.98


def test_nonlinear_heads_single_precision_and_other_losses_run():
    data = attsvm.data.random_sphere(n=3, T=4, d=5, batch=4, seed=8, dtype=torch.float32)
    heads = (None, attsvm.ReluHead(torch.eye(5)), attsvm.QuadraticHead(data.head, 0.1))
    for head in heads:
        guess = predict_selection(data, head, rule=GrowingSteps(50), loss=attsvm.Exponential())
        assert guess.selected.shape == (4, 3)
    same = predict_selection(data.to(dtype=torch.float64)).selected
    assert torch.equal(predict_selection(data).selected, same)


# --------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"data": 3}, "data must be a TokenDataset"),
        ({"rule": "optimal"}, "rule must be a prediction rule"),
        ({"parameterization": "W"}, "parameterization must be"),
        ({"initial": torch.zeros(2, 3, 3, dtype=torch.float64)}, "one start for each data set"),
        ({"initial": torch.zeros(4, 4, dtype=torch.float64)}, "initial weights must have shape"),
        ({"initial": "zeros", "parameterization": attsvm.KeyQuery()}, "saddle"),
        ({"head": torch.zeros(7, dtype=torch.float64)}, "head must have shape"),
        ({"loss": 3}, "loss must be"),
        ({"optimizer": "adam"}, "optimizer must be"),
    ],
)
def test_bad_input_is_named(arguments, sentence):
    data = attsvm.data.random_sphere(n=2, T=3, d=3, seed=0)
    with pytest.raises(ValueError, match=sentence):
        predict_selection(**({"data": data} | arguments))
