"""Several selected tokens per input, right-hand sides of every shape, and the finite component."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attsvm.data import TokenDataset, random_sphere
from attsvm.norms import Frobenius, Norm
from attsvm.svm import ActiveSet, AttentionSVM, BatchedFrobenius, BlockDescent, Status, finite_component, solve

from .checks import (
    NORMS,
    UNIQUE,
    check_optimal,
    check_same_weights,
    explicit_rows,
    norm_value,
    random_selection,
    reference,
)

every_norm = pytest.mark.parametrize("norm", NORMS, ids=repr)
FROBENIUS = [ActiveSet(), BatchedFrobenius(), BlockDescent()]
every_frobenius_solver = pytest.mark.parametrize("solver", FROBENIUS, ids=lambda solver: type(solver).__name__)


def random_set(rng: np.random.Generator, n: int, T: int) -> np.ndarray:
    """A mask with 1 .. T - 1 tokens in every input."""
    kept = rng.random((n, T)) < 0.5
    for row in kept:
        row[rng.integers(T)] = True
        if row.all():
            row[rng.integers(T)] = False
    return kept


# ------------------------------------------------------------------- selected sets


@every_norm
@pytest.mark.parametrize("seed", range(4))
def test_one_representative_equals_all_pairs(norm: Norm, seed: int) -> None:
    """The reduced rows against CVXPY on every pair of rows."""
    rng = np.random.default_rng(seed)
    data = random_sphere(n=3, T=5, d=6, seed=seed)
    kept = random_set(rng, 3, 5)
    solution = solve(AttentionSVM(data, selected_set=kept), norm).require_solved()
    expected = reference(explicit_rows(data, selected_set=kept, all_pairs=True), norm)
    assert expected is not None
    assert solution.certificate.primal_value.item() == pytest.approx(norm_value(norm, expected), rel=2e-7)
    if norm in UNIQUE or bool(solution.unique):
        check_same_weights(solution.weights, expected, 2e-5)  # redundant rows cost Clarabel digits
        check_same_weights(solution.weights, reference(explicit_rows(data, selected_set=kept), norm), 1e-6)
    check_optimal(
        explicit_rows(data, selected_set=kept), norm, solution.weights, solution.duals, 2 * solution.tolerance
    )


@every_norm
@settings(max_examples=10)
@given(seed=st.integers(0, 10_000))
def test_equality_rows_hold(norm: Norm, seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = random_sphere(n=2, T=5, d=6, seed=seed)
    kept = random_set(rng, 2, 5)
    solution = solve(AttentionSVM(data, selected_set=kept), norm).require_solved()
    rows = explicit_rows(data, selected_set=kept, all_pairs=True)
    weights = solution.weights.numpy()
    equal = np.einsum("kij,ij->k", rows.equalities, weights)
    assert np.abs(equal).max(initial=0.0) <= 1e-9 * max(1.0, np.linalg.norm(weights))
    assert np.einsum("kij,ij->k", rows.inequalities, weights).min() >= 1 - 1e-7
    # The representative holds minus the sum of the equality multipliers.
    multipliers = solution.duals.numpy()
    first = kept.argmax(1)
    for i in range(2):
        others = [t for t in np.flatnonzero(kept[i]) if t != first[i]]
        assert multipliers[i, first[i]] == pytest.approx(-multipliers[i, others].sum(), abs=1e-12)


@every_frobenius_solver
def test_every_frobenius_solver_knows_equalities(solver) -> None:
    data = random_sphere(n=4, T=6, d=8, batch=10, seed=5)
    rng = np.random.default_rng(5)
    kept = np.stack([random_set(rng, 4, 6) for _ in range(10)])
    solution = solve(AttentionSVM(data, selected_set=kept), solver=solver).require_solved()
    for element in range(0, 10, 3):
        expected = reference(explicit_rows(data[element], selected_set=kept[element]), Frobenius())
        check_same_weights(solution.weights[element], expected, 1e-4 if isinstance(solver, BlockDescent) else 1e-6)
    margins = solution.margins.masked_fill(~AttentionSVM(data, selected_set=kept).equalities, 0.0)
    assert margins.abs().max() <= (1e-8 if isinstance(solver, BlockDescent) else 1e-9)


def test_a_set_of_one_token_is_a_selection() -> None:
    data = random_sphere(n=3, T=4, d=5, seed=6)
    selected = random_selection(data, 6)
    kept = torch.nn.functional.one_hot(selected, 4).bool()
    one, other = solve(AttentionSVM(data, selected)), solve(AttentionSVM(data, selected_set=kept))
    assert one.weights.equal(other.weights)
    assert one.duals.equal(other.duals)


def test_an_input_may_keep_everything_beside_others() -> None:
    data = random_sphere(n=2, T=3, d=5, seed=7)
    kept = np.array([[True, True, True], [True, False, False]])
    solution = solve(AttentionSVM(data, selected_set=kept)).require_solved()
    assert solution.margins[0].abs().max() <= 1e-10
    assert solution.margins[1, 1:].min() >= 1 - 1e-10


def test_an_element_may_keep_everything_where_that_is_said() -> None:
    """With `rows` or `equality_values` given; by itself such a set is refused (`test_bad_input`)."""
    data = random_sphere(n=2, T=3, d=5, seed=7)
    kept = np.ones((2, 3), bool)
    rest = AttentionSVM(data, selected_set=kept, rows=kept)
    assert int(rest.equalities.sum()) == 4
    assert not bool(rest.inequalities.any())
    assert not bool(solve(rest).require_solved().weights.any())
    values = np.array([[0.0, 0.5, 0.25], [0.0, 0.0, 0.0]])
    found = solve(AttentionSVM(data, selected_set=kept, equality_values=values)).require_solved()
    torch.testing.assert_close(found.margins, -torch.from_numpy(values), rtol=0, atol=1e-12)


@every_norm
def test_an_infeasible_set(norm: Norm) -> None:
    """A token outside the set halfway between two inside it gets the margin 0 whatever W."""
    data = random_sphere(n=2, T=3, d=5, seed=8)
    tokens = (data.tokens * 2**20).round() / 2**20  # so that halfway is exact, and with it the proof
    tokens[0, 2] = (tokens[0, 0] + tokens[0, 1]) / 2
    halfway = TokenDataset(tokens, data.queries, data.labels)
    kept = np.array([[True, True, False], [True, False, False]])
    solution = solve(AttentionSVM(halfway, selected_set=kept), norm)
    assert solution.status is Status.INFEASIBLE
    assert solution.certificate.ray_residual.item() <= 1e-10
    # The ray: the row of token 2 minus half the equality row of token 1.
    ray = solution.duals / solution.duals[0, 2]
    torch.testing.assert_close(ray[0], torch.tensor([0.5, -0.5, 1.0]).double(), rtol=0, atol=1e-9)
    assert ray[1].abs().max() <= 1e-9


# ------------------------------------------------------------------- right-hand sides


def test_right_hand_sides_of_every_shape() -> None:
    data = random_sphere(n=3, T=4, d=5, batch=2, seed=9)
    selected = random_selection(data, 9)
    rng = np.random.default_rng(9)
    inputs, rows = rng.uniform(0, 2, (2, 3)), rng.uniform(-0.5, 2, (2, 3, 4))
    for side in (0.7, inputs, rows, torch.from_numpy(rows)):
        problem = AttentionSVM(data, selected, right_hand_side=side)
        full = np.broadcast_to(np.asarray(side)[..., None] if np.ndim(side) == 2 else side, (2, 3, 4))
        expected = torch.where(problem.inequalities, torch.from_numpy(full.copy()), 0.0)
        assert problem.right_hand_side.equal(expected.double())
        solution = solve(problem).require_solved()
        for element in range(2):
            written = explicit_rows(data[element], selected[element])
            asks = np.array([full[element][place] for place in written.places])
            same = reference(
                type(written)(
                    written.inequalities,
                    asks,
                    *(getattr(written, name) for name in ("equalities", "equality_values", "places", "equal_places")),
                ),
                Frobenius(),
            )
            check_same_weights(solution.weights[element], same, 1e-6)


@every_norm
def test_nothing_asked_nothing_given(norm: Norm) -> None:
    """Right-hand side 0 everywhere: W = 0, proved; negative ones as well."""
    data = random_sphere(n=2, T=3, d=4, seed=10)
    for side in (0.0, -1.0):
        solution = solve(AttentionSVM(data, [0, 1], right_hand_side=side), norm)
        assert solution.status is Status.SOLVED
        assert solution.weights.abs().max() <= 1e-7


@every_norm
@pytest.mark.parametrize("seed", range(3))
def test_relaxed_problems_cost_less(norm: Norm, seed: int) -> None:
    data = random_sphere(n=4, T=4, d=6, seed=seed)
    selected = random_selection(data, seed)
    sides = np.array([1.0, 0.0, 1.0, 0.0])
    relaxed = solve(AttentionSVM(data, selected, right_hand_side=sides), norm).require_solved()
    strict = solve(AttentionSVM(data, selected), norm).require_solved()
    free = solve(AttentionSVM(data.take_inputs([0, 2]), selected[[0, 2]]), norm).require_solved()
    low, middle, high = (one.certificate.primal_value.item() for one in (free, relaxed, strict))
    assert low <= middle * (1 + 1e-7)
    assert middle <= high * (1 + 1e-7)
    assert relaxed.margins[[1, 3]].min() >= -1e-7
    assert relaxed.certificate.min_margin.item() == pytest.approx(1, abs=1e-6)


# ------------------------------------------------------------------- finite component


@pytest.mark.parametrize("seed", range(5))
def test_finite_component(seed: int) -> None:
    """Least squares gives the same W; its softmax has the ratios that were asked for; it is orthogonal to W_svm."""
    rng = np.random.default_rng(seed)
    data = random_sphere(n=3, T=5, d=8, seed=seed)
    kept = random_set(rng, 3, 5)
    attention = rng.dirichlet(np.ones(5), 3)
    finite = finite_component(data, attention, kept).require_solved()
    rows, sides = [], []
    for i in range(3):
        inside = np.flatnonzero(kept[i])
        for t in inside:
            for u in inside:
                rows.append(np.outer(data.tokens[i, t] - data.tokens[i, u], data.queries[i]).ravel())
                sides.append(np.log(attention[i, t] / attention[i, u]))
    expected = np.linalg.lstsq(np.array(rows), np.array(sides), rcond=None)[0].reshape(8, 8)
    if np.linalg.norm(expected) == 0:
        pytest.fail("the drawn sets must hold a pair")
    check_same_weights(finite.weights, expected, 1e-9)
    scores = np.einsum("ntd,de,ne->nt", data.tokens.numpy(), finite.weights.numpy(), data.queries.numpy())
    for i in range(3):
        inside = kept[i]
        mine = np.exp(scores[i, inside] - scores[i, inside].max())
        np.testing.assert_allclose(mine / mine.sum(), attention[i, inside] / attention[i, inside].sum(), rtol=1e-9)
    separating = solve(AttentionSVM(data, selected_set=kept)).require_solved()
    product = (finite.weights * separating.weights).sum() / (finite.weights.norm() * separating.weights.norm())
    assert abs(product.item()) <= 1e-10


@every_norm
def test_finite_component_in_every_norm(norm: Norm) -> None:
    rng = np.random.default_rng(11)
    data = random_sphere(n=2, T=4, d=5, seed=11)
    kept, attention = np.array([[True, True, False, True], [False, True, True, False]]), rng.dirichlet(np.ones(4), 2)
    found = finite_component(data, attention, kept, norm).require_solved()
    rows = explicit_rows(data, selected_set=kept)
    none = np.zeros((0, 5, 5))
    first = kept.argmax(1)
    values = np.array([np.log(attention[i, first[i]] / attention[i, t]) for i, t in rows.equal_places])
    asked = type(rows)(none, np.zeros(0), rows.equalities, values, [], rows.equal_places)
    expected = reference(asked, norm)
    assert expected is not None
    assert found.certificate.primal_value.item() == pytest.approx(norm_value(norm, expected), rel=2e-7)
    check_optimal(asked, norm, found.weights, found.duals, 2 * found.tolerance)


def test_finite_component_of_equal_probabilities_is_zero() -> None:
    data = random_sphere(n=2, T=3, d=5, seed=12)
    found = finite_component(data, np.full((2, 3), 1 / 3), np.ones((2, 3), bool))
    assert bool(found.solved)
    assert not bool(found.weights.any())
    assert found.certificate.relative_gap.item() == 0


def test_equality_values_shift_the_margins() -> None:
    """Values c mean logits that differ by c within the set; a constant added to them changes nothing."""
    data = random_sphere(n=2, T=4, d=6, seed=13)
    kept = np.array([[True, True, False, False], [False, True, True, False]])
    values = np.array([[0.3, -0.2, 9.0, 9.0], [9.0, 1.0, 0.5, 9.0]])
    solution = solve(AttentionSVM(data, selected_set=kept, equality_values=values)).require_solved()
    assert solution.margins[0, 1].item() == pytest.approx(0.5, abs=1e-9)
    assert solution.margins[1, 2].item() == pytest.approx(0.5, abs=1e-9)
    shifted = solve(AttentionSVM(data, selected_set=kept, equality_values=values + 7)).require_solved()
    check_same_weights(shifted.weights, solution.weights, 1e-8)
