"""Theorems about the solution: its rank and spaces, when selections can be separated, data of every kind."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attsvm.data import TokenDataset, random_gaussian, random_sphere
from attsvm.norms import Frobenius, Norm, Nuclear
from attsvm.svm import ActiveSet, AttentionSVM, BlockDescent, Status, solve

from .checks import (
    NORMS,
    UNIQUE,
    check_same_weights,
    dataset,
    explicit_rows,
    random_selection,
    sphere_points,
    written_out,
)

every_norm = pytest.mark.parametrize("norm", NORMS, ids=repr)
low_rank_norms = pytest.mark.parametrize(
    "norm", [norm for norm in NORMS if isinstance(norm, (Frobenius, Nuclear))], ids=repr
)


# ------------------------------------------------------------------- rank lemma


def outside_part(weights: np.ndarray, left: np.ndarray, right: np.ndarray) -> float:
    """How much of W lies outside span(left) on the left or span(right) on the right, relative to W."""

    def onto(vectors: np.ndarray) -> np.ndarray:
        u, s, _ = np.linalg.svd(vectors.T, full_matrices=False)
        u = u[:, s > 1e-10 * s[0]]
        return u @ u.T

    return float(np.linalg.norm(weights - onto(left) @ weights @ onto(right)) / np.linalg.norm(weights))


def test_outside_part_can_be_large() -> None:
    rng = np.random.default_rng(0)
    assert outside_part(rng.standard_normal((6, 5)), rng.standard_normal((2, 6)), rng.standard_normal((2, 5))) > 0.5


@low_rank_norms
@pytest.mark.parametrize(("n", "T", "d", "dq"), [(2, 3, 8, 6), (3, 2, 7, 7), (1, 4, 5, 6), (4, 3, 9, 5)])
def test_rank_lemma(norm: Norm, n: int, T: int, d: int, dq: int) -> None:
    """Row space in span{z_i}, column space in span{x_i,selected - x_it}, rank <= min(n, d, dq)."""
    data = random_sphere(n=n, T=T, d=d, dq=dq, seed=n)
    selected = random_selection(data, n)
    solution = solve(AttentionSVM(data, selected), norm).require_solved()
    differences = (data.tokens_of(selected).unsqueeze(-2) - data.tokens).reshape(-1, d).numpy()
    assert outside_part(solution.weights.numpy(), differences, data.queries.numpy()) <= 1e-9
    assert int(solution.rank()) <= min(n, d, dq, n * (T - 1))


def test_entrywise_solutions_leave_the_spans() -> None:
    data = random_sphere(n=2, T=3, d=8, dq=6, seed=2)
    selected = random_selection(data, 2)
    differences = (data.tokens_of(selected).unsqueeze(-2) - data.tokens).reshape(-1, 8).numpy()
    for norm in NORMS:
        if not norm.unitarily_invariant:
            weights = solve(AttentionSVM(data, selected), norm).require_solved().weights.numpy()
            assert outside_part(weights, differences, data.queries.numpy()) > 1e-2


def test_nuclear_ranks_are_lower() -> None:
    """On the papers' data the nuclear solution has the lower rank, on average."""
    data = random_sphere(n=6, T=4, d=8, batch=10, seed=3)
    problem = AttentionSVM(data, random_selection(data, 3))
    frobenius, nuclear = solve(problem), solve(problem, Nuclear())
    assert nuclear.rank(1e-6).double().mean() < frobenius.rank(1e-6).double().mean() - 0.5


def test_rank_counts_singular_values() -> None:
    """Tokens e_i and -e_i under queries e_i / c_i: W = diag(c) / 2, of singular values c / 2."""
    sizes = np.array([1.0, 1e-3, 1e-9])
    eye = np.eye(3)
    solution = solve(AttentionSVM(dataset(np.stack([eye, -eye], 1), eye / sizes[:, None]), [0, 0, 0])).require_solved()
    assert [int(solution.rank(tolerance)) for tolerance in (1e-2, 1e-4, 1e-8, 1e-10)] == [1, 2, 2, 3]
    assert int(solution.rank()) == 2


# ------------------------------------------------------------------- separability


@pytest.mark.parametrize(("n", "T", "d", "dq"), [(4, 5, 4, 4), (3, 4, 3, 3), (5, 2, 1, 5), (2, 6, 5, 2), (1, 4, 3, 1)])
def test_separable_sizes_are_always_solved(n: int, T: int, d: int, dq: int) -> None:
    """Cross-attention: d >= T - 1 and dq >= n separate every selection of almost every data set."""
    data = random_gaussian(n=n, T=T, d=d, dq=dq, batch=60, seed=4)  # on a sphere in one dimension tokens repeat
    problem = AttentionSVM(data, random_selection(data, 4))
    assert bool(solve(problem).solved.all())
    # Constructive: w_i with all margins 1, then W with W z_i = w_i.
    for element in range(5):
        one, chosen = data[element], problem.reference[element]
        weights = constructed(one, chosen)
        margins = problem[element].margins(weights)[problem[element].rows]
        torch.testing.assert_close(margins, torch.ones_like(margins), rtol=0, atol=1e-6)


def constructed(data: TokenDataset, selected: torch.Tensor) -> torch.Tensor:
    vectors = []
    for i, chosen in enumerate(selected.tolist()):
        differences = np.delete(data.tokens[i, chosen].numpy() - data.tokens[i].numpy(), chosen, axis=0)
        vectors.append(np.linalg.lstsq(differences, np.ones(data.T - 1), rcond=None)[0])
    return torch.from_numpy(np.linalg.lstsq(data.queries.numpy(), np.stack(vectors), rcond=None)[0].T.copy())


@pytest.mark.parametrize(("n", "T", "d"), [(4, 5, 4), (3, 3, 3), (2, 6, 5)])
def test_self_attention_separates(n: int, T: int, d: int) -> None:
    """d >= max(T - 1, n)."""
    drawn = random_sphere(n=n, T=T, d=d, batch=60, seed=5)
    data = TokenDataset.self_attention(drawn.tokens, drawn.labels)
    assert bool(solve(AttentionSVM(data, random_selection(data, 5))).solved.all())


@pytest.mark.parametrize(("n", "T"), [(2, 3), (3, 2)])
def test_prompts_separate(n: int, T: int) -> None:
    """dq = 1: d >= n (T - 1)."""
    drawn = random_sphere(n=n, T=T, d=n * (T - 1), batch=60, seed=6)
    data = TokenDataset.prompt(drawn.tokens, drawn.labels)
    assert bool(solve(AttentionSVM(data, random_selection(data, 6))).solved.all())


@pytest.mark.parametrize(
    ("n", "T", "d", "dq"), [(4, 6, 3, 4), (8, 4, 3, 2), (5, 4, 3, 1)], ids=["d < T-1", "dq < n", "prompt, d < n(T-1)"]
)
def test_below_the_bound_some_selections_are_not_separable(n: int, T: int, d: int, dq: int) -> None:
    data = random_gaussian(n=n, T=T, d=d, dq=dq, batch=60, seed=7)  # on the sphere every token is extreme among its own
    solution = solve(AttentionSVM(data, random_selection(data, 7)))
    assert bool((solution.solved | solution.infeasible).all())
    assert int(solution.infeasible.sum()) > 0


# ------------------------------------------------------------------- data of every kind


@every_norm
@pytest.mark.parametrize("kind", ["causal", "sequence"])
def test_shared_tokens_equal_copied_ones(norm: Norm, kind: str) -> None:
    rng = np.random.default_rng(8)
    make = getattr(TokenDataset, kind)
    data = make(sphere_points(rng, 2, 3, 6), np.ones((2, 3)))
    copied = written_out(data)
    selected = random_selection(data, 8)
    shared, plain = solve(AttentionSVM(data, selected), norm), solve(AttentionSVM(copied, selected), norm)
    assert shared.status is plain.status is Status.SOLVED
    assert shared.certificate.primal_value.item() == pytest.approx(plain.certificate.primal_value.item(), rel=1e-7)
    if norm in UNIQUE:
        check_same_weights(shared.weights, plain.weights, 1e-6)
    rows = explicit_rows(data, selected)
    margins = np.einsum("kij,ij->k", rows.inequalities, shared.weights.numpy())
    assert margins.min() >= 1 - 1e-7


@pytest.mark.parametrize("solver", [ActiveSet(), BlockDescent()], ids=lambda solver: type(solver).__name__)
def test_causal_data_in_every_frobenius_solver(solver) -> None:
    rng = np.random.default_rng(9)
    data = TokenDataset.causal(sphere_points(rng, 2, 5, 12), np.ones((2, 5)))
    selected = random_selection(data, 9)
    found = solve(AttentionSVM(data, selected), solver=solver).require_solved()
    expected = solve(AttentionSVM(written_out(data), selected), solver=ActiveSet()).require_solved()
    check_same_weights(found.weights, expected.weights, 1e-4 if isinstance(solver, BlockDescent) else 1e-8)


@every_norm
def test_masked_tokens_are_not_there(norm: Norm) -> None:
    """A ragged data set against the same with fewer tokens, whatever lies where the mask hides."""
    rng = np.random.default_rng(10)
    tokens, queries = sphere_points(rng, 3, 5, 6), sphere_points(rng, 3, 6)
    mask = np.arange(5) < 3
    expected = solve(AttentionSVM(dataset(tokens[:, :3], queries), [0, 1, 2]), norm)
    for filler in (0.0, 1e8):
        hidden = np.where(mask[:, None], tokens, filler)
        data = dataset(hidden, queries, mask=np.broadcast_to(mask, (3, 5)).copy())
        found = solve(AttentionSVM(data, [0, 1, 2]), norm).require_solved()
        assert found.certificate.primal_value.item() == pytest.approx(
            expected.certificate.primal_value.item(), rel=1e-7
        )
        assert not bool(found.duals[:, 3:].any())
        assert not bool(found.support[:, 3:].any())


@every_norm
def test_a_prompt_is_a_vector_problem(norm: Norm) -> None:
    """dq = 1, query 1, keys X W^T: the same as rows W (x_selected - x_t) in the vector norm."""
    rng = np.random.default_rng(11)
    tokens, fixed = sphere_points(rng, 2, 3, 6), rng.standard_normal((5, 6))
    data = TokenDataset.prompt(tokens, [1, -1], fixed)
    solution = solve(AttentionSVM(data, [0, 2]), norm).require_solved()
    assert solution.weights.shape == (5, 1)
    for i, chosen in enumerate((0, 2)):
        for t in range(3):
            if t != chosen:
                assert (fixed @ (tokens[i, chosen] - tokens[i, t])) @ solution.weights[:, 0].numpy() >= 1 - 1e-7
    if isinstance(norm, Nuclear):
        frobenius = solve(AttentionSVM(data, [0, 2])).weights
        check_same_weights(solution.weights, frobenius, 1e-7)
