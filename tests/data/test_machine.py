from __future__ import annotations

import pytest

from attsvm.data import machine
from attsvm.data.machine import available_memory, check_fits


def test_there_is_some_and_not_more_than_the_machine_has():
    found = available_memory()
    assert found is not None
    assert 10_000_000 < found < 2**50


def test_the_containers_limit_and_systems_that_do_not_say(monkeypatch, tmp_path):
    for name in ("_MEMINFO", "_LIMIT"):
        monkeypatch.setattr(machine, name, tmp_path / name)
    assert available_memory() is None
    check_fits(10**30, "cpu", "anything", "do less")  # nobody can say
    (tmp_path / "_MEMINFO").write_text("MemTotal: 9 kB\nMemAvailable:   4000 kB\n")
    assert available_memory() == 4_096_000
    (tmp_path / "_LIMIT").write_text("max\n")
    assert available_memory() == 4_096_000
    (tmp_path / "_LIMIT").write_text("5000\n")
    assert available_memory() == 5000


def test_what_does_not_fit_is_refused_with_the_estimate(monkeypatch, tmp_path):
    (tmp_path / "limit").write_text("1000000")
    monkeypatch.setattr(machine, "_LIMIT", tmp_path / "limit")
    check_fits(1_000_000, "cpu", "this", "do less")
    with pytest.raises(ValueError, match=r"^this needs at least 2 MB of memory; 1 MB are free, do less$"):
        check_fits(2_000_000, "cpu", "this", "do less")
