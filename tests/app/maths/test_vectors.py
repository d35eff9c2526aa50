"""The test vectors themselves: complete, plain and repeatable."""

from __future__ import annotations

import json

import pytest

from app.vector_problems import case_names, vector_problem
from app.vectors import vectors as written
from attsvm.data import EXAMPLES


def test_every_example_and_every_setting_is_there():
    names = case_names()
    assert len(names) == len(set(names))
    assert set(EXAMPLES) < set(names)
    plans = [plan for name in names for plan in vector_problem(name).plans]
    combinations = {(plan.trained, plan.optimizer, plan.loss, plan.train_head) for plan in plans}
    assert len(combinations) == 3 * 4 * 3 * 2


@pytest.mark.slow
def test_they_are_plain_and_repeat(vectors):
    """Another process wrote the same."""
    assert json.loads(json.dumps(written("random-5"), allow_nan=False)) == vectors["random-5"]


def test_an_unknown_name_is_said():
    with pytest.raises(ValueError, match="no test vectors are called 'random-x'"):
        written("random-x")
