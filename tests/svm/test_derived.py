"""Margin efficiency and the label SVM."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from attsvm.data import TokenDataset, random_sphere
from attsvm.norms import Norm
from attsvm.svm import AttentionSVM, BlockDescent, Status, label_svm, margin_efficiency, solve
from cases import case

from .checks import NORMS, dataset, random_selection, sphere_points

every_norm = pytest.mark.parametrize("norm", NORMS, ids=repr)


# ------------------------------------------------------------------- margin efficiency


@every_norm
@settings(max_examples=10)
@given(seed=st.integers(0, 10_000), scale=st.floats(1e-3, 1e3))
def test_efficiency_is_at_most_one_and_has_no_scale(norm: Norm, seed: int, scale: float) -> None:
    data = random_sphere(n=2, T=3, d=4, seed=seed)
    problem = AttentionSVM(data, random_selection(data, seed))
    solution = solve(problem, norm).require_solved()
    weights = np.random.default_rng(seed).standard_normal((4, 4))
    best = margin_efficiency(solution.weights, problem, norm, solution=solution).item()
    assert best == pytest.approx(1, abs=2e-7)
    for other in (weights, solution.weights.numpy() + 0.1 * weights):
        found = margin_efficiency(other, problem, norm, solution=solution).item()
        assert found <= 1 + 1e-7
        assert margin_efficiency(scale * other, problem, norm, solution=solution).item() == pytest.approx(
            found, rel=1e-9
        )
    assert margin_efficiency(-solution.weights, problem, norm, solution=solution).item() <= -best * (1 - 1e-6)


@every_norm
def test_efficiency_by_its_definition(norm: Norm) -> None:
    data = random_sphere(n=3, T=4, d=5, seed=1)
    problem = AttentionSVM(data, random_selection(data, 1))
    weights = torch.from_numpy(np.random.default_rng(1).standard_normal((5, 5)))
    expected = (
        problem.margins(weights)[problem.rows].min() / norm.value(weights) * norm.value(solve(problem, norm).weights)
    )
    assert margin_efficiency(weights, problem, norm).item() == pytest.approx(expected.item(), rel=1e-9)


def test_efficiency_of_several_starts_and_batches() -> None:
    data = random_sphere(n=2, T=3, d=4, batch=(2,), seed=2)
    problem = AttentionSVM(data, random_selection(data, 2))
    weights = torch.from_numpy(np.random.default_rng(2).standard_normal((5, 2, 4, 4)))
    found = margin_efficiency(weights, problem)
    assert found.shape == (5, 2)
    for start in range(5):
        for element in range(2):
            alone = margin_efficiency(weights[start, element], problem[element])
            assert found[start, element].item() == pytest.approx(alone.item(), rel=1e-9)


def test_efficiency_weighs_rows_by_what_they_ask() -> None:
    """One row asks for 2, another for 1: W = (2, 1) is the solution; (1, 1) has half the margin it needs."""
    data = dataset(np.array([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 1.0], [0.0, 0.0]]]), np.ones((2, 1)))
    problem = AttentionSVM(data, [0, 0], right_hand_side=np.array([2.0, 1.0]))
    assert margin_efficiency(np.array([[2.0], [1.0]]), problem).item() == pytest.approx(1)
    assert margin_efficiency(np.array([[1.0], [1.0]]), problem).item() == pytest.approx(0.5 / np.sqrt(2) * np.sqrt(5))


def test_efficiency_of_odd_inputs() -> None:
    data = random_sphere(n=2, T=3, d=4, seed=3)
    problem = AttentionSVM(data, [0, 0])
    assert margin_efficiency(np.zeros((4, 4)), problem).item() == -np.inf
    bad = case("infeasible")
    assert np.isnan(margin_efficiency(np.ones((2, 2)), AttentionSVM(bad.data, bad.selected)).item())
    alone = AttentionSVM(dataset(np.ones((1, 1, 2)), np.ones((1, 2))), [0])
    assert margin_efficiency(np.ones((2, 2)), alone).item() == 1
    with pytest.raises(ValueError, match="weights must have shape"):
        margin_efficiency(np.ones((3, 4)), problem)


# ------------------------------------------------------------------- label SVM


@pytest.mark.parametrize("seed", range(4))
def test_label_svm_against_least_distance_programming(seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = TokenDataset(sphere_points(rng, 5, 3, 7), sphere_points(rng, 5, 7), rng.choice([-1.0, 1.0], 5))
    selected = rng.integers(0, 3, 5)
    rows = data.labels.numpy()[:, None] * data.tokens.numpy()[np.arange(5), selected]
    stacked = np.vstack([rows.T, np.ones(5)])
    u, _ = nnls(stacked, np.append(np.zeros(7), 1.0))
    residual = stacked @ u - np.append(np.zeros(7), 1.0)
    found = label_svm(data, selected)
    expected = -residual[:7] / residual[7]
    np.testing.assert_allclose(found.vector.numpy(), expected, rtol=0, atol=1e-9)
    assert found.support.tolist() == (np.abs(rows @ expected - 1) <= 1e-7).tolist()
    assert bool(found.solution.certificate.proves_optimal(1e-10))


def test_label_svm_reads_the_values() -> None:
    rng = np.random.default_rng(5)
    keys, values = sphere_points(rng, 3, 2, 4), rng.standard_normal((3, 2, 6))
    data = TokenDataset(keys, sphere_points(rng, 3, 4), [1, -1, 1], values=values)
    found = label_svm(data, [0, 1, 0])
    assert found.vector.shape == (6,)
    chosen = values[np.arange(3), [0, 1, 0]] * np.array([1.0, -1.0, 1.0])[:, None]
    assert (chosen @ found.vector.numpy()).min() == pytest.approx(1, abs=1e-10)


def test_label_svm_of_batches_and_solvers() -> None:
    data = random_sphere(n=4, T=3, d=6, batch=(2, 3), seed=6)
    selected = random_selection(data, 6)
    found = label_svm(data, selected)
    assert found.vector.shape == (2, 3, 6)
    assert found.support.shape == (2, 3, 4)
    other = label_svm(data, selected, solver=BlockDescent())
    torch.testing.assert_close(other.vector, found.vector, rtol=0, atol=1e-3)
    for place in np.ndindex(2, 3):
        torch.testing.assert_close(
            label_svm(data[place], selected[place]).vector, found.vector[place], rtol=0, atol=1e-8
        )


def test_label_svm_of_shared_tokens() -> None:
    rng = np.random.default_rng(7)
    data = TokenDataset.causal(sphere_points(rng, 1, 3, 5), [[1, -1, 1]])
    found = label_svm(data, [0, 1, 2])
    signed = data.tokens[0].numpy() * np.array([1.0, -1.0, 1.0])[:, None]
    np.testing.assert_allclose(signed @ found.vector.numpy(), np.maximum(signed @ found.vector.numpy(), 1 - 1e-10))
    assert found.support.any()


def test_labels_that_cannot_be_separated() -> None:
    tokens = np.broadcast_to(np.array([[1.0, 0.0], [0.0, 1.0]]), (2, 2, 2)).copy()
    found = label_svm(TokenDataset(tokens, np.ones((2, 2)), [1, -1]), [0, 0])
    assert found.solution.status is Status.INFEASIBLE
    assert bool(found.vector.isnan().all())
    assert not bool(found.support.any())


def test_label_svm_checks_the_selection() -> None:
    data = random_sphere(n=2, T=3, d=4, seed=8)
    with pytest.raises(ValueError, match=r"selected must lie in 0\.\.2; got 3 at input 1"):
        label_svm(data, [0, 3])
    with pytest.raises(ValueError, match="selected must have shape"):
        label_svm(data, [0, 1, 2])
    with pytest.raises(ValueError, match="selected must hold token indices; got float"):
        label_svm(data, np.array([0.0, 1.0]))
