"""Badly scaled and nearly dependent data: the certificate holds, or the status says that it does not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attsvm.norms import Frobenius, Norm
from attsvm.svm import ActiveSet, AttentionSVM, BatchedFrobenius, BlockDescent, Solver, Status, solve

from .checks import NORMS, check_optimal, dataset, explicit_rows, quiet_solve, solver_id, sphere_points

OURS: tuple[tuple[Norm, Solver | None], ...] = (
    *((norm, None) for norm in NORMS),
    (Frobenius(), ActiveSet()),
    (Frobenius(), BatchedFrobenius()),
    (Frobenius(), BlockDescent(rounds=60)),
)
every_solver = pytest.mark.parametrize("pair", OURS, ids=solver_id)


def honest(problem: AttentionSVM, pair: tuple[Norm, Solver | None]) -> Status:
    """Solve a feasible problem; a claim of success is checked by NumPy, a claim of infeasibility is wrong."""
    solution = quiet_solve(problem, *pair)
    assert solution.status in (Status.SOLVED, Status.SEPARABLE, Status.NOT_CONVERGED)
    assert not bool(solution.certificate.holds_ray(1e-9))
    if solution.status is Status.SOLVED:
        rows = explicit_rows(problem.data, problem.reference)
        lengths = np.linalg.norm(rows.inequalities, axis=(1, 2))
        size = max(1.0, float((lengths * solution.weights.norm().item()).max()) * 1e-6)  # round-off of the largest rows
        check_optimal(rows, pair[0], solution.weights, solution.duals, 2 * solution.tolerance * size)
    else:
        with pytest.raises(ValueError, match=r"not converged|not solved to the tolerance"):
            solution.require_solved()
    return solution.status


@every_solver
@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1e3, 1e6])
def test_one_scale(pair: tuple[Norm, Solver | None], scale: float) -> None:
    """All tokens times one number: W is the same divided by it, so every solver must manage."""
    rng = np.random.default_rng(0)
    tokens, queries, selected = sphere_points(rng, 4, 5, 6), sphere_points(rng, 4, 6), rng.integers(0, 5, 4)
    assert honest(AttentionSVM(dataset(scale * tokens, queries), selected), pair) is Status.SOLVED
    values = [
        quiet_solve(AttentionSVM(dataset(size * tokens, queries), selected), *pair).certificate.primal_value.item()
        * size
        for size in (1.0, scale)
    ]
    assert values[1] == pytest.approx(values[0], rel=1e-6)


@every_solver
@pytest.mark.parametrize("seed", range(4))
def test_inputs_of_many_scales(pair: tuple[Norm, Solver | None], seed: int) -> None:
    """Tokens times 1e-6 .. 1e6, each input at its own scale: rows of right-hand side 1 whose lengths differ by 1e12."""
    rng = np.random.default_rng(seed)
    scales = 10.0 ** rng.uniform(-6, 6, (4, 1, 1))
    problem = AttentionSVM(
        dataset(scales * sphere_points(rng, 4, 5, 6), sphere_points(rng, 4, 6)), rng.integers(0, 5, 4)
    )
    honest(problem, pair)
    if isinstance(pair[1], (ActiveSet, BatchedFrobenius)):
        # A margin of 1 on a row of length 1e6 under weights of norm 1e5 is the rest of numbers near 1e11.
        solution = solve(problem, solver=pair[1])
        largest = (problem.row_norms.max() * solution.weights.norm()).item()
        assert solution.certificate.relative_gap.item() <= max(1e-10, 1e-15 * largest)


@every_solver
@pytest.mark.parametrize("angle", [1e-2, 1e-4, 1e-6])
def test_nearly_parallel_tokens(pair: tuple[Norm, Solver | None], angle: float) -> None:
    rng = np.random.default_rng(1)
    centre = sphere_points(rng, 3, 1, 6)
    tokens = centre + angle * sphere_points(rng, 3, 4, 6)
    honest(AttentionSVM(dataset(tokens, sphere_points(rng, 3, 6)), rng.integers(0, 4, 3)), pair)


@every_solver
@pytest.mark.parametrize("angle", [1e-2, 1e-4, 1e-6])
def test_nearly_parallel_queries(pair: tuple[Norm, Solver | None], angle: float) -> None:
    rng = np.random.default_rng(2)
    queries = sphere_points(rng, 1, 6) + angle * sphere_points(rng, 3, 6)
    honest(AttentionSVM(dataset(sphere_points(rng, 3, 4, 6), queries), rng.integers(0, 4, 3)), pair)


@every_solver
def test_one_token_nearly_twice(pair: tuple[Norm, Solver | None]) -> None:
    """The selected token and another one 1e-7 apart: the solution has norm near 1e7."""
    rng = np.random.default_rng(3)
    tokens = sphere_points(rng, 2, 3, 5)
    tokens[0, 1] = tokens[0, 0] + 1e-7 * sphere_points(rng, 5)
    honest(AttentionSVM(dataset(tokens, sphere_points(rng, 2, 5)), [0, 0]), pair)


def test_float32_data_is_solved_in_float64() -> None:
    rng = np.random.default_rng(4)
    tokens, queries = (sphere_points(rng, 3, 4, 5).astype(np.float32), sphere_points(rng, 3, 5).astype(np.float32))
    solution = solve(AttentionSVM(dataset(tokens, queries), [0, 1, 2])).require_solved()
    assert solution.weights.dtype == solution.duals.dtype == solution.certificate.relative_gap.dtype == torch.float64
    assert solution.certificate.relative_gap.item() <= 1e-10
