"""The experiments on random data: what is stored, and the mathematics against independent truths."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from attsvm import AttentionSVM, Nuclear, ReluHead, direction_cosine, fit, optimal_tokens, solve
from attsvm.data import random_sphere, streams
from attsvm.experiments import EXPERIMENTS, Verdict, describe_columns, run
from attsvm.experiments.attention_sparsity import VisionTransformer
from attsvm.experiments.common import FARTHER_APART
from attsvm.experiments.dimensions import TOLERANCES, TYPES
from attsvm.experiments.geometry import GEOMETRIES
from attsvm.experiments.multi_token import ACCEPTED, ALL_POSITIVE, CHANGED, OUTCOMES, used
from attsvm.next_token import predict_limit, train, verify
from experiments.results import RANDOM, result_of


@pytest.mark.parametrize("name", RANDOM)
def test_results_describe_themselves(name):
    result = result_of(name)
    assert result.tables
    for table in result.tables.values():
        assert table.num_rows > 0
        assert all(describe_columns(table).values())
    json.dumps(result.manifest, allow_nan=False)
    checks = EXPERIMENTS[name].checks(result)
    assert len(checks) >= 3
    assert all(isinstance(check.verdict, Verdict) and check.expected and check.measured for check in checks)


@pytest.mark.parametrize("name", RANDOM)
def test_quick_and_full_configurations_are_told_apart(name):
    default = EXPERIMENTS[name].default
    assert default.quick().fingerprint(name, "cpu") != default.fingerprint(name, "cpu")
    tasks = EXPERIMENTS[name].tasks(default)
    assert len({task.name for task in tasks}) == len(tasks)


def test_local_convergence_cosines_are_those_of_a_plain_run():
    """The same data set alone, trained and solved by hand."""
    result = result_of("local-convergence")
    data = random_sphere(n=6, T=8, d=10, batch=1, seed=[(0, 3)])
    run_by_hand = fit(data, steps=2000, record=[2000], seed=[(0, 3)])
    problem = AttentionSVM(data, run_by_hand.selected)
    where = {"dataset": 3, "parameterization": "W", "run": "paper", "step": 2000}
    for norm, column in ((None, "cosine_frobenius"), (Nuclear(), "cosine_nuclear")):
        expected = float(direction_cosine(run_by_hand.weights, solve(problem, norm).weights))
        assert result.column("history", column, **where)[0] == pytest.approx(expected, abs=1e-9)
    optimal = bool((run_by_hand.selected == optimal_tokens(data)).all())
    assert result.column("history", "optimal", **where)[0] == optimal


def test_the_ridge_brings_key_query_nearer_to_the_nuclear_solution():
    result = result_of("local-convergence")
    bare, ridged = (
        np.median(result.column("history", "cosine_nuclear", parameterization="KQ", run="long", ridge=ridge, step=3000))
        for ridge in (0.0, 2.2e-16)
    )
    assert ridged > bare


def test_ranks_are_bounded_and_infeasible_draws_are_not_ranked():
    result = result_of("rank")
    table = {name: result.column("solutions", name) for name in ("n", "d", "feasible", "infeasible", "rank_1e-06")}
    assert (table["feasible"] ^ table["infeasible"]).all()
    assert not table["feasible"][table["d"] == 1].any()
    assert (table["rank_1e-06"][~table["feasible"]] == 0).all()
    bound = np.minimum(table["n"], table["d"])
    assert (table["rank_1e-06"] <= bound).all()
    assert (table["rank_1e-06"][table["feasible"]] >= 1).all()


def test_ranks_count_the_stored_singular_values():
    result = result_of("rank")
    spectrum = result.arrays["spectra"]
    for tolerance in TOLERANCES:
        counted = ((spectrum > tolerance * spectrum[:, :1]) & (spectrum > 0)).sum(1)
        assert (counted == result.column("solutions", f"rank_{tolerance:g}")).all()


def test_rank_draws_on_where_few_draws_are_separable():
    result = result_of("rank")
    for n, T in ((3, 4), (5, 4)):
        for d in (3, 6):
            where = {"norm": "frobenius", "n": n, "T": T, "d": d}
            feasible, drawn = (
                result.column("solutions", "feasible", **where),
                result.column("solutions", "draw", **where),
            )
            assert sorted(drawn) == list(range(len(drawn)))
            assert feasible.sum() >= 8 or len(drawn) == 24
    assert len(result.column("solutions", "draw", norm="frobenius", d=1, n=3)) == 8


def test_types_of_convergence_follow_their_definitions():
    result = result_of("convergence-types")
    kind, least = result.column("runs", "type"), result.column("runs", "least_attention")
    assert set(kind) <= set(TYPES)
    assert ((least < 0.999) == (kind == "not saturated")).all()
    assert result.column("runs", "separable")[kind == "local"].all()
    high = result.column("runs", "type", d=320)
    assert (high == "global").all()
    assert result.column("runs", "all_support", d=320).all()
    assert not result.column("runs", "all_support", d=2).any()


def test_runs_in_the_spans_are_the_runs_in_the_whole_space():
    """The optimal share of d = 20 again, without the reduction to spans."""
    result = result_of("convergence-types")
    seeds = [(0, element) for element in range(12)]
    data = random_sphere(n=4, T=6, d=20, batch=12, seed=seeds)
    whole = fit(data, steps=3000, initial="zeros", record=[0], keep=())
    reached = (whole.selected == optimal_tokens(data)).all(-1).numpy()
    assert ((result.column("runs", "type", d=20, start="zero") == "global") == reached).all()


def test_favourable_first_gradients_stay_in_the_cone_after_a_large_step():
    result = result_of("first-gradient")
    assert result.column("datasets", "large_stayed", favourable=True).all()
    assert result.column("datasets", "large_optimal", favourable=True).all()
    assert ((result.column("datasets", "margin") > 0) == result.column("datasets", "favourable")).all()


def test_narrow_cones_of_large_norm_lead_back_to_local_optima_only():
    result = result_of("cones")
    inside = {"opening": 1e-5, "radius": 1e3}
    assert (result.column("cells", "returned", kind="global", **inside) == 1).all()
    assert result.column("cells", "returned", kind="not local", opening=1e-5, radius=1.0).max() == 0


def test_causal_runs_turn_to_the_united_svm():
    result = result_of("causal")
    late, early = (result.column("history", "cosine_frobenius", parameterization="W", step=s) for s in (1500, 10))
    assert np.median(late) > 0.99 > np.median(early)
    assert set(result.counts.values()) == {0}


def test_multi_token_accepts_what_the_paper_accepts():
    """The outcome of every draw of one chunk, by a loop over draws with the paper's words."""
    configuration = EXPERIMENTS["multi-token"].default.with_values(**RANDOM["multi-token"])
    outcome = result_of("multi-token").column("draws", "outcome", protocol="paper", d=4)[:40]
    seeds = [(0, element) for element in range(40)]
    data = random_sphere(n=3, T=4, d=4, batch=40, seed=seeds)
    own = streams([(1_000_003, element) for element in range(40)], (40,))
    for element in range(40):
        if (data.labels[element] > 0).all():
            assert outcome[element] == ALL_POSITIVE
            continue
        matrix = own[element].standard_normal((4, 4))
        head = ReluHead(torch.from_numpy(matrix / np.linalg.norm(matrix)))
        attention = fit(
            data[element].with_head(None),
            head,
            steps=configuration.steps,
            record=[0],
            keep=(),
            seed=[(2_000_003, element)],
        ).attention
        between = bool(((attention > 1e-6) & (attention <= 1e-3)).any())
        dropped = bool((attention <= 1e-6).any())
        assert (outcome[element] == ACCEPTED) == (not between and dropped)


def test_multi_token_counts_every_draw_once_and_goes_on_until_enough():
    result = result_of("multi-token")
    for d in (4, 10):
        outcomes = result.column("draws", "outcome", protocol="paper", d=d)
        assert sum(result.counts[f"paper, d={d}: {reason}"] for reason in OUTCOMES) == len(outcomes)
        assert (outcomes == ACCEPTED).sum() >= 8
        assert len(used(result, "draw", d)) == 8
        assert np.isnan(result.column("draws", "distance_svm", protocol="paper", d=d)[outcomes != ACCEPTED]).all()


def test_runs_of_the_split_gradient_are_those_the_paper_accepts_and_end_near_or_silent():
    result = result_of("multi-token")
    where = {"protocol": "split", "d": 4}
    split = result.column("draws", "outcome", **where)
    paper = result.column("draws", "outcome", protocol="paper", d=4)[: len(split)]
    assert ((split == ACCEPTED) | (split == CHANGED)).tolist() == (paper == ACCEPTED).tolist()
    silent, far = (result.column("draws", name, outcome=ACCEPTED, **where) for name in ("silent", "distance_outside"))
    before = result.column("draws", "distance_outside", protocol="paper", d=4)[: len(split)][split == ACCEPTED]
    assert set(silent) <= {0.0, 1.0}
    assert (far[silent == 0] < before[silent == 0]).all()


@pytest.mark.parametrize("name", ["next-token-acyclic", "next-token-cyclic"])
def test_random_next_tokens_are_of_their_kind_and_predicted_as_one_by_one(name):
    experiment, result = EXPERIMENTS[name], result_of(name)
    configuration = experiment.default.with_values(**RANDOM[name])
    task = experiment.tasks(configuration)[0]
    graph = configuration.draw(task)[1]
    assert graph.acyclic == (name == "next-token-acyclic")
    assert graph.strict.any()
    limit = predict_limit(graph)
    seed, number = configuration.seeds(task)[1]
    found = verify(limit, train(limit, steps=120, seed=[(seed + FARTHER_APART, number)]))
    K, d, n, T = configuration.shapes[0]
    where = {"K": K, "d": d, "n": n, "T": T, "dataset": 1, "gradient": "split", "step": 120}
    for column, value in (("cosine", found.cosine), ("growth", found.growth)):
        assert result.column("runs", column, **where)[0] == pytest.approx(value, rel=1e-6)
    share = found.finite_distance / (1 + found.finite_norm)
    assert result.column("runs", "finite_distance", **where)[0] == pytest.approx(share, rel=1e-3, abs=1e-10)


def test_the_text_is_asked_windows_it_has_not_seen():
    result = result_of("next-token-text")
    assert result.column("texts", "infeasible", d=2).all()
    assert np.isnan(result.column("texts", "growth", d=2)).all()
    assert result.column("texts", "feasible", d=90).all()
    d, kind, predicted, trained = result.arrays["answers"].T
    assert set(d) == {90}
    assert set(kind) <= {0, 1, 2}
    fresh = sum(result.column("texts", name, d=90)[0] for name in ("by_graph", "by_svm", "open"))
    assert predicted.sum() == pytest.approx(fresh)
    assert trained.sum() == pytest.approx(fresh)


def test_decaying_steps_lose_few_draws():
    result = result_of("multi-token")
    for d in (4, 10):
        outcomes = result.column("draws", "outcome", protocol="decaying", d=d)
        assert (outcomes == ACCEPTED).sum() > 0.5 * (outcomes != ALL_POSITIVE).sum()


def test_quadratic_attention_sums_to_one_and_matches():
    result = result_of("quadratic-head")
    for column in ("attention", "predicted"):
        sums = result.column("tokens", column).reshape(-1, 6).sum(1)
        assert np.allclose(sums, 1, atol=1e-12)
    error = np.abs(result.column("tokens", "attention") - result.column("tokens", "predicted"))
    assert error.max() < 1e-5


def test_paths_come_nearer_with_the_radius():
    result = result_of("regularization-path")
    for path in ("W", "KQ", "joint tight", "relu"):
        distance = result.column("points", "distance", path=path, source="path").reshape(2, -1)
        assert (distance[-1] < distance[0]).all(), path
    radius = result.column("points", "radius", path="W", source="path")
    assert np.allclose(np.unique(radius), [1, 10])


@pytest.mark.parametrize("name", GEOMETRIES)
def test_optimizers_are_measured_in_every_norm(name):
    result, setup = result_of(name), GEOMETRIES[name].default
    table = result.tables["pairs"]
    assert table.num_rows == len(setup.rows()) * len(setup.norms()) * 2
    efficiency = result.column("pairs", "efficiency")
    assert (efficiency <= 1 + 1e-7).all()
    assert set(result.counts.values()) == {0}


def test_the_transformer_keeps_the_attention_it_used():
    """softmax(X K Q^T z) from the homogeneous factors is the attention of the forward pass."""
    torch.manual_seed(0)
    model = VisionTransformer(patches=4, pixels=3, classes=2, width=8, layers=2, heads=2).double()
    model(torch.rand(5, 4, 3, dtype=torch.float64))
    assert len(model.attentions) == 2
    for own in model.attentions:
        states = torch.cat([own.seen, torch.ones_like(own.seen[..., :1])], -1)
        keys, queries = own.key_query()
        logits = torch.einsum("btd,hdm,hem,bqe->bhqt", states, keys, queries, states)
        assert torch.allclose(torch.softmax(logits, -1), own.attention, atol=1e-12)


def test_attention_sparsity_learns_and_stores_states():
    result = result_of("attention-sparsity")
    assert result.column("heads", "accuracy", epoch=4).min() > result.column("heads", "accuracy", epoch=0).max() + 0.3
    states, attention = result.arrays["states"], result.arrays["attention"]
    assert states.shape == (2, 2, 12, 17, 32)
    assert np.allclose(attention.sum(-1), 1, atol=1e-5)


@pytest.mark.parametrize("name", ["local-convergence", "first-gradient", "causal", "convergence-types"])
def test_chunks_do_not_change_the_numbers(name, tmp_path):
    """Another chunk size gives the same rows, whatever their order, to round-off."""
    whole = result_of(name)
    size = max(2, RANDOM[name]["chunk_size"] // 2)
    configuration = EXPERIMENTS[name].default.with_values(**{**RANDOM[name], "chunk_size": size})
    other = run(EXPERIMENTS[name], configuration, folder=tmp_path / name)
    (table,) = whole.tables
    keys = [
        c
        for c in ("parameterization", "ridge", "run", "start", "d", "step", "dataset")
        if c in whole.tables[table].column_names
    ]
    left, right = (each.tables[table].sort_by([(key, "ascending") for key in keys]) for each in (whole, other))
    assert left.num_rows == right.num_rows
    for column in left.column_names:
        one, two = left[column].to_numpy(), right[column].to_numpy()
        if one.dtype.kind == "f":
            # (K, Q) runs amplify round-off once they oscillate, so only W's are compared.
            keep = (
                np.ones(len(one), bool)
                if "parameterization" not in keys
                else left["parameterization"].to_numpy() == "W"
            )
            assert np.allclose(one[keep], two[keep], atol=1e-7, equal_nan=True), column
