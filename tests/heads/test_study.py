"""The study in the documentation says what its results say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STUDY = (ROOT / "docs" / "heads_study.md").read_text(encoding="utf-8")
SECTIONS = {"minilm": "## All 72 heads of MiniLM", "rxnmapper": "## All 96 heads of rxnmapper"}
COLUMNS = (
    "efficiency", "efficiency_random", "efficiency_untrained", "efficiency_quantile", "quantile_random",
    "quantile_untrained", "cosine", "cosine_random", "cosine_untrained",
)  # fmt: skip


def results(name: str) -> dict:
    return json.loads((ROOT / "benchmarks" / "results" / f"heads_{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", SECTIONS)
def test_the_tables_are_those_of_the_results(name):
    section = STUDY.split(SECTIONS[name])[1].split("\n## ")[0]
    lines = [re.split(r" *\| *", line.strip("| ")) for line in section.splitlines() if re.match(r"\| L\d+H\d+ ", line)]
    rows = results(name)["rows"]
    assert [line[0] for line in lines] == [row["head"] for row in rows]
    assert len(lines) == {"minilm": 72, "rxnmapper": 96}[name]
    for line, row in zip(lines, rows, strict=True):
        shown = ["–" if row[key] is None else f"{row[key]:.3g}" for key in COLUMNS]  # noqa: RUF001
        assert line[3:12] == shown, line[0]


@pytest.mark.parametrize("name", [*SECTIONS, "minilm_without_sinks"])
def test_the_verdicts_are_those_of_the_results(name):
    for verdict in results(name)["verdicts"]:
        words = f"{verdict['trained']:.3g} against {verdict['controlled']:.3g}, larger in {verdict['larger']}"
        assert words in STUDY, verdict["sentence"]


@pytest.mark.parametrize("name", SECTIONS)
def test_unsolved_heads_are_counted(name):
    rows = results(name)["rows"]
    solved = [row for row in rows if row["outcome"] == "solved"]
    assert f"{len(solved)} of {len(rows)} heads" in STUDY
    assert all(row["gap"] <= 1e-3 for row in solved)


def test_the_nuclear_table_is_that_of_the_results():
    for name, title in (("minilm", "MiniLM"), ("rxnmapper", "rxnmapper")):
        for row in results(f"nuclear_{name}")["rows"]:
            assert f"| {title} {row['head']} | {row['queries']} | {row['efficiency']:.3g} |" in STUDY
            assert row["outcome"] == "solved"


def test_pictures_and_commands_exist():
    for picture in re.findall(r"\]\((images/[^)]+)\)", STUDY):
        assert (ROOT / "docs" / picture).exists()
    assert "python -m benchmarks.heads" in STUDY
    for module in re.findall(r"python -m (benchmarks\.\w+)", STUDY):
        assert (ROOT / (module.replace(".", "/") + ".py")).exists()
