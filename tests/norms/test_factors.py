"""Norms of K Q^T: what factors can reach, the projective norm against all its atoms, and the (infinity -> 1) norm."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from attsvm.norms import (
    Entrywise,
    Frobenius,
    Gamma2,
    InfinityToOne,
    MaxEntry,
    Nuclear,
    Projective,
    Spectral,
    SpectralOfRank,
    factor_norm,
)


def all_signs(size: int) -> np.ndarray:
    return np.array(list(itertools.product((1.0, -1.0), repeat=size)))


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def test_the_table() -> None:
    assert factor_norm(Frobenius()) == factor_norm(Frobenius(), 3) == Nuclear()
    assert factor_norm(Spectral()) == Spectral()
    assert factor_norm(Spectral(), 3) == SpectralOfRank(3)
    assert factor_norm(MaxEntry(), 3) == Projective()
    with pytest.raises(ValueError, match="no norm of K Q"):
        factor_norm(Entrywise(3))
    for wrong in (0, 1.5, True, "2"):
        with pytest.raises(ValueError, match="positive integer"):
            factor_norm(Spectral(), wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_factors_never_go_below_their_norm(rank: int) -> None:
    """||K|| ||Q|| >= N(K Q^T) for random factors; for sign steps pi(K Q^T) <= rank ||K|| ||Q||."""
    key, query = random(200, 4, rank), random(200, 5, rank, seed=1)
    weights = key @ query.mT
    for steps in (Frobenius(), Spectral()):
        reached = steps.value(key) * steps.value(query)
        assert bool((reached >= factor_norm(steps, rank).value(weights) * (1 - 1e-12)).all())
    few = slice(0, 10)
    bound = rank * MaxEntry().value(key[few]) * MaxEntry().value(query[few])
    assert bool((Projective().value(weights[few]) <= bound * (1 + 1e-9)).all())


def test_balanced_factors_reach_it() -> None:
    """Up to the rank of W: K = U sqrt(S), Q = V sqrt(S) reaches the nuclear norm, K = U, Q = V S the spectral one."""
    weights = random(20, 4, 2) @ random(20, 2, 5, seed=1)
    left, sizes, right = (part for part in torch.linalg.svd(weights, full_matrices=False))
    left, sizes, right = left[..., :2], sizes[..., None, :2], right.mT[..., :2]
    even = Frobenius().value(left * sizes.sqrt()) * Frobenius().value(right * sizes.sqrt())
    torch.testing.assert_close(even, Nuclear().value(weights))
    torch.testing.assert_close(
        Spectral().value(left) * Spectral().value(right * sizes), SpectralOfRank(2).value(weights)
    )


@pytest.mark.parametrize("shape", [(3, 4), (4, 3), (1, 2)])
def test_against_every_atom(shape: tuple[int, int]) -> None:
    weights = random(4, *shape)
    left, right = all_signs(shape[0]), all_signs(shape[1])
    atoms = np.einsum("ai,bj->abij", left, right).reshape(-1, shape[0] * shape[1])
    largest = np.einsum("ai,nij,bj->nab", left, weights.numpy(), right).max((1, 2))
    np.testing.assert_allclose(Projective().dual_value(weights), largest, rtol=1e-13)
    for one, value in zip(weights, Projective().value(weights), strict=True):
        full = linprog(np.ones(len(atoms)), A_eq=atoms.T, b_eq=one.numpy().ravel())
        assert float(value) == pytest.approx(full.fun, rel=1e-8)
    steepest, dual = Projective().steepest(weights), InfinityToOne().steepest(weights)
    assert bool((steepest.abs() == 1).all())
    torch.testing.assert_close((weights * steepest).sum((-1, -2)), InfinityToOne().value(weights))
    torch.testing.assert_close((weights * dual).sum((-1, -2)), Projective().value(weights), rtol=1e-8, atol=0)
    torch.testing.assert_close(InfinityToOne().value(dual), torch.ones(4).double())


def test_a_dual_point_finds_the_value_and_a_wrong_one_a_bound() -> None:
    weights = random(5, 4, 4)
    value = Projective().value(weights)
    beside = Projective().value_beside(weights, InfinityToOne().steepest(weights))
    torch.testing.assert_close(beside, value, rtol=1e-7, atol=0)
    assert bool((Projective().value_beside(weights, random(5, 4, 4, seed=2)) >= value * (1 - 1e-9)).all())
    assert Nuclear().value_beside(weights, weights).equal(Nuclear().value(weights))


def test_beyond_all_signs_there_is_a_bound() -> None:
    small, large = random(7, 9), random(18, 17)
    exact, above = float(InfinityToOne().value(small)), float(Gamma2().dual_value(small))
    assert exact <= above * (1 + 1e-9) <= 1.7823 * exact * (1 + 1e-8)
    with pytest.raises(ValueError, match=r"up to 16 rows or columns; got 18 x 17: Gamma2\(\).dual_value"):
        Projective().dual_value(large)


def test_what_they_do_not_have_is_refused() -> None:
    for norm in (Projective(), InfinityToOne()):
        with pytest.raises(ValueError, match="neither projection nor prox"):
            norm.prox(random(3, 3), 1.0)
        assert float(norm.value(torch.zeros(3, 3).double())) == 0
        assert not bool(norm.steepest(torch.zeros(3, 3).double()).any())
