"""Large Frobenius problems: agreement with the exact solver, time, memory, infeasible ones, progress."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from importlib import import_module

import numpy as np
import pytest
import torch

from attsvm import optimal_tokens
from attsvm.data import TokenDataset, random_sphere
from attsvm.norms import MaxEntry
from attsvm.svm import ActiveSet, AttentionSVM, BlockDescent, Status, solve
from cases import case

from .checks import check_same_weights, dataset, sphere_points


def planted(n: int, T: int, d: int, seed: int) -> AttentionSVM:
    """Selections that a hidden W makes by its logits: always separable."""
    rng = np.random.default_rng(seed)
    tokens, queries, hidden = sphere_points(rng, n, T, d), sphere_points(rng, n, d), rng.standard_normal((d, d))
    logits = np.einsum("ntd,de,ne->nt", tokens, hidden, queries)
    return AttentionSVM(dataset(tokens, queries), logits.argmax(1))


@pytest.mark.parametrize(("n", "T", "d"), [(30, 10, 20), (60, 6, 16), (12, 40, 24)])
@pytest.mark.parametrize("selection", ["optimal", "planted"])
def test_agreement_with_the_exact_solver(n: int, T: int, d: int, selection: str) -> None:
    data = random_sphere(n=n, T=T, d=d, seed=1)
    problem = planted(n, T, d, 1) if selection == "planted" else AttentionSVM(data, optimal_tokens(data))
    exact, large = solve(problem, solver=ActiveSet()), solve(problem, solver=BlockDescent())
    assert exact.status is large.status
    assert exact.status is not Status.NOT_CONVERGED
    if exact.status is Status.SOLVED:
        assert large.certificate.relative_gap.item() <= 1e-8
        check_same_weights(large.weights, exact.weights, 1e-4)
        assert large.certificate.primal_value.item() == pytest.approx(exact.certificate.primal_value.item(), rel=1e-8)


def test_large_problems_go_to_block_descent() -> None:
    problem = planted(60, 30, 32, 2)
    assert int(problem.rows.sum()) == 60 * 29
    solution = solve(problem).require_solved()
    assert solution.solver == "BlockDescent"
    assert solution.certificate.relative_gap.item() <= 1e-8


@pytest.mark.slow
@pytest.mark.parametrize("selection", ["optimal", "planted"])
def test_seven_thousand_rows_in_seconds(selection: str) -> None:
    """n = 300, T = 24, d = 32: 6,900 rows."""
    data = random_sphere(n=300, T=24, d=32, seed=3)
    problem = planted(300, 24, 32, 3) if selection == "planted" else AttentionSVM(data, optimal_tokens(data))
    began = time.perf_counter()
    solution = solve(problem)
    assert time.perf_counter() - began < 60  # seconds on a quiet core; a busy machine gets its share
    assert solution.status in (Status.SOLVED, Status.INFEASIBLE)
    assert (solution.certificate.relative_gap.item() <= 1e-8) or solution.certificate.ray_residual.item() <= 1e-10
    if selection == "planted":
        assert solution.status is Status.SOLVED


@pytest.mark.slow
def test_a_large_infeasible_problem_is_recognised() -> None:
    """A separable problem with one input twice under two selections."""
    base = planted(150, 16, 24, 4)
    tokens, queries = base.data.tokens.numpy().copy(), base.data.queries.numpy().copy()
    tokens[-1], queries[-1] = tokens[0], queries[0]
    selected = base.reference.clone()
    selected[-1] = (selected[0] + 1) % 16
    solution = solve(AttentionSVM(dataset(tokens, queries), selected))
    assert solution.solver == "BlockDescent"
    assert solution.status is Status.INFEASIBLE
    assert solution.certificate.ray_residual.item() <= 1e-10


@pytest.mark.slow
def test_a_large_problem_with_too_few_dimensions() -> None:
    data = random_sphere(n=200, T=12, d=5, seed=5)
    solution = solve(AttentionSVM(data, optimal_tokens(data)))
    assert solution.status is Status.INFEASIBLE
    assert solution.certificate.ray_residual.item() <= 1e-10


@pytest.mark.slow
def test_rows_are_never_materialised() -> None:
    """n = 500, T = 64, d = 64: explicit rows would take a gigabyte; the data take 16 MB."""
    code = """
import resource, sys
sys.path.insert(0, {tests!r})
import torch; torch.set_num_threads(1)
from attsvm.svm import solve, BlockDescent
from svm.test_block_descent import planted
solve(planted(20, 8, 8, 0), solver=BlockDescent())
problem = planted(500, 64, 64, 6)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
solution = solve(problem, solver=BlockDescent(time_limit=20, accuracy=1e-6))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024, solution.certificate.relative_gap.item())
"""
    tests = __file__.rsplit("/", 2)[0]
    done = subprocess.run([sys.executable, "-c", code.format(tests=tests)], capture_output=True, text=True, check=True)
    grown, gap = map(float, done.stdout.split())
    assert grown < 300, f"{grown:.0f} MB"
    assert gap <= 1e-4


def test_progress_lines() -> None:
    lines: list[str] = []
    solution = solve(planted(60, 30, 32, 7), solver=BlockDescent(), progress=lines.append)
    assert bool(solution.solved)
    assert lines
    pattern = re.compile(r"round \d+: \d+ rows violated, \d+ support rows, gap (\S+|no positive margin yet)$")
    assert all(pattern.match(line) for line in lines), lines
    assert float(lines[-1].rsplit(" ", 1)[1]) <= 1e-7


def test_limits_are_honoured_and_said() -> None:
    problem = planted(60, 30, 32, 8)
    for solver in (BlockDescent(rounds=1), BlockDescent(time_limit=1e-6)):
        solution = solve(problem, solver=solver)
        assert solution.status in (Status.SEPARABLE, Status.NOT_CONVERGED)
        assert bool(torch.isfinite(solution.weights).all())
        assert solution.certificate.relative_gap.item() > 1e-8


@pytest.mark.parametrize("size", [(60, 30, 32), (30, 10, 20)], ids=["large", "small"])
def test_no_search_goes_past_the_limit(size: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where block descent gives up, no solver goes on to look for a ray, neither an exact one nor itself anew."""
    problem = planted(*size, 8)
    value = solve(problem, solver=BlockDescent()).require_solved().certificate.primal_value.item()

    def other_solver(*arguments: object) -> None:
        raise AssertionError("another solver was asked")

    monkeypatch.setattr(import_module("attsvm.svm.solve"), "feasibility_solver", other_solver)
    lines: list[str] = []
    solution = solve(problem, solver=BlockDescent(rounds=2), progress=lines.append)
    assert solution.status in (Status.SEPARABLE, Status.NOT_CONVERGED)
    assert solution.iterations.item() == len(lines) == 2
    assert 0 < solution.certificate.dual_value.item() <= value * (1 + 1e-8)
    assert solution.certificate.relative_gap.item() > 1e-8
    hopeless = case("infeasible")
    with pytest.raises(AssertionError, match="another solver was asked"):  # so that the line above can fail
        solve(AttentionSVM(hopeless.data, hopeless.selected), MaxEntry())


def test_shared_tokens_at_some_size() -> None:
    """Causal data of 3 sequences of 24 tokens: tokens are stored once, rows belong to prefixes."""
    rng = np.random.default_rng(9)
    tokens = sphere_points(rng, 3, 24, 80)
    data = TokenDataset.causal(tokens, np.ones((3, 24)))
    selected = np.concatenate([[rng.integers(0, k + 1) for k in range(24)] for _ in range(3)])
    problem = AttentionSVM(data, selected)
    exact, large = solve(problem, solver=ActiveSet()), solve(problem, solver=BlockDescent())
    assert exact.status is large.status is Status.SOLVED
    check_same_weights(large.weights, exact.weights, 1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_right_hand_sides_of_both_signs_and_of_very_different_size(seed: int) -> None:
    """Scaling W mends no row here: each must be met to the tolerance of its own size, not of the largest."""
    rng = np.random.default_rng(seed)
    data = random_sphere(n=60, T=12, d=14, seed=seed)
    sides = rng.standard_normal((60, 12)) * rng.choice([30.0, 0.03], (60, 12))
    solution = solve(AttentionSVM(data, np.zeros(60, int), right_hand_side=sides), solver=BlockDescent())
    assert solution.status is Status.SOLVED
    assert solution.certificate.largest_violation.item() <= 1e-8
