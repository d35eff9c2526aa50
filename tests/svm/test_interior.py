"""The interior point for batches: against one program at a time, both shapes of W, equalities, and its fallback."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attsvm.data import random_sphere
from attsvm.norms import Entrywise, MaxEntry, Norm, Spectral, SumEntry
from attsvm.svm import AttentionSVM, Conic, InteriorPoint, LinearProgram, solve
from attsvm.svm.solvers.interior import solver as interior
from attsvm.svm.solvers.nuclear.rows import orthonormal

from .checks import random_selection

EACH = pytest.mark.parametrize("norm", [Spectral(), MaxEntry(), SumEntry(), Entrywise(1.5), Entrywise(3)], ids=repr)


@EACH
@pytest.mark.parametrize("dq", [3, 8])
def test_a_batch_agrees_with_one_program_at_a_time(norm: Norm, dq: int) -> None:
    data = random_sphere(n=4, T=5, d=5, dq=dq, batch=20, seed=3)
    problem = AttentionSVM(data, random_selection(data, 3))
    ours = solve(problem, norm, solver=InteriorPoint()).require_solved()
    assert float(ours.certificate.relative_gap.max()) <= 1e-8
    one = LinearProgram() if isinstance(norm, (MaxEntry, SumEntry)) else Conic()
    theirs = solve(problem[:2], norm, solver=one).require_solved()
    torch.testing.assert_close(ours.certificate.primal_value[:2], theirs.certificate.primal_value, rtol=1e-7, atol=0)


@EACH
def test_equalities_and_mixed_sides(norm: Norm) -> None:
    """Two tokens kept in every input: an equality row each, and right-hand sides of two sizes."""
    data = random_sphere(n=3, T=5, d=6, batch=16, seed=4)
    kept = torch.zeros(16, 3, 5, dtype=torch.bool)
    kept[..., :2] = True
    sides = torch.from_numpy(np.random.default_rng(0).choice([0.5, 2.0], (16, 3)))
    solution = solve(AttentionSVM(data, selected_set=kept, right_hand_side=sides), norm).require_solved()
    assert solution.solver == "InteriorPoint"
    assert float(solution.margins[..., 1].abs().max()) < 1e-7


def test_what_it_leaves_is_solved_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interior, "_STEPS", 2)
    data = random_sphere(n=2, T=3, d=4, batch=16, seed=5)
    solution = solve(AttentionSVM(data, random_selection(data, 5)), SumEntry())
    assert bool(solution.solved.all())
    assert int(solution.iterations.max()) <= 2


def test_orthonormal_bases_hold_every_vector() -> None:
    """Also of vectors that repeat, are nearly the same, or are zero."""
    rng = np.random.default_rng(5)
    vectors = torch.from_numpy(rng.standard_normal((20, 5, 8)))
    vectors[3:6, 2] = vectors[3:6, 0]
    vectors[6:9, 3] = vectors[6:9, 1] + 1e-9 * vectors[6:9, 2]
    vectors[9:12, 4] = 0.0
    basis, coordinates = orthonormal(vectors)
    torch.testing.assert_close(coordinates @ basis.mT, vectors, rtol=0, atol=1e-13)
    products = basis.mT @ basis
    assert float((products - torch.diag_embed(products.diagonal(dim1=-2, dim2=-1))).abs().max()) < 1e-13
    lengths = products.diagonal(dim1=-2, dim2=-1)
    assert bool((((lengths - 1).abs() < 1e-13) | (lengths == 0)).all())
