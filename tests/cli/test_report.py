from __future__ import annotations

import json
import math
import sys

import pytest

from attsvm.cli.common.report import number, plural, print_json, print_table, progress_bar, status_line, tiny


def test_numbers_and_their_nouns():
    assert [number(0.3721704), number(22140.8), number(3e-9)] == ["0.37217", "22140.8", "3e-09"]
    assert [plural(1, "row"), plural(1200, "row")] == ["1 row", "1,200 rows"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(-10.0, "4.5e-05"), (-1e4, "1.1e-4343"), (-1e6, "3.3e-434295"), (0.0, "1"), (-math.inf, "0")],
)
def test_tiny_numbers_below_the_smallest_float(value, text):
    assert tiny(value) == text


def test_json_has_no_nan(capsys):
    print_json({"a": math.nan, "b": [math.inf, 1.5], "c": {"d": "x"}})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [None, 1.5], "c": {"d": "x"}}


def test_numbers_of_a_table_are_aligned_and_whole_in_a_pipe(capsys):
    wide = "a name that is long " * 8
    print_table("Title", [("Name", "left"), ("Value", "right")], [["x", number(1.5)], [wide, number(123456.0)], []])
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    rows = [line for line in lines if line.endswith(("1.5", "123456"))]
    assert len(rows) == 2
    assert len(rows[0]) == len(rows[1])
    assert wide.strip() in rows[1]


@pytest.mark.parametrize("quiet", [True, False])
def test_compiling_is_said_once_on_a_terminal(capsys, monkeypatch, quiet):
    import numba

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress_bar("Training", 2, quiet=quiet):
        assert numba.njit(lambda x: x + 1)(1) + numba.njit(lambda x: x + 2)(1) == 5
    with status_line("Solving", quiet=quiet):
        pass
    said = capsys.readouterr().err
    assert said.count("Compiling kernels, once per machine") == (0 if quiet else 1)
