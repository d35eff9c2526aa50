"""Solutions known in closed form: the oracles of the theory, one row, orthonormal queries, one dimension."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import nnls

from attsvm.data import TokenDataset
from attsvm.data.examples import joint_training, loss_comparison, single_input
from attsvm.norms import Entrywise, Frobenius, MaxEntry, Norm, Nuclear, Spectral, SumEntry
from attsvm.svm import (
    ActiveSet,
    AttentionSVM,
    BatchedFrobenius,
    BlockDescent,
    LargeInteriorPoint,
    Solver,
    label_svm,
    solve,
)

from .checks import NORMS, REFERENCE, check_same_weights, dataset, quiet_solve

FROBENIUS: tuple[Solver, ...] = (ActiveSet(), BatchedFrobenius(), BlockDescent(), LargeInteriorPoint(), REFERENCE)
every_frobenius_solver = pytest.mark.parametrize("solver", FROBENIUS, ids=lambda solver: type(solver).__name__)
# Accuracy of the weights: our solvers, and Clarabel by CVXPY.
WITHIN = {ActiveSet: 1e-9, BatchedFrobenius: 1e-9, BlockDescent: 1e-5, LargeInteriorPoint: 1e-5, type(REFERENCE): 1e-5}


@every_frobenius_solver
@pytest.mark.parametrize("third_score", [0.9, 0.0])
@pytest.mark.parametrize(("selected", "expected"), [(0, (-10 / 101, 100 / 101)), (1, (1.0, 0.0))])
def test_single_input(third_score: float, selected: int, expected: tuple[float, float], solver: Solver) -> None:
    solution = quiet_solve(AttentionSVM(single_input(third_score), [selected]), Frobenius(), solver).require_solved()
    check_same_weights(solution.weights[:, 0], np.array(expected), WITHIN[type(solver)])
    if not isinstance(solver, type(REFERENCE)):
        assert torch.nonzero(solution.support).tolist() == [[0, 2]]


@every_frobenius_solver
def test_joint_training(solver: Solver) -> None:
    problem = AttentionSVM(joint_training(1.0), [1, 1, 1])
    check_same_weights(
        quiet_solve(problem, Frobenius(), solver).weights[:, 0], np.array([4 / 3, 1 / 3]), WITHIN[type(solver)]
    )


@every_frobenius_solver
def test_relaxed_joint_training(solver: Solver) -> None:
    data = joint_training(1.5)
    supports = label_svm(data, [1, 1, 1]).support
    assert supports.tolist() == [True, True, False]
    problem = AttentionSVM(data, [1, 1, 1], right_hand_side=supports.double())
    check_same_weights(
        quiet_solve(problem, Frobenius(), solver).weights[:, 0], np.array([1.0, 0.0]), WITHIN[type(solver)]
    )


def test_label_margins_of_joint_training() -> None:
    for height, supports in ((1.0, [True, True, True]), (1.5, [True, True, False])):
        found = label_svm(joint_training(height), [1, 1, 1])
        torch.testing.assert_close(found.vector, torch.tensor([0.0, 1.0]).double(), rtol=0, atol=1e-12)
        assert found.support.tolist() == supports


@every_frobenius_solver
@pytest.mark.parametrize("C", [1.0, 100.0])
def test_loss_comparison(C: float, solver: Solver) -> None:
    problem = AttentionSVM(loss_comparison(C=C), [1, 1])
    check_same_weights(
        quiet_solve(problem, Frobenius(), solver).weights[:, 0], np.array([1.0, 0.0]), WITHIN[type(solver)]
    )


@pytest.mark.parametrize("norm", NORMS, ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_one_row(norm: Norm, seed: int) -> None:
    """n = 1, T = 2, A = (x_1 - x_2) z^T: the value is 1 / N°(A); for Frobenius and nuclear W = A / ||A||_F^2."""
    rng = np.random.default_rng(seed)
    tokens, query = rng.standard_normal((1, 2, 4)), rng.standard_normal((1, 3))
    row = np.outer(tokens[0, 0] - tokens[0, 1], query[0])
    solution = solve(AttentionSVM(dataset(tokens, query), [0]), norm).require_solved()
    expected = {
        Frobenius: lambda: np.linalg.norm(row),
        Nuclear: lambda: np.linalg.norm(row),
        Spectral: lambda: np.linalg.norm(row),
        MaxEntry: lambda: np.abs(row).sum(),
        SumEntry: lambda: np.abs(row).max(),
        Entrywise: lambda: (np.abs(row) ** (norm.p / (norm.p - 1))).sum() ** ((norm.p - 1) / norm.p),  # type: ignore[attr-defined]
    }[type(norm)]()
    assert solution.certificate.primal_value.item() == pytest.approx(1 / expected, rel=solution.tolerance)
    assert solution.duals[0, 1].item() == pytest.approx(1 / expected, rel=1e-6)
    if isinstance(norm, (Frobenius, Nuclear)):
        check_same_weights(solution.weights, row / np.linalg.norm(row) ** 2, 1e-9)
    if isinstance(norm, MaxEntry):
        check_same_weights(solution.weights, np.sign(row) / np.abs(row).sum(), 1e-7)


@every_frobenius_solver
def test_orthonormal_queries_split(solver: Solver) -> None:
    """W = sum_i w_i z_i^T with w_i the vector SVM of input i alone, each by non-negative least squares."""
    rng = np.random.default_rng(4)
    n, T, d, dq = 3, 5, 6, 4
    tokens = rng.standard_normal((n, T, d))
    queries = np.linalg.qr(rng.standard_normal((dq, dq)))[0][:n]
    selected = [0, 3, 1]
    expected = np.zeros((d, dq))
    for i, chosen in enumerate(selected):
        differences = np.delete(tokens[i, chosen] - tokens[i], chosen, axis=0)
        # min ||w|| s.t. D w >= 1: least distance programming, residual of min ||(D^T; 1^T) u - e_last||.
        stacked = np.vstack([differences.T, np.ones(T - 1)])
        u, _ = nnls(stacked, np.append(np.zeros(d), 1.0))
        residual = stacked @ u - np.append(np.zeros(d), 1.0)
        expected += np.outer(-residual[:d] / residual[d], queries[i])
    solution = quiet_solve(AttentionSVM(dataset(tokens, queries), selected), Frobenius(), solver).require_solved()
    check_same_weights(solution.weights, expected, WITHIN[type(solver)])


@pytest.mark.parametrize("norm", NORMS, ids=repr)
def test_one_dimension(norm: Norm) -> None:
    """d = dq = 1: W is the largest of the single-row bounds, for every norm."""
    data = dataset(np.array([[[3.0], [1.0], [2.5]], [[-1.0], [-4.0], [-9.0]]]), np.array([[0.5], [2.0]]))
    solution = solve(AttentionSVM(data, [0, 0]), norm).require_solved()
    assert solution.weights.item() == pytest.approx(1 / (0.5 * 0.5), rel=1e-7)
    assert solution.support.tolist() == [[False, False, True], [False, False, False]]


@pytest.mark.parametrize("norm", NORMS, ids=repr)
def test_orthonormal_tokens_and_queries(norm: Norm) -> None:
    """Tokens e_i and -e_i under queries e_i: the diagonal of W is 1/2 in every norm, and W = I/2 is a solution."""
    n = 3
    eye = np.eye(n)
    data = dataset(np.stack([eye, -eye], axis=1), eye)
    solution = solve(AttentionSVM(data, [0] * n), norm).require_solved()
    values = {Frobenius: np.sqrt(n) / 2, Nuclear: n / 2, Spectral: 0.5, MaxEntry: 0.5, SumEntry: n / 2}
    expected = n ** (1 / norm.p) / 2 if isinstance(norm, Entrywise) else values[type(norm)]
    assert solution.certificate.primal_value.item() == pytest.approx(expected, rel=1e-7)
    torch.testing.assert_close(solution.weights.diagonal(), torch.full((n,), 0.5).double(), rtol=1e-6, atol=0)


def test_a_row_that_projection_would_get_wrong() -> None:
    """l_1, row (1, .5): the optimum is 1 at (1, 0); projected on the span of the row it would be 1.2."""
    data = TokenDataset(np.array([[[1.0, 0.5], [0.0, 0.0]]]), np.ones((1, 1)), [1])
    solution = solve(AttentionSVM(data, [0]), SumEntry()).require_solved()
    torch.testing.assert_close(solution.weights[:, 0], torch.tensor([1.0, 0.0]).double(), rtol=0, atol=1e-9)
    for norm in (MaxEntry(), Entrywise(3)):
        weights = solve(AttentionSVM(data, [0]), norm).weights[:, 0]
        assert abs(weights[0] - 2 * weights[1]) > 0.1  # not on the span of (1, .5)
