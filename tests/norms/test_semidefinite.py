"""Norms that semidefinite programs define, against CVXPY, closed forms, factors and their brackets."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
import torch

from attsvm.norms import (
    Gamma2,
    InfinityToOne,
    LargestRow,
    Norm,
    Nuclear,
    Projective,
    Spectral,
    SpectralOfHeads,
    factor_norm,
)

from .test_factors import random


def gamma2_by_cvxpy(matrix: np.ndarray) -> float:
    d, dq = matrix.shape
    block, t = cp.Variable((d + dq, d + dq), PSD=True), cp.Variable()
    program = cp.Problem(cp.Minimize(t), [block[:d, d:] == matrix, cp.diag(block) <= t])
    return float(program.solve(solver="CLARABEL"))


def fused_by_cvxpy(parts: np.ndarray) -> float:
    heads, d, dq = parts.shape
    blocks = [cp.Variable((d + dq, d + dq), PSD=True) for _ in range(heads)]
    t = cp.Variable()
    limits = [cp.lambda_max(sum(each[:d, :d] for each in blocks)) <= t,
              cp.lambda_max(sum(each[d:, d:] for each in blocks)) <= t]  # fmt: skip
    given = [each[:d, d:] == part for each, part in zip(blocks, parts, strict=True)]
    return float(cp.Problem(cp.Minimize(t), [*limits, *given]).solve(solver="CLARABEL"))


@pytest.mark.parametrize("norm", [Gamma2(), SpectralOfHeads(1), SpectralOfHeads(2)], ids=repr)
def test_duality(norm: Norm) -> None:
    """Values are bounds above, and steepest directions attain both of them to 1e-7."""
    weights, other = random(3, 3, 4), random(3, 3, 4, seed=1)
    value, dual = norm.value(weights), norm.dual_value(weights)
    steepest, normal = norm.steepest(weights), norm.dual.steepest(weights)
    near = {"rtol": 1e-7, "atol": 0.0}
    torch.testing.assert_close((weights * steepest).sum((-1, -2)), dual, **near)
    torch.testing.assert_close((weights * normal).sum((-1, -2)), value, **near)
    ones = torch.ones(3).double()
    torch.testing.assert_close(norm.value(steepest), ones, **near)
    torch.testing.assert_close(norm.dual_value(normal), ones, **near)
    assert bool(((weights * other).sum((-1, -2)) <= dual * norm.value(other)).all())
    assert bool((norm.value(weights + other) <= (value + norm.value(other)) * (1 + 1e-8)).all())
    torch.testing.assert_close(norm.value(1e9 * weights), 1e9 * value, **near)


def test_against_cvxpy_and_closed_forms() -> None:
    weights = random(3, 3, 4)
    for one in weights:
        assert float(Gamma2().value(one)) == pytest.approx(gamma2_by_cvxpy(one.numpy()), rel=1e-6)
        parts = np.stack(np.split(one.numpy(), 2, axis=1))
        assert float(SpectralOfHeads(2).value(one)) == pytest.approx(fused_by_cvxpy(parts), rel=1e-6)
    torch.testing.assert_close(SpectralOfHeads(1).value(weights), Spectral().value(weights), rtol=1e-8, atol=0)
    torch.testing.assert_close(SpectralOfHeads(1).dual_value(weights), Nuclear().value(weights), rtol=1e-8, atol=0)
    # One row or column: the largest |entry|. Signs u v^T: 1.
    torch.testing.assert_close(Gamma2().value(weights[:, :1]), weights[:, :1].abs().amax((-1, -2)), rtol=1e-7, atol=0)
    assert float(Gamma2().value(torch.ones(3, 4).double())) == pytest.approx(1.0, rel=1e-8)


def test_gamma_2_among_the_norms_of_signs() -> None:
    """gamma_2 <= pi <= 1.7823 gamma_2, and the duals the other way round."""
    weights = random(5, 4, 4)
    gamma, projective = Gamma2().value(weights), Projective().value(weights)
    assert bool(((gamma <= projective * (1 + 1e-8)) & (projective <= 1.7823 * gamma)).all())
    above, exact = Gamma2().dual_value(weights), InfinityToOne().value(weights)
    assert bool(((exact <= above * (1 + 1e-8)) & (above <= 1.7823 * exact)).all())


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_factors_never_go_below(rank: int) -> None:
    key, query = random(10, 4, rank), random(10, 3, rank, seed=1)
    reached = LargestRow().value(key) * LargestRow().value(query)
    assert bool((factor_norm(LargestRow()).value(key @ query.mT) <= reached * (1 + 1e-8)).all())
    keys, queries = random(10, 2, 3, rank), random(10, 2, 3, rank, seed=1)
    fused = torch.cat((keys @ queries.mT).unbind(1), -1)
    whole = [Spectral().value(torch.cat(each.unbind(1), -1)) for each in (keys, queries)]
    assert bool((SpectralOfHeads(2).value(fused) <= whole[0] * whole[1] * (1 + 1e-8)).all())


def test_fused_heads_lie_in_their_bracket() -> None:
    for weights in random(5, 3, 9):
        norm = SpectralOfHeads(3)
        low, high = norm.bracket(weights)
        single = [float(Spectral().value(part)) for part in weights.tensor_split(3, -1)]
        assert max(single) <= low <= float(norm.value(weights)) * (1 + 1e-8)
        assert float(norm.value(weights)) <= high * (1 + 1e-8) <= sum(single) * (1 + 1e-8)


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="multiple of 2 columns; it has 3"):
        SpectralOfHeads(2).value(random(2, 3))
    with pytest.raises(ValueError, match="positive integer; got 0"):
        SpectralOfHeads(0)
    with pytest.raises(ValueError, match="neither projection nor prox"):
        Gamma2().prox(random(2, 2), 1.0)
    for norm in (Gamma2(), SpectralOfHeads(2)):
        assert float(norm.value(torch.zeros(2, 2))) == 0
        assert not bool(norm.steepest(torch.zeros(2, 2)).any())
        assert torch.isnan(norm.value(torch.tensor([[1.0, torch.nan]])))
