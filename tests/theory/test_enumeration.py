"""Enumeration against the definition, candidate by candidate; counts; samples."""

from __future__ import annotations

import inspect
import itertools
import time

import pytest
import torch

from attsvm import AttentionSVM, Frobenius, Nuclear, QuadraticHead, TokenDataset, fit, solve
from attsvm.attention import Head
from attsvm.data import example, random_sphere
from attsvm.norms import Norm
from attsvm.theory.enumeration import (
    LocalOptima,
    every_separable_selection,
    locally_optimal_selections,
    locally_optimal_selections_of_each,
)
from attsvm.theory.optimality import is_locally_optimal
from cases import CASES, Case, case


def brute_force(data: TokenDataset, head: Head | None = None, norm: Norm | None = None) -> set[tuple[int, ...]]:
    """Every selection put to the definition, its own whole SVM solved."""
    real = torch.ones(data.n, data.T, dtype=torch.bool) if data.mask is None else data.mask
    choices = [torch.nonzero(row).flatten().tolist() for row in real]
    every = torch.tensor(list(itertools.product(*choices)))
    many = data.flatten()[torch.zeros(len(every), dtype=torch.int64)]
    verdict = is_locally_optimal(many, head if head is not None else data.head, every, norm)
    assert not verdict.undecided.any()
    return {tuple(row) for row in every[verdict.holds].tolist()}


def found(result: LocalOptima) -> set[tuple[int, ...]]:
    assert result.pruned + result.tried == result.candidates or not result.exhaustive
    assert result.tried == len(result) + result.infeasible + result.rejected + len(result.failed)
    assert bool((result.norms.diff() >= 0).all())
    return {tuple(row) for row in result.selections.tolist()}


@pytest.mark.parametrize("d", [1, 2, 3, 6])
def test_against_the_definition(d: int) -> None:
    data = random_sphere(n=3, T=4, d=d, batch=12, seed=d)
    results = locally_optimal_selections_of_each(data)
    for b, result in enumerate(results):
        assert result.exhaustive
        assert result.candidates == 64
        assert found(result) == brute_force(data[b])
        torch.testing.assert_close(result.norms, Frobenius().value(result.weights))
    pruned, infeasible = (sum(getattr(result, name) for result in results) for name in ("pruned", "infeasible"))
    print(f"d = {d}: 12 data sets, {pruned} pruned, {infeasible} infeasible, {sum(map(len, results))} locally optimal")
    assert (pruned + infeasible > 0) == (d < 3)


# "d too small" has 1.7 million selections, of which pruning leaves 252; its brute force agreed, in four minutes.
SMALL = [one for one in CASES if not one.data.batch_shape and one.name != "d too small"]


@pytest.mark.parametrize("one", SMALL, ids=lambda one: one.name)
def test_on_every_case(one: Case) -> None:
    result = locally_optimal_selections(one.data)
    assert found(result) == brute_force(one.data)
    assert len(result.failed) == 0
    assert one.unique is False or bool(result.is_optimal.any()) is one.feasible


def test_nuclear_norm() -> None:
    data = random_sphere(n=3, T=3, d=4, batch=4, seed=3)
    for b in range(4):
        assert found(locally_optimal_selections(data[b], norm=Nuclear())) == brute_force(data[b], norm=Nuclear())


def test_nonlinear_head() -> None:
    data = random_sphere(n=3, T=4, d=5, batch=6, seed=4)
    differ = 0
    heads = QuadraticHead(data.head, torch.linspace(0.2, 1.0, 6).double())
    each = locally_optimal_selections_of_each(data, heads)
    for b in range(6):
        head = QuadraticHead(data.head[b], heads.penalty[b])
        assert found(each[b]) == brute_force(data[b], head)
        differ += found(each[b]) != brute_force(data[b])
    assert differ > 0


def test_single_input_examples() -> None:
    both = locally_optimal_selections(example("single-input-local"))
    assert both.is_optimal.tolist() == [True, False]
    assert found(locally_optimal_selections(example("single-input-global"))) == {(0,)}


def test_every_selection_of_four_inputs_of_six_tokens_in_two_seconds() -> None:
    data = random_sphere(n=4, T=6, d=10, batch=2, seed=0)
    locally_optimal_selections(data[0])
    began = time.perf_counter()
    result = locally_optimal_selections(data[1])
    seconds = time.perf_counter() - began
    print(f"1,296 selections in {seconds:.2f} s")
    assert result.tried == 1296
    assert seconds < 2


def test_progress_and_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    data = random_sphere(n=3, T=5, d=4, seed=0)
    whole = locally_optimal_selections(data)
    monkeypatch.setitem(inspect.unwrap(locally_optimal_selections).__globals__, "_CHUNK_BYTES", 20_000)
    calls: list[tuple[int, int]] = []
    parts = locally_optimal_selections(data, progress=lambda done, total: calls.append((done, total)))
    assert found(parts) == found(whole)
    assert len(calls) > 2
    assert calls[-1] == (parts.tried, parts.tried)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


def test_a_sample_is_labelled_and_holds_only_local_optima() -> None:
    data = random_sphere(n=5, T=5, d=6, seed=1)
    every = locally_optimal_selections(data)
    sample = locally_optimal_selections(data, limit=100, starts=60)
    assert every.exhaustive
    assert not sample.exhaustive
    assert "a sample of" in repr(sample)
    assert found(sample) <= found(every)
    assert bool(sample.is_optimal.any())
    assert sample.reached is not None
    assert int(sample.reached.sum()) <= 60


def test_pruning_reaches_beyond_the_limit() -> None:
    data = case("d too small").data
    result = locally_optimal_selections(data, limit=5000)
    assert result.exhaustive
    assert (result.candidates, result.tried, len(result)) == (6**8, 252, 14)
    many = data.flatten()[torch.zeros(14, dtype=torch.int64)]
    assert is_locally_optimal(many, data.head, result.selections).holds.all()


def test_descent_ends_only_at_local_optima() -> None:
    """[TaSVM, local convergence] both ways: over 30 problems and 32 starts each, saturated runs end at listed ones."""
    data = random_sphere(n=4, T=5, d=8, batch=30, seed=8)
    run = fit(data, starts=32, steps=4000, keep=())
    settled = (run.attention.amax(-1) > 0.99).all(-1)
    results = locally_optimal_selections_of_each(data)
    listed = torch.tensor([
        [tuple(run.selected[s, b].tolist()) in found(results[b]) for b in range(30)] for s in range(32)
    ])  # fmt: skip
    outside = int((settled & ~listed).sum())
    print(f"960 runs: {int(settled.sum())} saturated, {outside} of them outside the list")
    assert int(settled.sum()) > 900
    assert outside <= 0.01 * int(settled.sum())


def test_separable_selections() -> None:
    line = TokenDataset(torch.tensor([[[-1.0], [0.0], [1.0]]]).double(), torch.ones(1, 1).double(), [1])
    kept, margins, undecided = every_separable_selection(line)
    assert kept.tolist() == [[0], [2]]
    assert margins.tolist() == [[[0.0, 1.0, 2.0]], [[2.0, 1.0, 0.0]]]
    assert undecided == 0
    with pytest.raises(ValueError, match="limit must be at least the number of candidates, up to 3; got 2"):
        every_separable_selection(line, limit=2)


def test_rows_of_a_relaxed_problem() -> None:
    """`AttentionSVM(rows=...)` keeps the rows it is told to: as if the other tokens were masked."""
    data = random_sphere(n=3, T=4, d=5, batch=8, seed=9)
    selected = torch.zeros(8, 3, dtype=torch.int64)
    rows = torch.rand(8, 3, 4, generator=torch.Generator().manual_seed(0)) < 0.5
    relaxed = AttentionSVM(data, selected, rows=rows)
    mask = rows.clone()
    mask[..., 0] = True
    masked = AttentionSVM(TokenDataset(data.tokens, data.queries, data.labels, mask=mask), selected)
    assert relaxed.inequalities.equal(masked.inequalities)
    assert not relaxed.inequalities[..., 0].any()
    torch.testing.assert_close(solve(relaxed).weights, solve(masked).weights)
    assert not relaxed.margins(solve(relaxed).weights)[~relaxed.rows].any()
    empty = AttentionSVM(data, selected, rows=torch.zeros_like(rows))
    assert bool((solve(empty).weights == 0).all())
    with pytest.raises(ValueError, match="rows must be a boolean mask; got float32"):
        AttentionSVM(data, selected, rows=rows.float())
    with pytest.raises(ValueError, match=r"rows must have shape \[8, 3, 4\]"):
        AttentionSVM(data, selected, rows=rows[0])


def test_bad_input_is_answered_in_a_sentence() -> None:
    data = random_sphere(n=2, T=3, d=3, batch=2, seed=0)
    with pytest.raises(ValueError, match=r"one data set; got a batch \[2\]"):
        locally_optimal_selections(data)
    with pytest.raises(ValueError, match="limit must be a positive integer; got 0"):
        locally_optimal_selections(data[0], limit=0)
