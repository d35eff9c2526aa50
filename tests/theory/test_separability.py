"""Separability: verdicts with proofs, the theorem on dimensions both ways, ranks."""

from __future__ import annotations

import pytest
import torch

from attsvm import AttentionSVM, Nuclear, TokenDataset, optimal_tokens, solve
from attsvm.data import random_sphere
from attsvm.theory.separability import constructive_weights, rank_bound, separability, separable_by_dimension
from cases import CASES, Case

SEEDS = 30


def choices(data: TokenDataset, seed: int) -> torch.Tensor:
    return torch.randint(data.T, (*data.batch_shape, data.n), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_verdict_and_proof_on_every_case(case: Case) -> None:
    found = separability(case.data, case.selected)
    problem = AttentionSVM(case.data, case.selected)
    assert bool(found.separable.all()) is case.feasible
    assert not found.undecided.any()
    if case.feasible:
        margins = problem.margins(found.weights)[problem.rows]
        assert bool((margins > 1 - 1e-8).all())
        assert not found.ray.any()
    else:
        ray = found.ray
        assert bool((ray >= 0).all())
        torch.testing.assert_close(ray.sum((-1, -2)), torch.ones(case.data.batch_shape).double())
        assert float(torch.linalg.matrix_norm(problem.combine(ray)).max()) < 1e-9
        assert bool((found.bound > 1e8).all())
        assert bool(found.weights.isnan().all())


def test_a_batch_of_verdicts_has_no_single_truth_value() -> None:
    data = random_sphere(n=2, T=3, d=4, batch=2, seed=0)
    with pytest.raises(ValueError, match=r"use .separable"):
        bool(separability(data, optimal_tokens(data)))


@pytest.mark.parametrize(("n", "T", "d", "dq"), [(3, 5, 4, 3), (4, 3, 2, 4), (2, 2, 1, 2)])
def test_cross_attention_theorem(n: int, T: int, d: int, dq: int) -> None:
    """At d = T - 1 and dq = n every selection drawn is separable, with the weights of the proof."""
    data = random_sphere(n=n, T=T, d=d, dq=dq, batch=SEEDS, seed=1)
    if d > 1:
        tokens = data.tokens
    else:
        tokens = data.tokens * torch.rand(SEEDS, n, T, 1, generator=torch.Generator().manual_seed(0)).double()
    data = TokenDataset(tokens, data.queries, data.labels)
    condition = separable_by_dimension(data)
    assert condition.holds.all()
    assert condition.margin.tolist() == [0.0] * SEEDS
    for seed in range(5):
        selected = choices(data, seed)
        problem = AttentionSVM(data, selected)
        weights = constructive_weights(data, selected)
        margins = problem.margins(weights)
        torch.testing.assert_close(margins, problem.rows.double(), atol=1e-7, rtol=0)
        assert separability(data, selected).separable.all()


def test_self_attention_theorem() -> None:
    drawn = random_sphere(n=4, T=5, d=4, batch=SEEDS, seed=2)
    data = TokenDataset.self_attention(drawn.tokens, drawn.labels)
    assert separable_by_dimension(data).holds.all()
    for seed in range(5):
        selected = choices(data, seed)
        assert not constructive_weights(data, selected).isnan().any()
        assert separability(data, selected).separable.all()


def test_prompt_theorem_and_too_few_dimensions() -> None:
    at = TokenDataset.prompt(random_sphere(n=3, T=3, d=6, batch=SEEDS, seed=3).tokens, torch.ones(SEEDS, 3))
    below = TokenDataset.prompt(random_sphere(n=3, T=3, d=2, batch=SEEDS, seed=3).tokens, torch.ones(SEEDS, 3))
    assert separable_by_dimension(at).margin.tolist() == [0.0] * SEEDS
    assert separable_by_dimension(below).margin.tolist() == [-4.0] * SEEDS
    lost = 0
    for seed in range(5):
        selected = choices(at, seed)
        torch.testing.assert_close(
            AttentionSVM(at, selected).margins(constructive_weights(at, selected)),
            AttentionSVM(at, selected).rows.double(), atol=1e-7, rtol=0,
        )  # fmt: skip
        assert separability(at, selected).separable.all()
        lost += int((~separability(below, selected).separable).sum())
    print(f"prompts of 3 inputs of 3 tokens: at d = 6 none of {5 * SEEDS} inseparable, at d = 2 {lost}")
    assert lost > SEEDS
    with pytest.raises(ValueError, match="the dimensions do not suffice, 4 are lacking"):
        constructive_weights(below, choices(below, 0))


@pytest.mark.parametrize(("n", "T", "d", "dq"), [(6, 5, 2, 2), (3, 8, 2, 3)])
def test_too_few_dimensions_can_leave_selections_inseparable(n: int, T: int, d: int, dq: int) -> None:
    tokens = torch.randn(SEEDS, n, T, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    queries = torch.randn(SEEDS, n, dq, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    data = TokenDataset(tokens, queries, torch.ones(SEEDS, n))
    assert not separable_by_dimension(data).holds.any()
    inseparable = sum(int((~separability(data, choices(data, seed)).separable).sum()) for seed in range(5))
    print(f"n={n} T={T} d={d} dq={dq}: {inseparable} of {5 * SEEDS} selections inseparable")
    assert inseparable > 0


def test_the_measure_zero_exceptions() -> None:
    data = random_sphere(n=3, T=4, d=5, batch=2, seed=4)
    tokens = data.tokens.clone()
    tokens[1, 0, 1] = tokens[1, 0, 0]  # a duplicate of the selected token
    twins = TokenDataset(tokens, data.queries, data.labels)
    assert separable_by_dimension(twins).holds.all()
    weights = constructive_weights(twins, torch.zeros(2, 3, dtype=torch.int64))
    assert weights.isnan().any(-1).any(-1).tolist() == [False, True]
    assert separability(twins, torch.zeros(2, 3, dtype=torch.int64)).separable.tolist() == [True, False]


def test_ragged_and_shared_tokens_are_counted_as_they_are() -> None:
    data = random_sphere(n=3, T=5, d=2, dq=2, seed=5)
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 0, 0, 0, 0], [1, 1, 0, 0, 0]]).bool()
    ragged = TokenDataset(data.tokens, data.queries, data.labels, mask=mask)
    assert separable_by_dimension(ragged).margin.item() == 0  # two tokens to beat, two inputs that ask
    assert separability(ragged, [0, 0, 0])
    assert not constructive_weights(ragged, [0, 0, 0]).isnan().any()
    causal = TokenDataset.causal(random_sphere(n=1, T=3, d=8, seed=6).tokens, torch.ones(1, 3))
    assert separable_by_dimension(causal).margin.item() == 6  # the first position sees one token and asks for nothing
    assert not constructive_weights(causal, [0, 1, 1]).isnan().any()


def test_the_rank_of_solutions_is_bounded() -> None:
    total = 0
    for n, T, d, dq in ((2, 4, 5, 6), (5, 3, 3, 4), (4, 4, 6, 2), (1, 5, 4, 4)):
        data = random_sphere(n=n, T=T, d=d, dq=dq, batch=10, seed=n)
        selected = optimal_tokens(data)
        plain, sharp = rank_bound(data), rank_bound(data, selected)
        assert plain.tolist() == [min(n, d, dq)] * 10
        assert bool((sharp <= plain).all())
        for norm in (None, Nuclear()):
            solution = solve(AttentionSVM(data, selected), norm)
            total += int(solution.solved.sum())
            assert bool((solution.rank(1e-6) <= sharp)[solution.solved].all())
    print(f"ranks of {total} solutions within the bound")
    assert total >= 70


def test_the_rank_bound_sees_spans() -> None:
    data = random_sphere(n=4, T=3, d=6, seed=7)
    queries = data.queries.clone()
    queries[2], queries[3] = 2 * queries[0], -queries[1]
    assert rank_bound(TokenDataset(data.tokens, queries, data.labels)).item() == 4
    assert rank_bound(TokenDataset(data.tokens, queries, data.labels), [0, 0, 0, 0]).item() == 2
    flat = data.tokens.clone()
    flat[..., 1:] = 0
    assert rank_bound(TokenDataset(flat, data.queries, data.labels), [0, 0, 0, 0]).item() == 1


def test_tokens_a_millionth_apart_are_separable() -> None:
    """W has margins of 1 and misses the tolerance by round-off: separable, and nobody says no."""
    data = random_sphere(n=6, T=8, d=10, batch=40, seed=607)
    best, tokens = optimal_tokens(data), data.tokens.clone()
    step = torch.randn(40, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(608))
    each = torch.arange(40)
    tokens[each, 0, (best[:, 0] + 1) % 8] = tokens[each, 0, best[:, 0]] - 1e-6 * step / step.norm(dim=-1, keepdim=True)
    close = TokenDataset(tokens, data.queries, data.labels)
    solution = solve(AttentionSVM(close, best))
    assert int((~solution.solved).sum()) > 0  # else the test says nothing
    assert bool(solution.separable.all())
    found = separability(close, best)
    assert bool(found.separable.all())
    assert not bool(found.undecided.any())
