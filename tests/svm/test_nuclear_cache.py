"""What Numba's cache on disk must not change: a solution."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import attsvm
from attsvm.svm.solvers.nuclear import kernel

SOLVE = """
import attsvm, hashlib
data = attsvm.data.random_sphere(n=4, T=8, d=5, batch=40, seed=0)
found = attsvm.solve(attsvm.AttentionSVM(data, attsvm.optimal_tokens(data)), attsvm.Nuclear())
print(hashlib.sha256(found.weights.contiguous().numpy().tobytes()).hexdigest(), found.solver)
"""


@pytest.mark.slow
def test_the_first_solution_has_the_bits_of_all_others(tmp_path: Path) -> None:
    """The first process finds an empty cache."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SOLVE]
    first, second = (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout for _ in range(2)
    )
    assert "NuclearInteriorPoint" in first
    assert first == second
    assert list(tmp_path.rglob("kernel.solve_many*.nbc"))


def test_a_batch_without_problems_has_the_types_of_others() -> None:
    kernel.solve_none()
    data = attsvm.data.random_sphere(n=2, T=3, d=4, batch=3, seed=0)
    mask = data.tokens[..., 0] > -2
    mask[:, 0, 2] = False
    for problem in (
        attsvm.AttentionSVM(data, attsvm.optimal_tokens(data)),
        attsvm.AttentionSVM(attsvm.TokenDataset(data.tokens, data.queries, data.labels, mask), selected=[[0, 0]] * 3),
    ):
        attsvm.solve(problem, attsvm.Nuclear())
    assert len(kernel.solve_many.signatures) == 1
