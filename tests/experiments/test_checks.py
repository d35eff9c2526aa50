"""Every check of every experiment can fail: it holds on a true result, and fails on the same result damaged."""

from __future__ import annotations

import dataclasses
from functools import cache

import numpy as np
import pytest

from attsvm.experiments import EXPERIMENTS, Verdict
from attsvm.experiments.base import turning
from experiments.fabricated import DAMAGE, MADE, made, put
from experiments.results import result_of

CASES = [(name, what) for name, checks in DAMAGE.items() for what in checks]
NUMBERS = [(name, what) for name, what in CASES if isinstance(DAMAGE[name][what].value, float)]


def judged(result):
    """The checks of a result, by what they are about."""
    found = EXPERIMENTS[result.id].checks(result)
    assert len({check.what for check in found}) == len(found)
    return {check.what: check for check in found}


@cache
def true(name):
    """The checks of a true result of this experiment."""
    return judged(made(name))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_check_has_damage_and_holds_without_it(name):
    found = true(name)
    claims = {what for what, check in found.items() if check.verdict is not Verdict.MEASURED}
    assert claims == set(DAMAGE[name]), "a check needs a way to fail in experiments.fabricated.DAMAGE"
    assert {what for what in claims if found[what].verdict is not Verdict.HOLDS} == set()


@pytest.mark.parametrize(("name", "what"), CASES)
def test_it_fails_on_damage_and_says_why(name, what):
    check = judged(made(name, damage=DAMAGE[name][what]))[what]
    assert check.verdict is Verdict.FAILS
    assert check.fails_if
    # What is expected and what decides was said beforehand.
    assert (check.expected, check.fails_if) == (true(name)[what].expected, true(name)[what].fails_if)


@pytest.mark.parametrize(
    ("name", "what"), [case for case in CASES if isinstance(DAMAGE[case[0]][case[1]].value, float)]
)
def test_a_number_that_is_missing_is_no_success(name, what):
    missing = dataclasses.replace(DAMAGE[name][what], value=np.nan)
    assert judged(made(name, damage=missing))[what].verdict in (Verdict.FAILS, Verdict.OPEN)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_names_are_the_same_for_every_size(name):
    """Full and quick, made up, and a run of a few data sets with another configuration."""
    names = [list(judged(result)) for result in (made(name, quick=True), result_of(name))]
    assert names == [list(true(name))] * 2


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_only_measured_rows_have_no_way_to_fail(name):
    for check in judged(result_of(name)).values():
        assert (check.fails_if == "") == (check.verdict is Verdict.MEASURED), check.what
        assert check.verdict is not Verdict.OPEN or check.why, check.what


def test_every_experiment_is_made_up():
    assert set(MADE) == set(DAMAGE) == set(EXPERIMENTS)


def test_damage_must_hit_a_row():
    with pytest.raises(ValueError, match="no row of cones has"):
        made("cones", damage=put("returned", 0.0, kind="no such kind"))


@pytest.mark.parametrize(
    ("before", "after", "enough", "verdict"),
    [
        ([0.9, 0.9], [0.995, 0.94], True, Verdict.FAILS),  # 1 - cosine did not halve in the last half of the steps
        ([0.9, 0.8], [0.995, 0.94], True, Verdict.HOLDS),  # it did: on its way
        ([0.9, 0.9], [0.995, np.nan], True, Verdict.FAILS),
        ([0.9, 0.9], [0.995, 0.94], False, Verdict.OPEN),
        ([0.9, 0.9], [0.995, 0.995], False, Verdict.HOLDS),
        ([], [], True, Verdict.OPEN),
    ],
)
def test_turning_sees_the_slowest_run(before, after, enough, verdict):
    cosines = {50: np.array(before), 100: np.array(after)}
    check = turning("runs turn", "all", lambda step: cosines[step], np.array([0, 10, 50, 60, 100]), 100, enough=enough)
    assert check.verdict is verdict
