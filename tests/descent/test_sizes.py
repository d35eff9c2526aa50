from __future__ import annotations

import time

import pytest

import attsvm
from attsvm import KeyQuery, fit
from attsvm.data import machine
from attsvm.descent.run import record_steps
from attsvm.descent.schedules import Saturated


@pytest.fixture
def data():
    return attsvm.data.random_sphere(n=3, T=4, d=5, seed=1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"starts": 10**9}, r"starts=1,000,000,000, .* needs at least .* TB of memory; .* are free, use fewer starts"),
        ({"parameterization": KeyQuery(10**6)}, r"rank must be at most 1000 times d or dq, here 5,000; got 1,000,000"),
        ({"starts": 10**7, "parameterization": KeyQuery(5000)}, r"starts=10,000,000, rank=5,000.* needs at least"),
        (
            {"steps": 10**13, "record": 1},
            r"10,000,000,000,001 records of risk, norm, attention, weights needs",
        ),
    ],
)
def test_what_cannot_fit_is_refused_at_once(data, options, words):
    began = time.perf_counter()
    with pytest.raises(ValueError, match=words):
        fit(data, **options)
    assert time.perf_counter() - began < 5


def test_the_estimate_is_a_lower_bound(data, monkeypatch, tmp_path):
    """Three copies of W and of the attention, and 11 records of risk, norm, attention and W, in doubles, 7 starts."""
    needed = 7 * 8 * (3 * (25 + 12) + 11 * (2 + 25 + 12))
    monkeypatch.setattr(machine, "_LIMIT", tmp_path / "limit")
    settings = {"starts": 7, "steps": 20, "record": 2, "engine": attsvm.descent.TorchEngine()}
    (tmp_path / "limit").write_text(str(needed))
    fit(data, **settings)
    (tmp_path / "limit").write_text(str(needed - 1))
    with pytest.raises(ValueError, match="training with starts=7, 11 records of risk, norm, attention, weights needs"):
        fit(data, **settings)
    fit(data, **settings, stop=Saturated())  # may stop before anything is recorded


def test_steps_are_not_listed_one_by_one():
    assert sorted(record_steps(10**9, 3, 10**12))[:3] == [3, 10**9, 2 * 10**9]
    assert sorted(record_steps(40, 50, 100)) == [50, 80, 100]
    assert sorted(record_steps(50, 50, 100)) == [50, 100]
    assert sorted(record_steps(7, 0, 0)) == [0]
