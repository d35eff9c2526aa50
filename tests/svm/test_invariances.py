"""What must not change a solution, and what must change it in a known way."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attsvm.data import TokenDataset
from attsvm.norms import Norm
from attsvm.svm import AttentionSVM, SVMSolution, solve

from .checks import INVARIANT, NORMS, UNIQUE, check_same_weights, dataset, sphere_points

every_norm = pytest.mark.parametrize("norm", NORMS, ids=repr)
invariant_norms = pytest.mark.parametrize("norm", INVARIANT, ids=repr)
seeds = st.integers(0, 10_000)
few = settings(max_examples=12)


def draw(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    n, T = int(rng.integers(1, 4)), int(rng.integers(2, 5))
    return sphere_points(rng, n, T, 4), sphere_points(rng, n, 3), rng.integers(0, T, n), rng


def solved(tokens: np.ndarray, queries: np.ndarray, selected: np.ndarray, norm: Norm) -> SVMSolution:
    return solve(AttentionSVM(dataset(tokens, queries), selected), norm).require_solved()


def agree(norm: Norm, found: SVMSolution, expected_value: float, expected: torch.Tensor) -> None:
    """The value always; the weights where they are unique."""
    assert found.certificate.primal_value.item() == pytest.approx(expected_value, rel=2e-7)
    if norm in UNIQUE or bool(found.unique):
        check_same_weights(found.weights, expected, 2e-5 if found.tolerance > 1e-8 else 1e-7)


def orthogonal(rng: np.random.Generator, size: int) -> np.ndarray:
    return np.linalg.qr(rng.standard_normal((size, size)))[0]


def test_agree_can_fail() -> None:
    tokens, queries, selected, _ = draw(1)
    norm = NORMS[0]
    found = solved(tokens, queries, selected, norm)
    value = found.certificate.primal_value.item()
    agree(norm, found, value, found.weights)
    with pytest.raises(AssertionError):
        agree(norm, found, value * (1 + 1e-6), found.weights)
    with pytest.raises(AssertionError, match="same weights"):
        agree(norm, found, value, found.weights.flip(0))


@invariant_norms
@few
@given(seed=seeds)
def test_rotation_of_tokens(norm: Norm, seed: int) -> None:
    tokens, queries, selected, rng = draw(seed)
    turn = orthogonal(rng, 4)
    before = solved(tokens, queries, selected, norm)
    after = solved(tokens @ turn.T, queries, selected, norm)
    agree(norm, after, before.certificate.primal_value.item(), torch.from_numpy(turn) @ before.weights)


@invariant_norms
@few
@given(seed=seeds)
def test_rotation_of_queries(norm: Norm, seed: int) -> None:
    tokens, queries, selected, rng = draw(seed)
    turn = orthogonal(rng, 3)
    before = solved(tokens, queries, selected, norm)
    after = solved(tokens, queries @ turn.T, selected, norm)
    agree(norm, after, before.certificate.primal_value.item(), before.weights @ torch.from_numpy(turn.T))


@every_norm
@few
@given(seed=seeds)
def test_shift_of_tokens(norm: Norm, seed: int) -> None:
    """Softmax does not see a shift of all tokens of an input."""
    tokens, queries, selected, rng = draw(seed)
    shifts = rng.standard_normal((len(tokens), 1, 4))
    before = solved(tokens, queries, selected, norm)
    after = solved(tokens + shifts, queries, selected, norm)
    agree(norm, after, before.certificate.primal_value.item(), before.weights)


@every_norm
@few
@given(seed=seeds)
def test_permutation_of_tokens_and_inputs(norm: Norm, seed: int) -> None:
    tokens, queries, selected, rng = draw(seed)
    n, T = tokens.shape[:2]
    orders = np.stack([rng.permutation(T) for _ in range(n)])
    inputs = rng.permutation(n)
    shuffled = np.take_along_axis(tokens, orders[..., None], 1)[inputs]
    moved = np.array([int(np.flatnonzero(order == chosen)[0]) for order, chosen in zip(orders, selected, strict=True)])[
        inputs
    ]
    before, after = solved(tokens, queries, selected, norm), solved(shuffled, queries[inputs], moved, norm)
    agree(norm, after, before.certificate.primal_value.item(), before.weights)
    if norm in UNIQUE:
        expected = np.take_along_axis(before.support.numpy(), orders, 1)[inputs]
        clear = int(before.ambiguous) == int(after.ambiguous) == 0
        assert not clear or (after.support.numpy() == expected).all()


@every_norm
@few
@given(seed=seeds, power=st.integers(-8, 8))
def test_scaling_tokens_scales_the_solution_inversely(norm: Norm, seed: int, power: int) -> None:
    tokens, queries, selected, _ = draw(seed)
    scale = 10.0 ** (power / 2)
    before, after = solved(tokens, queries, selected, norm), solved(scale * tokens, queries, selected, norm)
    agree(norm, after, before.certificate.primal_value.item() / scale, before.weights / scale)


@every_norm
@few
@given(seed=seeds, side=st.floats(1e-2, 1e2))
def test_scaling_right_hand_sides_scales_the_solution(norm: Norm, seed: int, side: float) -> None:
    tokens, queries, selected, _ = draw(seed)
    before = solved(tokens, queries, selected, norm)
    after = solve(AttentionSVM(dataset(tokens, queries), selected, right_hand_side=side), norm).require_solved()
    agree(norm, after, before.certificate.primal_value.item() * side, before.weights * side)
    # Duals of the norm form do not scale with the right-hand side.
    assert after.duals.sum().item() == pytest.approx(before.certificate.primal_value.item(), rel=1e-6)


@every_norm
@few
@given(seed=seeds)
def test_signs_and_order_of_coordinates(norm: Norm, seed: int) -> None:
    """Symmetries that the entrywise norms share with the others."""
    tokens, queries, selected, rng = draw(seed)
    order, signs = rng.permutation(4), rng.choice([-1.0, 1.0], 4)
    before = solved(tokens, queries, selected, norm)
    after = solved((tokens * signs)[..., order], queries, selected, norm)
    expected = (torch.from_numpy(signs)[:, None] * before.weights)[torch.from_numpy(order)]
    agree(norm, after, before.certificate.primal_value.item(), expected)


@every_norm
@few
@given(seed=seeds)
def test_a_row_that_does_not_bind_changes_nothing(norm: Norm, seed: int) -> None:
    """One more token, far on the wrong side of the solution found."""
    tokens, queries, selected, _ = draw(seed)
    before = solved(tokens, queries, selected, norm)
    far = tokens[0, selected[0]] - 3 * (before.weights.numpy() @ queries[0]) / np.sum(
        (before.weights.numpy() @ queries[0]) ** 2
    )
    mask = np.ones((tokens.shape[0], tokens.shape[1] + 1), bool)
    mask[1:, -1] = False
    longer = np.concatenate([tokens, np.broadcast_to(far, (len(tokens), 1, 4))], axis=1)
    data = TokenDataset(longer, queries, np.ones(len(tokens)), mask=mask)
    after = solve(AttentionSVM(data, selected), norm).require_solved()
    agree(norm, after, before.certificate.primal_value.item(), before.weights)
    if norm in UNIQUE:
        assert not bool(after.support[0, -1])


@every_norm
@few
@given(seed=seeds)
def test_more_rows_never_cost_less(norm: Norm, seed: int) -> None:
    tokens, queries, selected, _ = draw(seed)
    whole = solved(tokens, queries, selected, norm).certificate.primal_value.item()
    part = solved(tokens[:1], queries[:1], selected[:1], norm).certificate.primal_value.item()
    assert part <= whole * (1 + 1e-7)


def test_values_labels_and_head_do_not_matter() -> None:
    tokens, queries, selected, rng = draw(3)
    n, T = tokens.shape[:2]
    plain = solved(tokens, queries, selected, NORMS[0])
    dressed = TokenDataset(
        tokens, queries, rng.choice([-1.0, 1.0], n), values=rng.standard_normal((n, T, 2)), head=rng.standard_normal(2)
    )
    assert solve(AttentionSVM(dressed, selected)).weights.equal(plain.weights)
