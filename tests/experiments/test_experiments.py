"""What holds of every experiment, from its definition alone."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from attsvm.experiments import EXPERIMENTS, experiment


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_every_experiment_can_be_stored_and_made_smaller(name):
    default = EXPERIMENTS[name].default
    assert default.to_json() == type(default)(**{
        key: tuple(value) if isinstance(value, list) else value for key, value in default.to_json().items()
    }).to_json()  # fmt: skip
    assert type(default.quick()) is type(default)
    assert default.quick().seed == default.seed
    assert default.with_values(seed=7).quick().seed == 7
    if default.runs_field is not None:
        assert getattr(default.with_runs(3), default.runs_field) == 3
    tasks = EXPERIMENTS[name].tasks(default.quick())
    assert len({task.name for task in tasks}) == len(tasks) > 0


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_modules_to_import_before_the_clock_starts_are_there(name):
    assert [module for module in EXPERIMENTS[name].imports if find_spec(module) is None] == []


def test_an_unknown_name_is_answered_with_near_ones():
    assert experiment("rank") is EXPERIMENTS["rank"]
    with pytest.raises(ValueError, match=r"'causall'; did you mean causal\?"):
        experiment("causall")
    with pytest.raises(ValueError, match="`attsvm figure list` shows them all"):
        experiment("qqqqq")
