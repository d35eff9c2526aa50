"""The helper that compares can fail."""

from __future__ import annotations

import math

import pytest

from .closeness import TOLERANCE, apart


@pytest.mark.parametrize(("mine", "theirs"), [
    ([1.0, 2.0], [1.0, 2.0 + 1e-8]),
    ([1e6], [1e6 * (1 + 1e-8)]),
    ([1.0], [1.0, 1.0]),
    ([math.nan], [1.0]),
    ([1.0], [math.nan]),
    ([None], [0.0]),
])  # fmt: skip
def test_sees_what_differs(mine, theirs):
    assert apart(mine, theirs) > TOLERANCE


def test_lets_rounding_pass():
    assert apart([1.0, 1e6], [1.0 + 1e-13, 1e6 * (1 + 1e-13)]) < TOLERANCE
    assert apart([], []) == 0
