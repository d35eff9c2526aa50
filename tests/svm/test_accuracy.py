"""Accuracy at the papers' sizes: every problem solved, with proof. The full 1,000 of each run in benchmarks."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from attsvm import optimal_tokens
from attsvm.data import random_sphere
from attsvm.norms import Frobenius, MaxEntry, Norm, Nuclear
from attsvm.svm import AttentionSVM, BatchedFrobenius, BlockDescent, LinearProgram, Status, solve

from .checks import NORMS, random_selection

SIZES = [(6, 8, 10), (15, 5, 20), (5, 15, 20), (10, 10, 10)]
every_size = pytest.mark.parametrize("size", SIZES, ids=str)
every_selection = pytest.mark.parametrize("selection", ["optimal", "random"])


def problems(size: tuple[int, int, int], selection: str, count: int) -> AttentionSVM:
    n, T, d = size
    data = random_sphere(n=n, T=T, d=d, batch=count, seed=100)
    return AttentionSVM(data, optimal_tokens(data) if selection == "optimal" else random_selection(data, 100))


def shown(solution, capsys: pytest.CaptureFixture[str]) -> None:
    counts = Counter(status.name for status in solution.status.ravel())
    gap, margin = solution.certificate.relative_gap.max().item(), solution.certificate.min_margin.min().item()
    with capsys.disabled():
        print(f"\n{solution!r} statuses {dict(counts)}, largest gap {gap:.1e}, smallest margin 1 {margin - 1:+.1e}")


@pytest.mark.slow
@every_size
@every_selection
def test_frobenius(size, selection: str, capsys: pytest.CaptureFixture[str]) -> None:
    solution = solve(problems(size, selection, 250))
    shown(solution, capsys)
    # d >= max(T - 1, n): almost every selection can be separated.
    assert bool(solution.solved.all())
    certificate = solution.certificate
    assert certificate.relative_gap.max() <= 1e-10
    assert certificate.min_margin.min() >= 1 - 1e-10
    assert certificate.largest_violation.max() <= 1e-10
    assert certificate.dual_violation.max() <= 1e-10


@pytest.mark.slow
@every_size
@every_selection
def test_nuclear(size, selection: str, capsys: pytest.CaptureFixture[str]) -> None:
    solution = solve(problems(size, selection, 60), Nuclear())
    shown(solution, capsys)
    assert bool(solution.solved.all())
    gaps = solution.certificate.relative_gap
    assert gaps.max() <= 1e-8
    assert (gaps <= 1e-10).double().mean() >= 0.95
    assert solution.certificate.min_margin.min() >= 1 - 1e-8


@pytest.mark.slow
@every_size
@pytest.mark.parametrize("solver", [BatchedFrobenius(), BlockDescent()], ids=lambda solver: type(solver).__name__)
def test_the_other_frobenius_solvers(solver, size) -> None:
    problem = problems(size, "random", 40)
    found, expected = solve(problem, solver=solver), solve(problem)
    assert bool(found.solved.all())
    assert found.certificate.relative_gap.max() <= solver.accuracy
    values = found.certificate.primal_value / expected.certificate.primal_value
    assert (values - 1).abs().max() <= solver.accuracy


@pytest.mark.slow
@pytest.mark.parametrize("norm", [norm for norm in NORMS if not isinstance(norm, (Frobenius, Nuclear))], ids=repr)
@pytest.mark.parametrize(("size", "count"), [((6, 8, 10), 3), ((5, 15, 14), 2)], ids=str)
def test_linear_and_conic_norms(norm: Norm, size, count: int) -> None:
    solution = solve(problems(size, "random", count), norm)
    assert {*solution.status} == {Status.SOLVED}
    assert solution.certificate.relative_gap.max() <= 1e-7
    assert solution.certificate.min_margin.min() >= 1 - 1e-7


@pytest.mark.slow
def test_a_batch_over_processes_equals_its_single_solves(monkeypatch: pytest.MonkeyPatch) -> None:
    """32 problems or more of a norm without a batched solver go to several processes, here from the first one on."""
    monkeypatch.setattr("attsvm.svm.solvers.dense.rows._PATIENCE", 0.0)
    data = random_sphere(n=2, T=3, d=4, batch=33, seed=9)
    problem = AttentionSVM(data, random_selection(data, 9))
    spread = solve(problem, MaxEntry(), solver=LinearProgram(workers=2))
    alone = solve(problem, MaxEntry(), solver=LinearProgram(workers=1))
    assert torch.equal(spread.weights, alone.weights)
    assert bool(spread.solved.all())
