"""Max-margin problems in the norms of factors, against CVXPY on the explicit sets."""

from __future__ import annotations

import itertools
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
import torch

from attsvm.data import TokenDataset, random_sphere
from attsvm.norms import Gamma2, Projective, Spectral, SpectralOfHeads, SpectralOfRank
from attsvm.svm import AttentionSVM, Status, solve
from cases import case

from .checks import explicit_rows, random_selection


def margins(data, selected) -> tuple[np.ndarray, np.ndarray]:
    rows = explicit_rows(data, selected)
    return rows.inequalities.reshape(len(rows.places), -1), rows.right_hand_side


@pytest.mark.parametrize("dq", [5, 4])
def test_projective_against_all_atoms(dq: int) -> None:
    data = random_sphere(n=4, T=4, d=5, dq=dq, batch=2, seed=8)
    problem = AttentionSVM(data, random_selection(data, 8))
    solution = solve(problem, Projective()).require_solved()
    assert solution.solver == "ColumnGeneration"
    left, right = (np.array(list(itertools.product((1.0, -1.0), repeat=size)))[: 2 ** (size - 1)] for size in (5, dq))
    atoms = np.einsum("ai,bj->abij", left, right).reshape(-1, 5 * dq)
    for element in range(2):
        matrix, sides = margins(data[element], problem.reference[element])
        share = cp.Variable(len(atoms))
        program = cp.Problem(cp.Minimize(cp.norm1(share)), [matrix @ (atoms.T @ share) >= sides])
        program.solve(solver="CLARABEL")
        assert float(solution.certificate.primal_value[element]) == pytest.approx(program.value, rel=1e-6)
        assert float(Projective().value(solution.weights[element])) == pytest.approx(program.value, rel=1e-6)


def test_projective_at_ten_dimensions_is_certified() -> None:
    data = random_sphere(n=6, T=8, d=10, batch=3, seed=9)
    solution = solve(AttentionSVM(data, random_selection(data, 9)), Projective()).require_solved()
    assert float(solution.certificate.relative_gap.max()) <= 1e-8


@pytest.mark.parametrize("name", ["infeasible", "duplicate tokens", "ragged", "one token", "badly scaled"])
def test_projective_statuses(name: str) -> None:
    one = case(name)
    solution = solve(AttentionSVM(one.data, one.selected), Projective())
    wanted = Status.INFEASIBLE if not one.feasible else Status.NO_ROWS if one.data.T == 1 else Status.SOLVED
    assert solution.status is wanted


def test_projective_refuses_what_it_cannot_try() -> None:
    data = random_sphere(n=2, T=3, d=17, seed=0)
    with pytest.raises(ValueError, match="for W of 17 x 17; pass solver="):
        solve(AttentionSVM(data, [0, 0]), Projective())


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_spectral_of_rank(rank: int) -> None:
    data = random_sphere(n=4, T=4, d=5, dq=4, seed=10)
    problem = AttentionSVM(data, random_selection(data, 10))
    solution = solve(problem, SpectralOfRank(rank)).require_solved()
    matrix, sides = margins(data, problem.reference)
    weights = cp.Variable((5, 4))
    value = cp.maximum(cp.sigma_max(weights), cp.normNuc(weights) / rank)
    program = cp.Problem(cp.Minimize(value), [matrix @ cp.reshape(weights, (20,), order="C") >= sides])
    program.solve(solver="CLARABEL")
    assert float(solution.certificate.primal_value) == pytest.approx(program.value, rel=1e-6)
    spectral = solve(problem, Spectral()).certificate.primal_value
    if rank == 4:  # no limit: the rank of a solution is at most min(n, d, dq)
        assert solution.solver == "InteriorPoint"
        torch.testing.assert_close(solution.certificate.primal_value, spectral, rtol=1e-7, atol=0)
    else:
        assert solution.solver == "Conic"
        assert float(solution.certificate.primal_value) >= float(spectral) * (1 - 1e-9)


def test_gamma_2_against_cvxpy() -> None:
    data = random_sphere(n=3, T=4, d=4, dq=3, seed=11)
    problem = AttentionSVM(data, random_selection(data, 11))
    solution = solve(problem, Gamma2()).require_solved()
    matrix, sides = margins(data, problem.reference)
    block, t = cp.Variable((7, 7), PSD=True), cp.Variable()
    held = matrix @ cp.reshape(block[:4, 4:], (12,), order="C") >= sides
    program = cp.Problem(cp.Minimize(t), [held, cp.diag(block) <= t])
    program.solve(solver="CLARABEL")
    assert solution.solver == "Conic"
    assert float(solution.certificate.relative_gap) <= 1e-7
    assert float(solution.certificate.primal_value) == pytest.approx(program.value, rel=1e-6)


def test_heads_that_share_a_matrix() -> None:
    """Queries of head h stand in block h; fused, heads are at least as long as the longest alone, at most all."""
    data = random_sphere(n=4, T=3, d=3, seed=12)

    def part(whole: TokenDataset, half: slice) -> TokenDataset:
        return TokenDataset(whole.tokens[half], whole.queries[half], whole.labels[half])

    apart = torch.zeros(4, 6, dtype=torch.float64)
    apart[:2, :3], apart[2:, 3:] = data.queries[:2], data.queries[2:]
    selected = random_selection(data, 12)
    fused = solve(AttentionSVM(replace(data, queries=apart), selected), SpectralOfHeads(2)).require_solved()
    alone = [
        float(solve(AttentionSVM(part(data, half), selected[half]), Spectral()).certificate.primal_value)
        for half in (slice(0, 2), slice(2, 4))
    ]
    value = float(fused.certificate.primal_value)
    assert max(alone) * (1 - 1e-7) <= value <= sum(alone) * (1 + 1e-7)
    low, high = SpectralOfHeads(2).bracket(fused.weights)
    assert low * (1 - 1e-7) <= value <= high * (1 + 1e-7)


def test_heads_need_their_columns() -> None:
    data = random_sphere(n=2, T=3, d=3, seed=0)
    with pytest.raises(ValueError, match="multiple of 2 columns; it has 3"):
        solve(AttentionSVM(data, [0, 0]), SpectralOfHeads(2))
