"""Prediction of the reached selection: every rule answers, and the default is right far more often than the optimum."""

from __future__ import annotations

import math

import pytest
import torch

import attsvm
from attsvm.theory.optimality import is_locally_optimal
from attsvm.theory.prediction.predict import RULES, GradientStep, OptimalTokens, default_rule, predict_selection
from attsvm.theory.prediction.rules import CoarseDescent, LocalPath
from attsvm.theory.prediction.situation import Situation
from attsvm.theory.prediction.svm_rules import LEARNED, Ascent, LowestRisk, learned_features, nearby_candidates

FAMILIES = {"closed form", "svm", "learned", "path", "descent"}
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


# ------------------------------------------------------------------------------------------------------- every rule


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
class TestEveryRule:
    def test_answers_with_the_right_shapes(self, rule):
        data = attsvm.data.random_sphere(n=3, T=4, d=5, batch=(2, 3), seed=1)
        guess = predict_selection(data, rule=rule)
        assert guess.selected.shape == (2, 3, 3)
        assert guess.confidence.shape == guess.locally_optimal.shape == (2, 3)
        assert bool(((guess.selected >= 0) & (guess.selected < 4)).all())
        assert not bool(guess.confidence.isnan().any())
        assert guess.rule == rule.name
        assert guess.family == rule.family
        assert guess.family in FAMILIES
        assert rule.name in repr(guess)

    def test_is_deterministic_and_a_batch_equals_its_single_runs(self, rule):
        data = attsvm.data.random_sphere(n=3, T=4, d=5, batch=2, seed=2)
        start = attsvm.fit(data, steps=0, keep=()).weights
        guess = predict_selection(data, initial=start, rule=rule)
        again = predict_selection(data, rule=rule)  # the start that fit draws with the same seed
        assert torch.equal(guess.selected, again.selected)
        single = predict_selection(data[1], initial=start[1], rule=rule)
        assert single.selected.shape == (3,)
        assert torch.equal(single.selected, guess.selected[1])

    def test_never_selects_a_masked_token(self, rule):
        whole = attsvm.data.random_sphere(n=3, T=5, d=6, batch=8, seed=3)
        mask = torch.rand(8, 3, 5, generator=torch.Generator().manual_seed(0)) < 0.6
        mask[..., 0] = True
        data = attsvm.TokenDataset(whole.tokens, whole.queries, whole.labels, mask=mask, head=whole.head)
        selected = predict_selection(data, rule=rule).selected
        assert bool(mask.gather(-1, selected.unsqueeze(-1)).all())

    def test_runs_on_one_token_and_on_shared_sequences(self, rule):
        single = attsvm.data.random_sphere(n=2, T=1, d=3, seed=4)
        assert predict_selection(single, rule=rule).selected.tolist() == [0, 0]
        stream = torch.Generator().manual_seed(5)
        tokens = torch.randn(2, 3, 4, generator=stream, dtype=torch.float64)
        head = torch.randn(4, generator=stream, dtype=torch.float64)
        causal = attsvm.TokenDataset.causal(tokens, torch.ones(2, 3), head=head)
        selected = predict_selection(causal, rule=rule).selected
        assert bool((selected.reshape(2, 3) <= torch.arange(3)).all())


def test_every_family_is_there_and_names_are_unique():
    assert {rule.family for rule in RULES.values()} == FAMILIES
    assert all(rule.name == name for name, rule in RULES.items())
    assert default_rule(attsvm.Weights()).name in RULES
    assert default_rule(attsvm.KeyQuery()).name in RULES
    assert default_rule(attsvm.Weights()).family != "descent"


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


def test_the_learned_choice_beats_the_optimal_tokens(sphere, optimal_right):
    data, start, reached = sphere
    guess = predict_selection(data, initial=start, rule=RULES["nearby, learned"])
    assert float(((guess.selected == reached).all(-1).double() - optimal_right).mean()) > 0


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
    """[TaSVM, global convergence], B2: from every start to the optimum, and so says every rule that looks at SVMs."""
    data = attsvm.data.equal_scores(n=3, T=5, d=8, batch=20, seed=6)
    optimal = attsvm.optimal_tokens(data)
    for rule in (default_rule(attsvm.Weights()), RULES["nearby, learned"], Ascent(CoarseDescent(20))):
        assert torch.equal(predict_selection(data, rule=rule).selected, optimal)


def test_the_start_decides_between_two_local_optima():
    """[TaSVM, local convergence]: from far out in the cone of a locally optimal selection it is that one."""
    data = attsvm.data.example("single-input-local")
    for token in (0, 1):
        far = 30 * attsvm.solve(attsvm.AttentionSVM(data, [token])).weights
        assert attsvm.fit(data, initial=far, steps=500).selected.tolist() == [token]
        assert predict_selection(data, initial=far).selected.tolist() == [token]
        assert predict_selection(data, initial=far, rule=OptimalTokens()).selected.tolist() == [0]


# ------------------------------------------------------------------------------------------------------- ingredients


def test_ascent_raises_the_score_and_ends_locally_optimal(sphere):
    data, start, _ = sphere
    first = RULES["one gradient step of 100"]
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


def test_candidates_are_locally_optimal_and_hold_the_optimum(sphere):
    data, start, _ = sphere
    problem = situation(data[:30], start[:30])
    found = nearby_candidates(problem)
    assert bool(is_locally_optimal(data[found.element], None, found.selected).holds.all())
    optimal = (found.selected == attsvm.optimal_tokens(data[:30])[found.element]).all(-1)
    assert int(optimal.sum()) == 30
    rows = torch.cat([found.element.unsqueeze(-1), found.selected], -1)
    assert len(torch.unique(rows, dim=0)) == len(rows)
    features = learned_features(problem, found)
    assert list(features) == list(LEARNED)
    assert all(bool(torch.isfinite(value).all()) for value in features.values())


def test_inseparable_optimal_tokens_are_said_not_to_be_locally_optimal():
    tokens = torch.tensor([[[1.0], [0.0]], [[0.0], [1.0]]], dtype=torch.float64)
    values = torch.tensor([[[1.0], [0.0]], [[1.0], [0.0]]], dtype=torch.float64)
    queries = torch.ones(2, 1, dtype=torch.float64)
    head = torch.ones(1, dtype=torch.float64)
    data = attsvm.TokenDataset(tokens, queries, [1, 1], values=values, head=head)  # both cannot win
    for rule in (OptimalTokens(), RULES["nearby, learned"], default_rule(attsvm.Weights())):
        guess = predict_selection(data, initial="zeros", rule=rule)
        assert guess.selected.shape == (2,)
        assert not bool(guess.locally_optimal & (guess.selected == 0).all())


def test_nonlinear_heads_single_precision_and_other_losses_run():
    data = attsvm.data.random_sphere(n=3, T=4, d=5, batch=4, seed=8, dtype=torch.float32)
    heads = (None, attsvm.ReluHead(torch.eye(5)), attsvm.QuadraticHead(data.head, 0.1))
    for head in heads:
        for rule in (Ascent(LocalPath(radii=3)), RULES["nearby, learned"]):
            guess = predict_selection(data, head, rule=rule, loss=attsvm.Exponential())
            assert guess.selected.shape == (4, 3)
    same = predict_selection(data.to(dtype=torch.float64)).selected
    assert torch.equal(predict_selection(data).selected, same)


# --------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"data": 3}, "data must be a TokenDataset"),
        ({"rule": "optimal"}, "rule must be a rule"),
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
        (lambda: GradientStep(0.0), "radius must be"),
        (lambda: LocalPath(radii=0), "radii must be"),
        (lambda: LocalPath(smallest=2.0, largest=1.0), "largest must be"),
        (lambda: LocalPath(damping=0.0), "damping must lie"),
        (lambda: CoarseDescent(0), "steps must be"),
        (lambda: CoarseDescent(5, -1.0), "first must be"),
        (lambda: LowestRisk(math.nan), "margin must be"),
        (lambda: Ascent("optimal"), "first must be a rule"),
    ],
)
def test_bad_rules_are_named(build, sentence):
    with pytest.raises(ValueError, match=sentence):
        build()
