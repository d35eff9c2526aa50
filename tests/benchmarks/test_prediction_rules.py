"""The rules that the prediction benchmark compares: every one answers, and what the others are made of."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from benchmarks.prediction_rules import (
    LEARNED,
    RULES,
    Ascent,
    CoarseDescent,
    GradientStep,
    LocalPath,
    LowestRisk,
    OptimalTokens,
    direction_of,
    learned_features,
    nearby_candidates,
)

import attsvm
from attsvm.theory.prediction import GrowingSteps, Situation, predict_selection

FAMILIES = {"closed form", "svm", "learned", "path", "descent"}
FRESH = 7000  # no rule was tuned on seeds from 1000 on


def situation(data, weights):
    flat = data.flatten()
    start = {"weights": weights.reshape(1, -1, data.d, data.dq)}
    return Situation(flat, attsvm.LinearHead(flat.head), attsvm.Logistic(), attsvm.Weights(), start)


@pytest.fixture(scope="module")
def sphere():
    """300 fresh data sets, their starts and what descent reached."""
    data = attsvm.data.random_sphere(n=6, T=8, d=10, batch=300, seed=FRESH)
    start = attsvm.fit(data, steps=0, seed=FRESH, keep=()).weights
    run = attsvm.fit(data, steps=8000, seed=FRESH, record=8000, keep=())
    return data, start, run.selected


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

    @pytest.mark.parametrize("batch", [(3,), (2, 2)])
    def test_a_penalty_of_its_own_for_each_data_set(self, rule, batch):
        if isinstance(rule, GrowingSteps):  # long steps hop around a finite component and amplify rounding
            rule = GrowingSteps(steps=60, horizon=60)
        data = attsvm.data.random_sphere(n=3, T=4, d=5, batch=batch, seed=9)
        penalty = torch.linspace(0.05, 2.0, math.prod(batch), dtype=torch.float64).reshape(batch)
        start = attsvm.fit(data, steps=0, keep=()).weights
        for vector in (data.head, data.head[(0,) * len(batch)]):  # one for each data set, and one for all
            guess = predict_selection(data, attsvm.QuadraticHead(vector, penalty), start, rule)
            for place in np.ndindex(*batch):
                own = attsvm.QuadraticHead(vector if vector.ndim == 1 else vector[place], penalty[place])
                single = predict_selection(data[place], own, start[place], rule)
                assert torch.equal(single.selected, guess.selected[place])
                assert torch.allclose(single.confidence, guess.confidence[place], rtol=1e-9)
                assert torch.equal(single.locally_optimal, guess.locally_optimal[place])


def test_every_family_is_there_and_names_are_unique():
    assert {rule.family for rule in RULES.values()} == FAMILIES
    assert all(rule.name == name for name, rule in RULES.items())
    assert GrowingSteps().name in RULES


def test_the_learned_choice_beats_the_optimal_tokens(sphere):
    data, start, reached = sphere
    optimal_right = (attsvm.optimal_tokens(data) == reached).all(-1).double()
    guess = predict_selection(data, initial=start, rule=RULES["nearby, learned"])
    assert float(((guess.selected == reached).all(-1).double() - optimal_right).mean()) > 0


def test_candidates_are_locally_optimal_and_hold_the_optimum(sphere):
    data, start, _ = sphere
    problem = situation(data[:30], start[:30])
    found = nearby_candidates(problem)
    assert bool(attsvm.is_locally_optimal(data[found.element], None, found.selected).holds.all())
    optimal = (found.selected == attsvm.optimal_tokens(data[:30])[found.element]).all(-1)
    assert int(optimal.sum()) == 30
    rows = torch.cat([found.element.unsqueeze(-1), found.selected], -1)
    assert len(torch.unique(rows, dim=0)) == len(rows)
    features = learned_features(problem, found)
    assert list(features) == list(LEARNED)
    assert all(bool(torch.isfinite(value).all()) for value in features.values())


def test_the_optimal_tokens_ignore_the_start_and_the_learned_choice_knows_equal_scores():
    local = attsvm.data.example("single-input-local")
    far = 30 * attsvm.solve(attsvm.AttentionSVM(local, [1])).weights
    assert predict_selection(local, initial=far, rule=OptimalTokens()).selected.tolist() == [0]
    data = attsvm.data.equal_scores(n=3, T=5, d=8, batch=20, seed=6)
    assert torch.equal(predict_selection(data, rule=RULES["nearby, learned"]).selected, attsvm.optimal_tokens(data))


def test_ascent_from_one_gradient_step_raises_the_score_and_ends_locally_optimal(sphere):
    data, start, _ = sphere
    before = predict_selection(data, initial=start, rule=GradientStep(100.0))
    after = predict_selection(data, initial=start, rule=Ascent(GradientStep(100.0)))
    scores = attsvm.token_scores(data)
    gain = scores.gather(-1, after.selected.unsqueeze(-1)) - scores.gather(-1, before.selected.unsqueeze(-1))
    assert bool((gain >= 0).all())
    assert bool(after.locally_optimal.all())
    assert not bool(before.locally_optimal.all())


def test_inseparable_optimal_tokens_are_said_not_to_be_locally_optimal():
    tokens = torch.tensor([[[1.0], [0.0]], [[0.0], [1.0]]], dtype=torch.float64)
    values = torch.tensor([[[1.0], [0.0]], [[1.0], [0.0]]], dtype=torch.float64)
    queries, head = torch.ones(2, 1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    data = attsvm.TokenDataset(tokens, queries, [1, 1], values=values, head=head)  # both cannot win
    for rule in (OptimalTokens(), RULES["nearby, learned"]):
        guess = predict_selection(data, initial="zeros", rule=rule)
        assert guess.selected.shape == (2,)
        assert not bool(guess.locally_optimal & (guess.selected == 0).all())


def test_the_learned_choice_takes_nonlinear_heads_and_other_losses():
    data = attsvm.data.random_sphere(n=3, T=4, d=5, batch=4, seed=8, dtype=torch.float32)
    for head in (None, attsvm.ReluHead(torch.eye(5)), attsvm.QuadraticHead(data.head, 0.1)):
        guess = predict_selection(data, head, rule=RULES["nearby, learned"], loss=attsvm.Exponential())
        assert guess.selected.shape == (4, 3)


@pytest.mark.parametrize(
    ("build", "sentence"),
    [(lambda: GradientStep(0.0), "radius must be"), (lambda: LowestRisk(math.nan), "margin must be")],
)
def test_bad_rules_are_named(build, sentence):
    with pytest.raises(ValueError, match=sentence):
        build()


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


def test_points_of_the_local_path_are_stationary(sphere):
    data, start, _ = sphere
    problem = situation(data[:100], start[:100])
    for point in LocalPath().points(problem)[::4]:
        ahead = direction_of(problem, point)["weights"][0]
        cosine = attsvm.direction_cosine(point["weights"][0] - start[:100], ahead)
        assert float(cosine.median()) > 0.99


def test_paths_and_coarse_descent_are_said_not_to_be_locally_optimal_on_inseparable_tokens():
    tokens = torch.tensor([[[1.0], [0.0]], [[0.0], [1.0]]], dtype=torch.float64)
    values = torch.tensor([[[1.0], [0.0]], [[1.0], [0.0]]], dtype=torch.float64)
    queries = torch.ones(2, 1, dtype=torch.float64)
    head = torch.ones(1, dtype=torch.float64)
    data = attsvm.TokenDataset(tokens, queries, [1, 1], values=values, head=head)  # both cannot win
    for rule in (LocalPath(), Ascent(LocalPath()), Ascent(CoarseDescent(20))):
        guess = predict_selection(data, initial="zeros", rule=rule)
        assert guess.selected.shape == (2,)
        assert not bool(guess.locally_optimal & (guess.selected == 0).all())


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
def test_bad_paths_and_descents_are_named(build, sentence):
    with pytest.raises(ValueError, match=sentence):
        build()
