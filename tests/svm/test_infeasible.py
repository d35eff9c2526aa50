"""Infeasible problems give a ray, nearly infeasible ones never do, and nothing infeasible is ever called solved."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attsvm.data import TokenDataset, random_sphere
from attsvm.norms import Frobenius, Norm, Nuclear, Spectral
from attsvm.svm import ActiveSet, AttentionSVM, BatchedFrobenius, BlockDescent, Solver, Status, solve

from .checks import (
    NORMS,
    REFERENCE,
    check_ray,
    dataset,
    explicit_rows,
    quiet_solve,
    solver_id,
    sphere_points,
)

OURS: tuple[tuple[Norm, Solver | None], ...] = (
    *((norm, None) for norm in NORMS),
    (Frobenius(), ActiveSet()),
    (Frobenius(), BatchedFrobenius()),
    (Frobenius(), BlockDescent(rounds=60)),
)
every_solver = pytest.mark.parametrize("pair", OURS, ids=solver_id)
with_reference = pytest.mark.parametrize("pair", [*OURS, *((norm, REFERENCE) for norm in NORMS)], ids=solver_id)


def too_small(rng: np.random.Generator) -> tuple[TokenDataset, np.ndarray]:
    """12 inputs in the plane under one query: some selected token lies inside the hull of the others."""
    tokens = sphere_points(rng, 12, 5, 2) * rng.uniform(0.2, 1.0, (12, 5, 1))
    return dataset(tokens, np.ones((12, 1))), rng.integers(0, 5, 12)


def duplicates(rng: np.random.Generator) -> tuple[TokenDataset, np.ndarray]:
    tokens = sphere_points(rng, 3, 4, 6)
    tokens[1, 2] = tokens[1, 0]
    return dataset(tokens, sphere_points(rng, 3, 6)), np.array([0, 0, 0])


def zero_query(rng: np.random.Generator) -> tuple[TokenDataset, np.ndarray]:
    queries = sphere_points(rng, 3, 6)
    queries[2] = 0.0
    return dataset(sphere_points(rng, 3, 4, 6), queries), rng.integers(0, 4, 3)


def contradiction(rng: np.random.Generator) -> tuple[TokenDataset, np.ndarray]:
    """One input twice, two selections, among others that can be separated."""
    tokens, queries = sphere_points(rng, 4, 4, 6), sphere_points(rng, 4, 6)
    tokens[3], queries[3] = tokens[1], queries[1]
    return dataset(tokens, queries), np.array([0, 2, 1, 3])


def opposite_query(rng: np.random.Generator) -> tuple[TokenDataset, np.ndarray]:
    """The same tokens and selection under z and -2 z."""
    tokens, queries = sphere_points(rng, 2, 4, 6), sphere_points(rng, 2, 6)
    tokens[1], queries[1] = tokens[0], -2 * queries[0]
    return dataset(tokens, queries), np.array([1, 1])


def middle_token(rng: np.random.Generator) -> tuple[TokenDataset, np.ndarray]:
    """The selected token is a mixture of the others."""
    tokens = np.round(sphere_points(rng, 2, 4, 6) * 2**20) / 2**20  # so that the mixture is exact
    tokens[0, 3] = (tokens[0, 0] + tokens[0, 1] + 2 * tokens[0, 2]) / 4
    return dataset(tokens, sphere_points(rng, 2, 6)), np.array([3, 0])


KINDS = [too_small, duplicates, zero_query, contradiction, opposite_query, middle_token]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@with_reference
@every_kind
def test_every_solver_gives_the_ray(pair: tuple[Norm, Solver | None], kind) -> None:
    data, selected = kind(np.random.default_rng(1))
    solution = quiet_solve(AttentionSVM(data, selected), *pair)
    assert solution.status is Status.INFEASIBLE
    assert bool(solution.weights.isnan().all())
    assert bool(solution.margins[AttentionSVM(data, selected).rows].isnan().all())
    assert not bool(solution.support.any())
    assert solution.certificate.ray_residual.item() <= 1e-10
    assert solution.certificate.dual_value.item() > 0
    check_ray(explicit_rows(data, selected), solution.duals)


@every_kind
def test_many_random_ones(kind) -> None:
    rng = np.random.default_rng(2)
    drawn = [kind(rng) for _ in range(150)]
    tokens, queries = (torch.stack([getattr(data, name) for data, _ in drawn]) for name in ("tokens", "queries"))
    data = dataset(tokens.numpy(), queries.numpy())
    solution = solve(AttentionSVM(data, np.stack([selected for _, selected in drawn])))
    assert bool(solution.infeasible.all())
    assert solution.certificate.ray_residual.max() <= 1e-10
    for element in range(0, 150, 10):
        check_ray(explicit_rows(data[element], drawn[element][1]), solution.duals[element])


def test_nuclear_problems_with_many_rows_find_their_ray_before_the_interior_point_runs() -> None:
    data = random_sphere(n=20, T=6, d=4, batch=6, seed=8)
    problem = AttentionSVM(data, torch.zeros(6, 20, dtype=torch.long))
    solution = solve(problem, Nuclear())
    assert solution.infeasible.tolist() == solve(problem).infeasible.tolist()
    assert int(solution.infeasible.sum()) >= 3
    assert int(solution.iterations[solution.infeasible].sum()) == 0


@pytest.mark.parametrize("size", [(8, 6, 3), (10, 10, 4), (20, 4, 4)], ids=str)
def test_verdicts_agree_with_a_linear_program(size: tuple[int, int, int]) -> None:
    """Sizes where some problems can be separated and some cannot: each verdict against HiGHS, each with its proof."""
    from scipy.optimize import linprog

    n, T, d = size
    data = random_sphere(n=n, T=T, d=d, batch=60, seed=3)
    selected = np.random.default_rng(3).integers(0, T, (60, n))
    solution = solve(AttentionSVM(data, selected))
    verdicts = []
    for element in range(60):
        rows = explicit_rows(data[element], selected[element])
        flat = rows.inequalities.reshape(len(rows.right_hand_side), -1)
        # The largest margin of a W with entries in [-1, 1].
        result = linprog(
            np.append(np.zeros(flat.shape[1]), -1.0),
            np.hstack([-flat, np.ones((len(flat), 1))]),
            np.zeros(len(flat)),
            bounds=[(-1, 1)] * flat.shape[1] + [(None, None)],
        )
        verdicts.append(-result.fun)
        if verdicts[-1] > 1e-5:
            assert solution.status[element] is Status.SOLVED
        elif verdicts[-1] > 1e-8:  # nearly infeasible
            assert solution.status[element] is not Status.INFEASIBLE
        else:
            assert solution.status[element] is Status.INFEASIBLE
    rays = solution.certificate.ray_residual[solution.infeasible]
    assert rays.numel() == 0 or rays.max() <= 1e-10
    assert 0 < int(solution.infeasible.sum()) < 60 or size != (10, 10, 4)


# ------------------------------------------------------------------- nearly infeasible, barely infeasible


def cancelling(rng: np.random.Generator, count: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """`count` vectors in the space orthogonal to a unit vector u, with 0 inside their convex hull; and u."""
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    inside = rng.standard_normal((count, d - 1))
    inside[-1] = -(rng.dirichlet(np.ones(count - 1)) @ inside[:-1]) * rng.uniform(0.5, 2.0)
    return inside @ basis[:, 1:].T, basis[:, 0]


def one_row_each(rows: np.ndarray, query: np.ndarray) -> AttentionSVM:
    """A problem with these rows d_k z^T: T = 2, the other token at 0."""
    tokens = np.stack([rows, np.zeros_like(rows)], axis=1)
    return AttentionSVM(
        dataset(tokens, np.broadcast_to(query, (len(rows), len(query))).copy()), np.zeros(len(rows), int)
    )


@every_solver
@pytest.mark.parametrize("margin", [1e-3, 1e-6])
@pytest.mark.parametrize("seed", range(3))
def test_a_small_margin_is_never_called_infeasible(pair: tuple[Norm, Solver | None], margin: float, seed: int) -> None:
    """Rows g_k + m u with 0 in the hull of the g_k: the best direction is u, its margin m, the solution u z^T / m."""
    rng = np.random.default_rng(seed)
    rows, u = cancelling(rng, 6, 4)
    query = sphere_points(rng, 3)
    solution = quiet_solve(one_row_each(rows + margin * u, query), *pair)
    assert solution.status in (Status.SOLVED, Status.SEPARABLE, Status.NOT_CONVERGED)
    assert not bool(solution.certificate.holds_ray(1e-9))
    if solution.status is Status.SOLVED and isinstance(pair[0], (Frobenius, Nuclear, Spectral)):
        assert solution.certificate.primal_value.item() == pytest.approx(1 / margin, rel=1e-6)
    if isinstance(pair[1], (ActiveSet, BatchedFrobenius)):
        # Margins of weights of norm 1/m carry a round-off of eps/m: the gap may miss 1e-10, but not by much.
        assert solution.certificate.relative_gap.item() <= max(1e-10, 1e-14 / margin)
        torch.testing.assert_close(
            solution.weights, torch.from_numpy(np.outer(u, query)) / margin, rtol=0, atol=1e-6 / margin
        )


@every_solver
@pytest.mark.parametrize("margin", [1e-3, 1e-6])
@pytest.mark.parametrize("seed", range(3))
def test_barely_infeasible_is_never_called_solved(pair: tuple[Norm, Solver | None], margin: float, seed: int) -> None:
    """The same with one more row -u: now 0 lies in the hull, though only a row shifted by m keeps it there."""
    rng = np.random.default_rng(seed)
    rows, u = cancelling(rng, 6, 4)
    problem = one_row_each(np.vstack([rows + margin * u, -u]), sphere_points(rng, 3))
    solution = quiet_solve(problem, *pair)
    assert solution.status in (Status.INFEASIBLE, Status.NOT_CONVERGED)
    if not isinstance(pair[1], BlockDescent):
        assert solution.status is Status.INFEASIBLE
        check_ray(explicit_rows(problem.data, problem.reference), solution.duals)


@every_solver
def test_between_feasible_and_infeasible(pair: tuple[Norm, Solver | None]) -> None:
    """A query that shrinks to zero: feasible as long as it is not zero, however small."""
    tokens = np.array([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 1.0], [0.0, 0.0]]])
    for size in (1.0, 1e-4, 1e-8):
        queries = np.array([[1.0, 0.0], [0.0, size]])
        solution = quiet_solve(AttentionSVM(dataset(tokens, queries), [0, 0]), *pair)
        assert solution.status in (Status.SOLVED, Status.SEPARABLE, Status.NOT_CONVERGED)
        if isinstance(pair[0], Frobenius):
            assert solution.status is Status.SOLVED
            assert solution.weights[1, 1].item() == pytest.approx(1 / size, rel=1e-6)
    queries = np.array([[1.0, 0.0], [0.0, 0.0]])
    assert quiet_solve(AttentionSVM(dataset(tokens, queries), [0, 0]), *pair).status is Status.INFEASIBLE


@every_solver
@pytest.mark.parametrize("seed", range(3))
def test_several_twins_of_the_selected_token(pair: tuple[Norm, Solver | None], seed: int) -> None:
    """Rows that are exactly zero prove infeasibility exactly, however the multipliers divide among them."""
    data = random_sphere(n=3, T=5, d=6, batch=4, seed=seed)
    tokens = data.tokens.clone()
    tokens[:, 1] = tokens[:, 1, :1]
    problem = AttentionSVM(TokenDataset(tokens, data.queries, data.labels), torch.full((4, 3), 2))
    solution = quiet_solve(problem, *pair)
    assert bool(solution.infeasible.all())
    assert bool((solution.certificate.dual_value > 1e9).all())
    for b in range(4):
        check_ray(explicit_rows(problem[b].data, problem[b].reference), solution.duals[b])


def test_rows_that_only_underflow_are_no_ray() -> None:
    """Tokens 1e-170 apart: the squares of the difference vanish, the row does not."""
    tokens = np.array([[[1e-170, 0.0], [0.0, 0.0]]])
    solution = quiet_solve(AttentionSVM(dataset(tokens, np.ones((1, 1))), [0]), Frobenius(), None)
    assert solution.status is not Status.INFEASIBLE
