from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest

from attsvm.heads import HeadsReport, analyze
from attsvm.heads.report.html.page import _axis, panels
from attsvm.heads.report.records import HeadReport
from attsvm.heads.report.table import COLUMNS
from attsvm.sweep.manifest import from_plain, to_plain
from heads.planted import many_heads, planted, planted_report


@pytest.fixture(scope="module")
def report() -> HeadsReport:
    return planted_report()


def test_the_table(report):
    assert [row["head"] for row in report.table] == [head.name for head in report]
    shares = [row["confident"] for row in report.table]
    assert shares == sorted(shares, reverse=True)
    assert all(list(row) == [*(column.key for column in COLUMNS), "outcome"] for row in report.table)
    printed = str(report.table).splitlines()
    assert len(printed) == 1 + len(report)
    assert len({len(line) for line in printed}) == 1
    assert len({column.key for column in COLUMNS}) == len(COLUMNS)
    assert all(column.title and column.help for column in COLUMNS)
    assert report.table[0]["efficiency"] == report[report.table[0]["head"]].efficiency.smallest


def test_heads_by_name(report):
    assert report["L0H1"].head == 1
    with pytest.raises(KeyError, match="L7H7"):
        report["L7H7"]
    assert len(report) == 3
    assert "planted" in repr(report)
    assert "efficiency" in repr(report["L0H1"])
    assert str(report["L0H0"].support_tokens[0]).count("'") >= 6


def test_json_holds_everything(report, tmp_path):
    read = json.loads(report.save_json(tmp_path / "heads.json").read_text())
    assert read["model"] == "planted"
    assert read["settings"]["norms"] == ["Frobenius"]
    assert {head["name"] for head in read["heads"]} == {"L0H0", "L0H1", "L0H2"}
    assert len(read["verdicts"]) == len(report.verdicts)
    assert all(verdict["sentence"] for verdict in read["verdicts"])


def test_reports_survive_json(report):
    for head in report:
        again = from_plain(HeadReport, json.loads(json.dumps(to_plain(head), allow_nan=False)))
        assert to_plain(again) == to_plain(head)
        assert again.name == head.name
    assert math.isnan(from_plain(HeadReport, to_plain(report["L0H2"])).rule_agreement)
    with pytest.raises(KeyError):
        from_plain(HeadReport, {"layer": 0})


def test_the_page_stands_alone(report, tmp_path):
    text = report.save_html(tmp_path / "heads.html").read_text()
    assert "http" not in text
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", text)
    data = json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)[1])
    assert set(data["heads"]) == {"L0H0", "L0H1", "L0H2"}
    for verdict in report.verdicts:
        assert f"larger in {verdict.larger} of {verdict.heads}" in text


def test_a_page_stays_below_ten_megabytes(report, tmp_path, monkeypatch):
    """Where sentences with attention would take too much room, fewer are shown."""
    made = []
    for most in (10**7, 60_000):
        monkeypatch.setattr("attsvm.heads.report.html.page.MOST_BYTES", most)
        made.append(report.save_html(tmp_path / "heads.html").read_text())
    assert '"attention":' in made[0]
    assert '"attention":' not in made[1]
    assert len(many_heads().save_html(tmp_path / "many.html").read_bytes()) < 10_000_000


def test_heads_with_the_same_outcome_share_a_sentence(report):
    (outcome,) = report.outcomes
    assert report.outcomes[outcome] == ["L0H2"]
    assert many_heads().outcomes[outcome] == [head.name for head in many_heads() if not head.comparisons]


def test_tokens_cannot_break_out_of_the_page(tmp_path):
    base = planted_report()
    head = base["L0H0"]
    evil = "</script><script>alert(1)</script>"
    token = replace(head.support_tokens[0], text=evil, token=evil)
    text = replace(base, model=evil, heads=(replace(head, support_tokens=(token,)),)).save_html(tmp_path / "x.html")
    assert "<script>alert" not in text.read_text()


def test_the_notebook_view_needs_no_script(report):
    text = report._repr_html_()
    assert "<script" not in text
    assert "<table" in text
    assert text.count("<tr") >= 3


def test_a_page_without_any_confident_head(tmp_path):
    empty = analyze(planted(), heads=[2], queries=10)
    text = empty.save_html(tmp_path / "empty.html").read_text()
    assert "nothing to compare" in text
    assert panels(empty.heads) == []


def test_paths_that_cannot_be_written(report, tmp_path):
    with pytest.raises(OSError, match="nowhere"):
        report.save_html(tmp_path / "nowhere" / "heads.html")
    with pytest.raises(OSError, match="nowhere"):
        report.save_json(tmp_path / "nowhere" / "heads.json")


@pytest.mark.parametrize("values", [[0.001, 0.9], [0.1, 0.4], [-0.5, 0.2], [0.3, 0.3], [0.0, 0.0]])
def test_axes_hold_their_numbers(values):
    place, ticks = _axis(values)
    assert math.isclose(ticks[1], 10 * ticks[0]) == (values == [0.001, 0.9])  # then it is logarithmic
    assert all(0 <= place(value) <= 1 for value in values)
    assert len(ticks) >= 2
    assert all(-1e-9 <= place(tick) <= 1 + 1e-9 for tick in ticks)
    assert np.allclose(np.diff([place(tick) for tick in ticks]), place(ticks[1]) - place(ticks[0]))
