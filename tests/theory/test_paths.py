"""Regularization paths: where the minimiser in a growing ball goes, and how fast."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

import attsvm
from attsvm import AttentionSVM, KeyQuery, QuadraticHead, ReluHead, TokenDataset, label_svm, solve
from attsvm.attention import ModuleHead
from attsvm.norms import (
    Entrywise,
    Frobenius,
    MaxEntry,
    Nuclear,
    Spectral,
    SumEntry,
    direction_cosine,
    direction_distance,
)
from attsvm.theory import RegularizationPath, regularization_path
from attsvm.theory.cones import AngleCone

DECADES = [1.0, 10.0, 100.0, 1000.0, 10000.0]


def exponent(radii, values):
    """The power of R with which `values` fall between the last two radii."""
    return (values[-1] / values[-2]).log() / (radii[-1] / radii[-2]).log()


def optimal_svm(data, norm=None):
    problem = AttentionSVM(data, attsvm.optimal_tokens(data))
    return problem, solve(problem, norm or Frobenius())


class TestFrobeniusPath:
    @pytest.mark.parametrize(("n", "T", "d"), [(4, 5, 8), (6, 8, 10)])
    def test_the_direction_tends_to_the_svm_with_1_minus_cosine_falling_as_R_to_the_minus_2(self, n, T, d):
        data = attsvm.data.random_sphere(n=n, T=T, d=d, batch=8, seed=0)
        _, solution = optimal_svm(data)
        assert bool(solution.solved.all())
        path = regularization_path(data, radii=DECADES, restarts=1)
        away = direction_distance(path.weights, solution.weights)
        rate = exponent(path.radii, away)
        print(f"8 data sets: 1 - cos at 1e4 {float(away[-1].max()):.1e}, exponents {rate.tolist()}")
        assert float(away[-1].max()) < 2e-6
        assert float(rate.median()) == pytest.approx(-2, abs=0.05)
        assert bool(((rate + 2).abs() < 0.3).all())  # faint support vectors come in late
        assert bool(path.converged.all())
        assert bool(path.on_boundary.all())
        assert float(path.residual.max()) < 1e-12
        assert torch.allclose(Frobenius().value(path.weights), path.radii[:, None].expand(-1, 8), rtol=1e-9)
        assert bool((path.selected[-1] == attsvm.optimal_tokens(data)).all())
        assert bool((path.log_excess[1:] < path.log_excess[:-1]).all())

    def test_margins_are_even_to_one_over_R(self):
        data = attsvm.data.random_sphere(n=4, T=5, d=8, batch=6, seed=5)
        problem, solution = optimal_svm(data)
        path = regularization_path(data, radii=[1e3, 1e4], restarts=0)
        lost = 1 - torch.stack([attsvm.margin_efficiency(one, problem, solution=solution) for one in path.weights])
        rate = exponent(path.radii, lost)
        print(f"6 data sets: lost margin {float(lost[-1].max()):.1e}, exponents {rate.tolist()}")
        assert bool(((rate + 1).abs() < 0.05).all())

    def test_an_inseparable_selection_leaves_a_risk_above_the_best(self):
        # One sequence with both labels: no W can select two different tokens of the same tokens and query.
        tokens = attsvm.data.random_sphere(n=1, T=4, d=6, batch=4, seed=1)
        twice = TokenDataset(
            tokens.tokens.repeat(1, 2, 1, 1), tokens.queries.repeat(1, 2, 1), [[1, -1]] * 4, head=tokens.head
        )
        assert bool(optimal_svm(twice)[1].infeasible.all())
        path = regularization_path(twice, radii=[10.0, 1e3], restarts=1)
        print(f"4 data sets: log(L - L_*) at 1e3 {path.log_excess[-1].tolist()}")
        assert bool((path.log_excess[-1] > -5).all())

    def test_tied_best_tokens_lead_elsewhere_than_the_svm_of_either(self):
        # Both tokens are best, so the path need not separate them: it is the better SVM against the third token only.
        tokens = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]]).double()
        data = TokenDataset(tokens, torch.ones(1, 1).double(), [1])
        path = regularization_path(data, torch.ones(2).double(), [1.0, 1e3])
        limits = torch.tensor([[[2.0], [1.0]], [[1.0], [2.0]]]).double()
        either = torch.stack([solve(AttentionSVM(data, [t])).weights for t in (0, 1)])
        assert float(direction_cosine(path.weights[-1], limits).max()) > 1 - 1e-6
        assert float(direction_cosine(path.weights[-1], either).max()) < 0.9

    def test_no_other_optimizer_finds_less(self):
        data = attsvm.data.random_sphere(n=2, T=3, d=2, batch=4, seed=0)
        path = regularization_path(data, radii=[1.0, 8.0], restarts=4)
        best = [[min(scipy_risk(data[b], r, seed) for seed in range(4)) for b in range(4)] for r in (1.0, 8.0)]
        below = torch.tensor(best) - path.risk
        print(f"8 problems against SLSQP from 4 starts each: smallest lead {float(below.min()):.1e}")
        assert float(below.min()) > -1e-8

    def test_path_beside_gradient_descent(self):
        data = attsvm.data.equal_scores(n=3, T=4, d=6, batch=5, seed=0)
        run = attsvm.fit(data, steps=3000, record=[300, 3000], initial="zeros")
        for record in (0, 1):
            for element in range(5):
                radius = float(run.history.norm[record, element])
                weights = run.history.weights[record, element]
                path = regularization_path(data[element], radii=[radius], restarts=0)
                descent = attsvm.best_risk(data[element])
                risk = attsvm.attention.evaluate(data[element], weights).risk
                assert float(risk - descent) >= float(path.log_excess[0].exp()) * (1 - 1e-6) - 1e-15
                assert float(direction_cosine(weights, path.weights[0])) > (0.98, 0.999)[record]


def scipy_risk(data, radius, seed):
    """The lowest risk that SLSQP finds in the Frobenius ball from one random start, with its own derivatives."""
    tokens, queries = data.tokens.numpy(), data.queries.numpy()
    scores = attsvm.token_scores(data).numpy()

    def value(flat):
        logits = np.einsum("ntd,dq,nq->nt", tokens, flat.reshape(data.d, data.dq), queries)
        attention = np.exp(logits - logits.max(-1, keepdims=True))
        margin = (attention * scores).sum(-1) / attention.sum(-1)
        return np.logaddexp(0, -margin).mean()

    start = np.random.default_rng(seed).standard_normal(data.d * data.dq)
    found = minimize(
        value,
        start * radius / np.linalg.norm(start),
        constraints=[{"type": "ineq", "fun": lambda w: radius**2 - w @ w}],
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 300},
    )
    return value(found.x * min(1.0, radius / np.linalg.norm(found.x)))


class TestNuclearPath:
    def test_the_distance_to_the_set_of_solutions_vanishes(self):
        data = attsvm.data.random_sphere(n=3, T=4, d=5, batch=6, seed=1)
        problem, solution = optimal_svm(data, Nuclear())
        path = regularization_path(data, radii=DECADES, parameterization=KeyQuery(), restarts=1)
        away = torch.stack([attsvm.svm.distance_to_solution_set(w, problem, solution=solution) for w in path.weights])
        rate = exponent(path.radii, away)
        print(f"6 data sets: distance at 1e4 {away[-1].tolist()}, exponents {rate.tolist()}")
        assert float(away[-1].max()) < 2e-3
        assert bool((rate < -0.9).all())
        assert bool(path.converged.all())
        assert torch.allclose(Nuclear().value(path.weights), path.radii[:, None].expand(-1, 6), rtol=1e-6)
        assert torch.allclose(path.key @ path.query.mT, path.weights, atol=1e-6)
        total = path.key.square().sum((-1, -2)) + path.query.square().sum((-1, -2))
        assert torch.allclose(total, 2 * path.radii[:, None].expand_as(total), rtol=1e-6)

    def test_it_is_another_path_than_that_of_W(self):
        data = attsvm.data.random_sphere(n=4, T=5, d=6, batch=3, seed=2)
        problem, frobenius = optimal_svm(data)
        path = regularization_path(data, radii=[1e3], norm=Nuclear(), restarts=0)
        assert float(direction_cosine(path.weights[-1], frobenius.weights).max()) < 0.99
        assert float((1 - attsvm.margin_efficiency(path.weights[-1], problem, Nuclear())).max()) < 0.05

    def test_too_low_a_rank_keeps_away(self):
        data = attsvm.data.random_sphere(n=4, T=5, d=6, batch=4, seed=2)
        problem, solution = optimal_svm(data, Nuclear())
        assert bool((solution.rank() > 1).all())
        path = regularization_path(data, radii=[1e3], parameterization=KeyQuery(1), restarts=0)
        assert path.key.shape[-1] == 1
        away = attsvm.svm.distance_to_solution_set(path.weights[-1], problem, solution=solution)
        print(f"4 data sets at rank 1: distance {away.tolist()}")
        assert float(away.min()) > 0.01


@pytest.mark.parametrize("norm", [Spectral(), MaxEntry(), SumEntry(), Entrywise(3), Entrywise(1.5)], ids=str)
def test_the_path_of_every_norm_tends_to_the_largest_margin_in_it(norm):
    data = attsvm.data.random_sphere(n=2, T=3, d=3, batch=4, seed=3)
    problem, solution = optimal_svm(data, norm)
    assert bool(solution.solved.all())
    path = regularization_path(data, radii=[100.0, 1000.0], norm=norm, restarts=0)
    lost = 1 - torch.stack([attsvm.margin_efficiency(w, problem, norm, solution=solution) for w in path.weights])
    rate = exponent(path.radii, lost.clamp(min=1e-300))[lost[-1] > 1e-9]  # one support vector: no loss at all
    print(f"{norm}: 4 data sets, lost margin at 1e3 {lost[-1].tolist()}, exponents {rate.tolist()}")
    assert bool(path.converged.all())
    assert float(lost[-1].max()) < 0.02
    assert bool(((rate + 1).abs() < 0.2).all())
    assert float((norm.value(path.weights[-1]) - 1000).abs().max()) < 1e-3


class TestPrompt:
    def test_random_prompts(self):
        sphere = attsvm.data.random_sphere(n=3, T=3, d=12, batch=6, seed=4)
        data = TokenDataset.prompt(sphere.tokens, sphere.labels, head=sphere.head)
        _, solution = optimal_svm(data)
        assert bool(solution.solved.all())
        path = regularization_path(data, radii=DECADES)
        away = direction_distance(path.weights, solution.weights)[-1]
        print(f"6 prompts: 1 - cos at 1e4 {away.tolist()}")
        assert float(away.max()) < 1e-6

    def test_single_input_oracle(self):
        path = regularization_path(attsvm.data.example("single-input-local"), radii=[1e4])
        assert float(direction_cosine(path.weights[0], torch.tensor([[-0.1], [1.0]]).double())) > 1 - 1e-9


class TestJoint:
    radii = torch.tensor(DECADES).double()

    def path(self, name, ratio, radii):
        data = attsvm.data.example(name)
        return regularization_path(data, radii=radii, train_head=True, head_radii=ratio * radii, restarts=1)

    @pytest.mark.parametrize("ratio", [1.0, 4.0])
    def test_every_token_supports_the_labels(self, ratio):
        path = self.path("joint-training-tight", ratio, self.radii)
        prompt = direction_distance(path.weights, torch.tensor([[4 / 3], [1 / 3]]).double())
        head = direction_distance(path.head.unsqueeze(-1), torch.tensor([[0.0], [1.0]]).double())
        print(f"r = {ratio} R: 1 - cos of p {prompt.tolist()}, of v {head.tolist()}")
        assert bool(path.converged.all())
        assert float(prompt[-1]) < 1e-8
        assert float(head[-1]) < 1e-8
        assert float(exponent(path.radii, prompt)) == pytest.approx(-2, abs=0.1)

    @pytest.mark.parametrize("ratio", [1.0, 4.0])
    def test_an_input_outside_the_label_support_relaxes_the_svm(self, ratio):
        path = self.path("joint-training-relaxed", ratio, self.radii[2:3])
        assert float(direction_distance(path.weights[-1], torch.tensor([[1.0], [0.0]]).double())) < 1e-4
        assert float(direction_distance(path.head[-1].unsqueeze(-1), torch.tensor([[0.0], [1.0]]).double())) < 1e-8

    def test_a_head_that_grows_slower_than_the_weights_does_not_relax_it(self):
        # r / R -> 0 breaks the theorem's order of limits: every input keeps its unit margin.
        data = attsvm.data.example("joint-training-relaxed")
        full = solve(AttentionSVM(data, [1, 1, 1])).weights
        path = regularization_path(data, radii=[100.0, 1e4], train_head=True, head_radii=[10.0, 20.0])
        assert float(direction_distance(path.weights[-1], full)) < 1e-5
        assert float(direction_cosine(path.weights[-1], torch.tensor([[1.0], [0.0]]).double())) < 0.99

    def test_random_data_reach_both_max_margin_directions(self):
        # Values whose selected tokens are long, so that mixing in another token lowers the label margin.
        sphere = attsvm.data.random_sphere(n=3, T=3, d=10, batch=5, seed=6)
        tokens = 0.3 * sphere.tokens
        tokens[:, :, 0] += 3 * sphere.tokens[:, :, 0]
        data = TokenDataset.prompt(tokens, sphere.labels)
        path = regularization_path(data, radii=[10.0, 100.0, 1000.0], train_head=True, head_radii=[100.0, 1e3, 1e4])
        label = label_svm(data, path.selected[-1])
        problem = AttentionSVM(data, path.selected[-1], right_hand_side=label.support.double())
        prompt = direction_cosine(path.weights[-1], solve(problem).require_solved().weights)
        head = direction_cosine(path.head[-1].unsqueeze(-1), label.vector.unsqueeze(-1))
        print(f"5 data sets: cosine of p {prompt.tolist()}, of v {head.tolist()}, support {label.support.tolist()}")
        assert float(head.min()) > 0.9999
        assert float(prompt.min()) > 0.999


class TestNonlinearHeads:
    def test_relu_with_one_winner(self):
        # A convex head and positive labels: one token beats every mixture.
        sphere = attsvm.data.random_sphere(n=3, T=4, d=6, batch=6, seed=2)
        data = TokenDataset(sphere.tokens, sphere.queries, torch.ones_like(sphere.labels))
        head = ReluHead(torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
        path = regularization_path(data, head, DECADES, restarts=3)
        solution = solve(AttentionSVM(data, attsvm.optimal_tokens(data, head)))
        away = direction_distance(path.weights[-1], solution.weights)
        print(f"6 data sets, relu: 1 - cos at 1e4 {away.tolist()}")
        assert path.log_excess is None
        assert bool(path.converged[-1].all())
        assert float(away.max()) < 1e-5

    def test_a_module_head(self):
        sphere = attsvm.data.random_sphere(n=2, T=3, d=4, batch=3, seed=2)
        layer = torch.nn.Linear(4, 1, dtype=torch.float64)
        with torch.no_grad():
            layer.weight.copy_(torch.tensor([[1.0, -0.5, 0.3, 0.2]]))
            layer.bias.zero_()
        path = regularization_path(sphere, ModuleHead(torch.nn.Sequential(layer, torch.nn.Tanh())), [1.0, 100.0])
        plain = regularization_path(sphere, torch.nn.Sequential(layer, torch.nn.Tanh()), [1.0, 100.0])
        best = attsvm.token_scores(sphere, attsvm.LinearHead(layer.weight.detach()[0])).argmax(-1)
        assert torch.equal(path.weights, plain.weights)
        assert bool((path.selected[-1] == best).all())

    def test_a_quadratic_head_keeps_several_tokens_inside_the_ball(self):
        kept = []
        for seed in range(4):
            frame = attsvm.data.orthonormal_tokens(n=1, T=4, d=5, seed=seed)
            data = TokenDataset(frame.tokens, frame.queries, [1])
            path = regularization_path(data, QuadraticHead(frame.head, 2.0), [30.0])
            gamma = (frame.tokens[0] @ frame.head) / 4.0
            expected = simplex_projection(gamma)
            kept.append(int((expected > 0).sum()))
            assert torch.allclose(path.attention[0, 0], expected, atol=1e-4)
            assert bool(path.on_boundary[0]) == (kept[-1] < 4) or bool(path.residual[0] < 1e-6)
        print(f"4 seeds: tokens kept {kept}")
        assert max(kept) > 1


def simplex_projection(point):
    ordered = point.sort(descending=True).values
    shift = (ordered.cumsum(0) - 1) / torch.arange(1, len(point) + 1)
    return (point - shift[int((ordered > shift).sum()) - 1]).clamp(min=0)


class TestLocalPath:
    def test_local_optima_are_reached_and_other_directions_left(self):
        data = attsvm.data.random_sphere(n=2, T=4, d=3, batch=4, seed=0)
        chosen = torch.tensor(list(itertools.product(range(4), repeat=2))).repeat_interleave(4, 0)
        every = data[torch.arange(4).repeat(16)]
        solution = solve(AttentionSVM(every, chosen))
        scores = attsvm.token_scores(every)
        own = scores.gather(-1, chosen.unsqueeze(-1))
        optimal = (chosen == attsvm.optimal_tokens(every)).all(-1)
        local = ~(solution.support & (scores >= own)).any(-1).any(-1) & ~optimal & solution.solved
        outscored = (solution.support & (scores > own + 0.05)).any(-1).any(-1) & solution.solved
        tried = torch.nonzero(local | outscored).flatten()
        good, centre = local[tried], solution.weights[tried]
        path = regularization_path(every[tried], radii=[1e4], cone=AngleCone(centre, 0.01), restarts=0)
        away = direction_distance(path.weights[-1], centre)
        print(
            f"4 data sets: {int(good.sum())} local optima reached, {int((~good).sum())} out-scored selections left;"
            f" largest 1 - cos {float(away[good].max()):.1e}"
        )
        assert int(good.sum()) >= 5
        assert int((~good).sum()) >= 20
        assert bool((away[good] < 1e-4).all())
        assert bool((path.selected[-1][good] == chosen[tried][good]).all())
        assert torch.equal(path.at_cone_edge[-1], ~good)

    @pytest.mark.parametrize(("name", "stays"), [("single-input-local", True), ("single-input-global", False)])
    def test_the_papers_single_input(self, name, stays):
        # Token 2 is locally optimal iff its neighbour, token 3, scores less than it.
        data = attsvm.data.example(name)
        centre = solve(AttentionSVM(data, [1])).weights
        path = regularization_path(data, radii=DECADES, cone=AngleCone(centre, 0.1))
        assert bool(path.at_cone_edge[-1]) is not stays
        assert (float(direction_distance(path.weights[-1], centre)) < 1e-9) is stays
        everywhere = regularization_path(data, radii=DECADES)
        assert int(everywhere.selected[-1]) == 0


class TestRestarts:
    def test_they_agree_where_all_other_tokens_score_alike(self):
        data = attsvm.data.equal_scores(n=3, T=4, d=6, batch=8, seed=0)
        path = regularization_path(data, radii=DECADES, restarts=4)
        print(f"8 data sets, {int(path.starts.max())} starts each: {int(path.elsewhere.sum())} ended elsewhere")
        assert int(path.elsewhere.sum()) == 0
        other = regularization_path(data, radii=DECADES, restarts=1, seed=7)
        assert float(direction_distance(path.weights, other.weights).max()) < 1e-9

    def test_disagreement_is_reported(self):
        data = attsvm.data.random_sphere(n=6, T=8, d=10, batch=6, seed=0)
        path = regularization_path(data, radii=[10.0, 100.0], restarts=3)
        print(f"6 data sets, {int(path.starts.max())} starts each: {path.elsewhere.tolist()} ended elsewhere")
        assert int(path.elsewhere.sum()) > 0
        assert bool((path.risk_spread[path.elsewhere > 0] > 0).all())
        assert any("elsewhere" in note for note in path.notes)

    @pytest.mark.slow
    def test_no_plain_restart_finds_less_where_the_best_tokens_are_not_separable(self):
        drawn = attsvm.data.random_sphere(n=5, T=6, d=3, batch=160, seed=12)
        infeasible = solve(AttentionSVM(drawn, attsvm.optimal_tokens(drawn))).infeasible
        data, radius = drawn[torch.nonzero(infeasible).flatten()[:20]], 20.0
        assert data.batch_shape == (20,)
        path = regularization_path(data, radii=[radius])
        plain = _lowest_of_plain_restarts(data, radius, starts=30)
        beaten = path.risk[0] > plain * (1 + 1e-6)
        print(f"20 data sets: plain descent from 30 starts finds less in {int(beaten.sum())}")
        print(f"and more in {int((path.risk[0] < plain * (1 - 1e-6)).sum())}")
        assert int(beaten.sum()) <= 1  # with four starts: about 10
        assert path.separable.tolist() == [False] * 20
        assert int(path.starts.min()) > 30
        assert "20 of 20 data sets have best tokens that no known weights separate" in repr(path)
        assert "lower ones may exist" in repr(path)

    def test_a_point_is_called_the_best_found(self):
        data = attsvm.data.random_sphere(n=2, T=3, d=6, seed=0)
        path = regularization_path(data, radii=[1.0])
        assert path.separable.item() is True
        assert path.starts.tolist() == [4]
        assert "best found from 4 starts" in repr(path)

    def test_a_batch_equals_its_single_runs(self):
        data = attsvm.data.random_sphere(n=3, T=4, d=5, batch=3, seed=9)
        path = regularization_path(data, radii=[1.0, 100.0])
        for element in range(3):
            alone = regularization_path(data[element], radii=[1.0, 100.0], seed=[(0, element)])
            assert alone.weights.shape == (2, 5, 5)
            assert float(direction_distance(alone.weights, path.weights[:, element]).max()) < 1e-10


class TestShapes:
    def test_ragged_and_sequence_data(self):
        sphere = attsvm.data.random_sphere(n=4, T=5, d=8, batch=3, seed=1)
        mask = torch.rand(3, 4, 5, generator=torch.Generator().manual_seed(1)) < 0.7
        mask[..., 0] = True
        ragged = TokenDataset(sphere.tokens, sphere.queries, sphere.labels, mask=mask, head=sphere.head)
        sequence = TokenDataset.causal(
            sphere.tokens[:, :1, :3], sphere.labels[:, :1].repeat(1, 3)[:, None], head=sphere.head
        )
        for data in (ragged, sequence):
            _, solution = optimal_svm(data)
            path = regularization_path(data, radii=[1.0, 1e4], restarts=0)
            assert bool((path.attention[:, ~data.mask] == 0).all())
            assert float(direction_distance(path.weights[-1], solution.weights)[solution.solved].max()) < 1e-5

    def test_one_token_leaves_nothing_to_do(self):
        data = TokenDataset(
            torch.ones(2, 1, 3).double(), torch.ones(2, 3).double(), [1, -1], head=torch.ones(3).double()
        )
        path = regularization_path(data, radii=[1.0, 10.0])
        assert bool((path.residual == 0).all())
        assert float(path.risk[0]) == float(path.risk[1])

    def test_float32_data_and_progress(self):
        data = attsvm.data.random_sphere(n=2, T=3, d=4, seed=1, dtype=torch.float32)
        seen = []
        path = regularization_path(
            data, data.head, radii=np.array([1, 10]), progress=lambda done, of: seen.append((done, of))
        )
        assert path.weights.dtype == torch.float64
        assert seen[-1][0] == seen[-1][1] == len(seen)
        assert isinstance(path, RegularizationPath)
        assert "2 radii 1..10" in repr(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"radii": []}, "not empty"),
        ({"radii": [1.0, 0.0]}, "radii must be positive and finite; got 0.0 at position 1"),
        ({"radii": [1.0, float("inf")]}, "finite"),
        ({"radii": [2.0, 1.0]}, "radii must increase"),
        ({"radii": [1.0, 1.0]}, "radii must increase"),
        ({"radii": [[1.0]]}, "one axis"),
        ({"norm": "nuclear"}, "norm must be a norm"),
        ({"norm": Frobenius(), "parameterization": KeyQuery()}, "the ball of KeyQuery is the nuclear one"),
        ({"parameterization": "kq"}, "parameterization must be"),
        ({"restarts": -1}, "restarts"),
        ({"head_radii": [1.0]}, "train_head=True"),
        ({"train_head": True, "head_radii": [1.0, 2.0]}, "one entry for each radius, 1"),
        ({"train_head": True, "head_radii": [-1.0]}, "head_radii must be positive"),
        ({"train_head": True, "head": ReluHead(torch.eye(3).double())}, "linear prediction head"),
        ({"cone": 0.1}, "AngleCone"),
        ({"cone": AngleCone(torch.eye(3).double(), 0.1), "norm": Nuclear()}, "Frobenius"),
        ({"cone": AngleCone(torch.eye(2).double(), 0.1)}, "direction of the cone must have shape"),
        ({"cone": AngleCone(torch.eye(3).double(), 0.1), "train_head": True}, "neither KeyQuery nor train_head"),
    ],
)
def test_bad_input(options, message):
    data = attsvm.data.random_sphere(n=2, T=3, d=3, seed=0)
    with pytest.raises(ValueError, match=message):
        regularization_path(data, **{"radii": [1.0], **options})


@pytest.mark.parametrize(
    ("direction", "opening", "message"),
    [
        (torch.zeros(2, 2).double(), 0.1, "not zero"),
        (torch.ones(2).double(), 0.1, "matrix"),
        (torch.full((2, 2), torch.nan).double(), 0.1, "finite"),
        (torch.eye(2).double(), 0.0, "opening"),
        (torch.eye(2).double(), 1.5, "opening"),
    ],
)
def test_bad_cones(direction, opening, message):
    with pytest.raises(ValueError, match=message):
        AngleCone(direction, opening)


def test_not_a_data_set():
    with pytest.raises(ValueError, match="TokenDataset"):
        regularization_path(torch.ones(2, 3, 4))


def _lowest_of_plain_restarts(data: TokenDataset, radius: float, starts: int) -> Tensor:
    """The lowest risk of plain projected gradient steps from random directions, written without the library."""
    tokens, queries = data.tokens, data.queries
    signed = torch.einsum("bntd,bd->bnt", tokens, data.head) * data.labels.unsqueeze(-1)

    def risk(weights: Tensor) -> Tensor:
        logits = torch.einsum("bntd,sbde,bne->sbnt", tokens, weights, queries)
        return torch.nn.functional.softplus(-(logits.softmax(-1) * signed).sum(-1)).mean(-1)

    def lengths(weights: Tensor) -> Tensor:
        return weights.flatten(-2).norm(dim=-1)[..., None, None]

    shape = (starts, *data.batch_shape, data.d, data.dq)
    weights = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    weights = weights * radius / lengths(weights)
    step, now = torch.full(shape[:2], radius / 3, dtype=torch.float64), risk(weights)
    for _ in range(600):
        point = weights.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(risk(point).sum(), point)
        trial = weights - step[..., None, None] * gradient / lengths(gradient).clamp(min=1e-300)
        trial = trial * radius / lengths(trial).clamp(min=radius)
        then = risk(trial)
        weights = torch.where((then < now)[..., None, None], trial, weights)
        step = torch.where(then < now, 1.3 * step, 0.5 * step)
        now = torch.minimum(now, then)
    return now.amin(0)
