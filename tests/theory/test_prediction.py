"""Prediction of the reached selection: the default rule is right far more often than the optimal tokens."""

from __future__ import annotations

import math

import pytest
import torch

import attsvm
from attsvm.theory.optimality import is_locally_optimal
from attsvm.theory.prediction import Ascent, CoarseDescent, LocalPath, Situation, default_rule, predict_selection

FRESH = 7000  # no rule was tuned on seeds from 1000 on


def situation(data, weights):
    flat = data.flatten()
    start = {"weights": weights.reshape(1, -1, data.d, data.dq)}
    return Situation(flat, attsvm.LinearHead(flat.head), attsvm.Logistic(), attsvm.Weights(), start)


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


def test_the_default_takes_no_step_of_descent():
    for kind in (attsvm.Weights(), attsvm.KeyQuery()):
        assert default_rule(kind).family != "descent"


# --------------------------------------------------------------------------------------------------------- accuracy


def test_the_default_beats_the_optimal_tokens(sphere, optimal_right, default_guess):
    """Paired over 300 fresh data sets of one seed: above 0 by three standard errors, and 10 points at the least."""
    gain = (default_guess.selected == sphere[2]).all(-1).double() - optimal_right
    assert sigmas(gain) > 3
    assert float(gain.mean()) > 0.10
    assert bool(default_guess.locally_optimal.all())


def test_coarse_descent_with_ascent_beats_the_default(sphere, default_guess):
    data, start, reached = sphere
    coarse = predict_selection(data, initial=start, rule=Ascent(CoarseDescent(20)))
    right = (coarse.selected == reached).all(-1).double()
    default = (default_guess.selected == reached).all(-1).double()
    assert coarse.family == "descent"
    assert float(right.mean()) > 0.9
    assert sigmas(right - default) > 2


def test_the_default_beats_the_optimal_tokens_for_factors():
    data = attsvm.data.random_sphere(n=6, T=8, d=10, batch=300, seed=FRESH + 1)
    kind = attsvm.KeyQuery()
    run = attsvm.fit(data, parameterization=kind, steps=2000, seed=FRESH + 1, record=2000, keep=())
    guess = predict_selection(data, parameterization=kind, seed=FRESH + 1)
    optimal = (attsvm.optimal_tokens(data) == run.selected).all(-1).double()
    assert sigmas((guess.selected == run.selected).all(-1).double() - optimal) > 3


def test_a_comparison_with_itself_shows_no_gain(optimal_right):
    shuffled = optimal_right[torch.randperm(300, generator=torch.Generator().manual_seed(0))]
    assert abs(sigmas(shuffled - optimal_right.flip(0))) < 3


def test_equal_scores_leave_only_the_optimal_tokens():
    """[TaSVM, global convergence], B2: from every start to the optimum, and so says the ascent."""
    data = attsvm.data.equal_scores(n=3, T=5, d=8, batch=20, seed=6)
    optimal = attsvm.optimal_tokens(data)
    for rule in (default_rule(attsvm.Weights()), Ascent(CoarseDescent(20))):
        assert torch.equal(predict_selection(data, rule=rule).selected, optimal)


def test_the_start_decides_between_two_local_optima():
    """[TaSVM, local convergence]: from far out in the cone of a locally optimal selection it is that one."""
    data = attsvm.data.example("single-input-local")
    for token in (0, 1):
        far = 30 * attsvm.solve(attsvm.AttentionSVM(data, [token])).weights
        assert attsvm.fit(data, initial=far, steps=500).selected.tolist() == [token]
        assert predict_selection(data, initial=far).selected.tolist() == [token]


# ------------------------------------------------------------------------------------------------------- ingredients


def test_ascent_raises_the_score_and_ends_locally_optimal(sphere):
    data, start, _ = sphere
    first = CoarseDescent(5, 2.0, 1.3)
    before = predict_selection(data, initial=start, rule=first)
    after = predict_selection(data, initial=start, rule=Ascent(first))
    scores = attsvm.token_scores(data)
    gain = scores.gather(-1, after.selected.unsqueeze(-1)) - scores.gather(-1, before.selected.unsqueeze(-1))
    assert bool((gain >= 0).all())
    assert bool(after.locally_optimal.all())
    assert not bool(before.locally_optimal.all())
    kept = before.locally_optimal
    assert torch.equal(after.selected[kept], before.selected[kept])


def test_the_reached_selection_is_locally_optimal_and_a_fixed_point_of_ascent(sphere):
    data, _, reached = sphere
    assert float(is_locally_optimal(data, None, reached).holds.double().mean()) > 0.98


def test_points_of_the_local_path_are_stationary(sphere):
    data, start, _ = sphere
    problem = situation(data[:100], start[:100])
    for point in LocalPath().points(problem)[::4]:
        ahead = problem.direction(point)["weights"][0]
        cosine = attsvm.direction_cosine(point["weights"][0] - start[:100], ahead)
        assert float(cosine.median()) > 0.99


def test_inseparable_optimal_tokens_are_said_not_to_be_locally_optimal():
    tokens = torch.tensor([[[1.0], [0.0]], [[0.0], [1.0]]], dtype=torch.float64)
    values = torch.tensor([[[1.0], [0.0]], [[1.0], [0.0]]], dtype=torch.float64)
    queries = torch.ones(2, 1, dtype=torch.float64)
    head = torch.ones(1, dtype=torch.float64)
    data = attsvm.TokenDataset(tokens, queries, [1, 1], values=values, head=head)  # both cannot win
    for rule in (LocalPath(), Ascent(LocalPath()), Ascent(CoarseDescent(20))):
        guess = predict_selection(data, initial="zeros", rule=rule)
        assert guess.selected.shape == (2,)
        assert not bool(guess.locally_optimal & (guess.selected == 0).all())


def test_nonlinear_heads_single_precision_and_other_losses_run():
    data = attsvm.data.random_sphere(n=3, T=4, d=5, batch=4, seed=8, dtype=torch.float32)
    heads = (None, attsvm.ReluHead(torch.eye(5)), attsvm.QuadraticHead(data.head, 0.1))
    for head in heads:
        guess = predict_selection(data, head, rule=Ascent(LocalPath(radii=3)), loss=attsvm.Exponential())
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
    ],
)
def test_bad_input_is_named(arguments, sentence):
    data = attsvm.data.random_sphere(n=2, T=3, d=3, seed=0)
    with pytest.raises(ValueError, match=sentence):
        predict_selection(**({"data": data} | arguments))


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: LocalPath(radii=0), "radii must be"),
        (lambda: LocalPath(smallest=2.0, largest=1.0), "largest must be"),
        (lambda: LocalPath(damping=0.0), "damping must lie"),
        (lambda: CoarseDescent(0), "steps must be"),
        (lambda: CoarseDescent(5, -1.0), "first must be"),
        (lambda: Ascent("optimal"), "first must be a rule"),
    ],
)
def test_bad_rules_are_named(build, sentence):
    with pytest.raises(ValueError, match=sentence):
        build()
