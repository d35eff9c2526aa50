"""The interior point in the entries of W: rays of few rows, shared tokens, progress, and the same answers on a GPU."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from attsvm.data import TokenDataset, random_sphere
from attsvm.svm import ActiveSet, AttentionSVM, BlockDescent, LargeInteriorPoint, Status, solve

from .checks import check_same_weights, sphere_points
from .test_block_descent import planted


def test_it_agrees_with_block_descent_and_says_how_far_it_is() -> None:
    problem, lines = planted(150, 16, 12, 3), list[str]()
    found = solve(problem, solver=LargeInteriorPoint(), progress=lines.append).require_solved()
    other = solve(problem, solver=BlockDescent()).require_solved()
    check_same_weights(found.weights, other.weights, 1e-5)
    assert found.certificate.relative_gap.item() <= 1e-8
    assert bool((found.support == other.support).all())
    assert len(lines) == found.iterations.item() + 1
    assert all(re.match(r"iteration \d+: complementarity \S+ of the dual value$", line) for line in lines)


@pytest.mark.parametrize("seed", [0, 1])
def test_rays_are_proved(seed: int) -> None:
    """Random selections in few dimensions: far more rows than a proof looks at, so that some must be left out."""
    data = random_sphere(n=300, T=16, d=8, seed=seed)
    selected = torch.randint(16, (300,), generator=torch.Generator().manual_seed(seed))
    solution = solve(AttentionSVM(data, selected), solver=LargeInteriorPoint())
    assert solution.status is Status.INFEASIBLE
    assert int((solution.duals > 0).sum()) <= 2000
    assert int((solution.duals < 0).sum()) == 0


def test_shared_tokens() -> None:
    rng = np.random.default_rng(5)
    data = TokenDataset.causal(sphere_points(rng, 2, 10, 12), np.ones((2, 10)))
    selected = np.concatenate([[rng.integers(0, k + 1) for k in range(10)] for _ in range(2)])
    problem = AttentionSVM(data, selected)
    exact, large = solve(problem, solver=ActiveSet()), solve(problem, solver=LargeInteriorPoint())
    assert exact.status is large.status is Status.SOLVED
    check_same_weights(large.weights, exact.weights, 1e-5)


def test_a_system_too_large_is_refused() -> None:
    problem = AttentionSVM(random_sphere(n=2, T=2, d=200, seed=0), [0, 0])
    with pytest.raises(ValueError, match="W has 40000 entries, and it takes 20000"):
        solve(problem, solver=LargeInteriorPoint())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_gpu_finds_what_the_cpu_finds() -> None:
    problem = planted(800, 16, 12, 6)
    here = solve(problem).require_solved()
    there = solve(AttentionSVM(problem.data.to("cuda"), problem.reference.cuda())).require_solved()
    assert (here.solver, there.solver) == ("BlockDescent", "LargeInteriorPoint")
    check_same_weights(there.weights.cpu(), here.weights, 1e-5)
    assert there.weights.is_cuda
    assert there.certificate.relative_gap.item() <= 1e-8
    clash = problem.reference.clone()
    clash[: len(clash) // 2] = 0
    both = [solve(AttentionSVM(problem.data.to(device), clash.to(device))) for device in ("cpu", "cuda")]
    assert bool(both[0].barred) == bool(both[1].barred)
