from __future__ import annotations

import numpy as np
import pytest
import torch

import attsvm
from attsvm.heads import Settings
from attsvm.heads.analysis.comparison import compare_with_max_margin, selection_problem
from attsvm.norms import Frobenius
from heads.analysis.written_out import drawn_from, rows, select
from heads.planted import random_form, random_views, view


@pytest.mark.parametrize("causal", [False, True])
def test_the_problem_has_exactly_the_rows_of_the_selections(causal):
    views, form = random_views(12, causal=causal), random_form()
    drawn = drawn_from(views, form)
    made = selection_problem(views, drawn)
    written = rows(views, drawn)
    assert made.rows == len(written)
    weights = torch.randn(6, 6, generator=torch.Generator().manual_seed(5)).double()
    margins = made.problem.margins(weights)[made.problem.inequalities]
    direct = np.einsum("kij,ij->k", written, weights.numpy())
    assert np.allclose(np.sort(margins.numpy()), np.sort(direct))
    assert made.query_margins(weights).min() == pytest.approx(direct.min())
    assert (made.query_margins(form.weights) > 0).all()  # a head separates its own selections
    assert made.memory > 8 * sum(len(seen.keys) * 6 for seen in views)


def test_contradictions_are_seen():
    keys = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    views = [view(keys), view(keys)]
    fine = select([0, 1], [0, 0], [1, 1])
    bad = select([0, 1], [0, 0], [1, 2])
    assert selection_problem(views, fine).contradiction() is None
    assert selection_problem(views, bad).contradiction() == (0, 1)
    result = compare_with_max_margin(random_form(2, 2), views, bad, fine, Frobenius(), Settings()).closeness
    assert not result.solved
    assert result.status.startswith("infeasible")
    assert np.isnan(result.efficiency.smallest)
    assert np.isnan(result.cosine)
    assert attsvm.solve(selection_problem(views, bad).problem).infeasible  # the solver agrees
