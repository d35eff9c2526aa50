from __future__ import annotations

import numpy as np
import pytest
import torch

import attsvm
from attsvm.heads import HeadWeights, Settings
from attsvm.heads.analysis.comparison import agreement, compare_with_max_margin, projected, selection_problem, spectrum
from attsvm.heads.analysis.selections import choices
from attsvm.norms import Frobenius, Nuclear
from heads.analysis.written_out import drawn_from, rows
from heads.planted import random_form, random_views, view


@pytest.mark.parametrize("norm", [Frobenius(), Nuclear()])
def test_the_comparison_agrees_with_another_solver_on_rows_written_out(norm):
    views, form = random_views(8), random_form()
    drawn = drawn_from(views, form, 12)
    settings = Settings(norms=(norm,), accuracy=1e-7, queries=12, other_queries=12)
    ours = compare_with_max_margin(form, views, drawn, drawn, norm, settings).closeness
    assert ours.solved
    written = rows(views, drawn)
    pairs = torch.from_numpy(np.stack([written.reshape(len(written), -1), np.zeros((len(written), 36))], 1))
    if isinstance(norm, Frobenius):  # as vectors: one query 1, tokens vec(A_k) and 0
        data = attsvm.TokenDataset(pairs, torch.ones(len(written), 1).double(), torch.ones(len(written)))
        best = attsvm.solve(
            attsvm.AttentionSVM(data, torch.zeros(len(written), dtype=torch.int64)), solver=attsvm.Cvxpy()
        ).weights.reshape(6, 6)
    else:
        data = selection_problem(views, drawn).problem
        best = attsvm.solve(data, norm, solver=attsvm.Cvxpy()).weights
    w = form.weights
    value, size = float(norm.value(best)), float(norm.value(w))
    direct = np.einsum("kij,ij->k", written, w.numpy())
    assert ours.max_margin == pytest.approx(1 / value, rel=1e-4)
    assert ours.efficiency.smallest == pytest.approx(direct.min() / size * value, rel=1e-3)
    assert 0 < ours.efficiency.smallest <= 1
    if isinstance(norm, Frobenius):
        assert ours.cosine == pytest.approx(float((best * w).sum() / best.norm() / w.norm()), abs=1e-3)


def test_one_query_and_two_tokens_in_closed_form():
    """W_mm is the row itself, so that efficiency and cosine are the same number: <A, W> / (||A|| ||W||)."""
    seen = view(torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 1.0]]))
    form = random_form(3, 2, seed=4)
    found = choices([seen], form)
    one = found[torch.tensor([0])]
    result = compare_with_max_margin(form, [seen], one, one, Frobenius(), Settings(accuracy=1e-9)).closeness
    row = torch.from_numpy(rows([seen], one)[0])
    cosine = float((row * form.weights).sum() / row.norm() / form.weights.norm())
    assert result.efficiency.smallest == pytest.approx(cosine, rel=1e-6)
    assert result.cosine == pytest.approx(cosine, rel=1e-6)
    assert result.efficiency_projected.smallest == pytest.approx(1.0, rel=1e-6)  # one dimension is left
    assert result.cosine_projected == pytest.approx(1.0, rel=1e-6)
    assert result.spectrum.rank == 1
    assert result.support_rows == result.support_queries == 1
    assert result.agreement == 1.0


def test_the_solution_is_its_own_best():
    views, form = random_views(10), random_form()
    drawn = drawn_from(views, form, 20)
    settings = Settings(accuracy=1e-6)
    best = compare_with_max_margin(form, views, drawn, drawn, Frobenius(), settings).solution.weights
    again = compare_with_max_margin(
        HeadWeights(best, torch.eye(6).double()), views, drawn, drawn, Frobenius(), settings
    ).closeness
    assert again.efficiency.smallest == pytest.approx(1.0, abs=1e-5)
    assert again.cosine == pytest.approx(1.0, abs=1e-5)


def test_projection_keeps_margins_and_drops_the_rest():
    views, form = random_views(3, width=20), random_form(20, 5)
    drawn = drawn_from(views, form, 4)
    seen = projected(form.weights, views, drawn)
    made = selection_problem(views, drawn)
    assert torch.allclose(made.query_margins(seen), made.query_margins(form.weights))
    assert torch.allclose(projected(seen, views, drawn), seen)
    assert seen.norm() < 0.9 * form.weights.norm()
    assert torch.linalg.matrix_rank(seen) <= 4  # four queries


def test_spectrum_of_known_matrices():
    flat = spectrum(torch.eye(5).double())
    assert (flat.rank, flat.effective_rank) == (5, pytest.approx(5.0))
    steep = spectrum(torch.diag(torch.tensor([1.0, 1e-3])).double())
    assert (steep.rank, len(steep.values)) == (1, 2)
    assert 1 < steep.effective_rank < 1.01
    assert spectrum(torch.zeros(3, 3).double()).rank == 0


def test_a_problem_that_is_not_finished_says_so():
    views, form = random_views(40), random_form()
    drawn = drawn_from(views, form, 60)
    result = compare_with_max_margin(
        form, views, drawn, drawn, Frobenius(), Settings(accuracy=1e-14, rounds=1)
    ).closeness
    assert not result.solved
    assert result.status.startswith("not converged")


def test_agreement():
    views, form = random_views(12), random_form()
    drawn = drawn_from(views, form)
    assert agreement(form, views, drawn) == 1.0
    worst = agreement(form.scaled(-1.0), views, drawn)
    assert worst == 0.0
    assert np.isnan(agreement(form, views, drawn[torch.zeros(0, dtype=torch.int64)]))


def test_a_head_with_no_weights_is_measured_without_dividing_by_zero():
    views = random_views(5)
    drawn = drawn_from(views, random_form(), 5)
    nothing = HeadWeights(torch.zeros(6, 1).double(), torch.zeros(6, 1).double())
    result = compare_with_max_margin(nothing, views, drawn, drawn, Frobenius(), Settings()).closeness
    assert result.solved
    assert np.isnan(result.efficiency.smallest)
