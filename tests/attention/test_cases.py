"""The shared cases are what they say: feasibility by a linear program, ties by their scores."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

from attsvm import TokenDataset, optimal_token_set, optimal_tokens
from cases import CASES, Case, every_case

from .reference import margin_rows


def separable(data: TokenDataset, selected) -> bool:  # type: ignore[no-untyped-def]
    """Whether some W gives every row a positive margin, for one data set."""
    rows = margin_rows(data, selected)
    if len(rows) == 0:
        return True
    if not rows.any(1).all():
        return False
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    solved = scipy.optimize.linprog(np.zeros(rows.shape[1]), -rows, -np.ones(len(rows)), bounds=(None, None))
    assert solved.status in (0, 2)
    return bool(solved.status == 0)


@every_case
def test_feasibility(case: Case) -> None:
    data, selected = case.data, case.selected
    each = [(data, selected)]
    if data.batch_shape:
        each = [(data[place], selected[place]) for place in np.ndindex(data.batch_shape)]
    assert [separable(*one) for one in each] == [case.feasible] * len(each)


@every_case
def test_uniqueness(case: Case) -> None:
    assert bool((optimal_token_set(case.data).sum(-1) == 1).all()) == case.unique
    if case.unique:
        assert optimal_tokens(case.data).equal(case.selected)
    else:
        with pytest.raises(ValueError, match=r"is not unique: tokens .* tie; use optimal_token_set"):
            optimal_tokens(case.data)


def test_the_list_is_complete() -> None:
    assert {case.name for case in CASES} >= {
        "feasible",
        "infeasible",
        "ties",
        "duplicate tokens",
        "one token",
        "zero query",
        "d too small",
        "badly scaled",
        "ragged",
        "prompt",
        "causal",
        "values apart from keys",
    }
