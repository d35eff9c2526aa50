"""Two versions side by side: the shorter time of each counts, and differences of their numbers are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import against


def test_ratios_and_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = {True: iter([2.0, 1.0]), False: iter([4.0, 6.0])}

    def measured(source: Path) -> dict[str, dict[str, object]]:
        here = source == against.ROOT / "src"
        seconds = next(turns[here])
        return {
            "draw": {"seconds": seconds, "same": "a" if here else "b"},
            "fit": {"seconds": seconds, "near": [1.0, 2.0 if here else 2.5]},
            "solve": {"seconds": seconds, "largest_gap": 1e-9, "not_solved": int(here)},
        }

    monkeypatch.setattr(against, "_measured", measured)
    draw, fit, solve = against.compare(Path("other"), "there")
    assert draw["times_faster"] == 4.0 / 1.0
    assert draw["same_numbers"] is False
    assert fit["largest_difference"] == 0.5
    assert (solve["not_solved_here"], solve["not_solved_there"]) == (1, 0)
