from __future__ import annotations

import json

import pytest
from benchmarks.experiments import BEGIN, END, compact, page_block, put_into, spread


def found(*measured, verdicts=("holds", "does not hold"), **check):
    counts = {verdict: verdicts.count(verdict) for verdict in verdicts}
    checks = [{"what": "runs", "expected": "all", "measured": list(measured), "counts": counts, **check}]
    return {"command": "attsvm", "experiment": "none", "seeds": [0, 1], "checks": checks, "numbers": {}}


def last_row(summary):
    return page_block(summary).splitlines()[-1]


def test_a_check_that_fails_in_some_seed_is_seen_in_the_table():
    assert last_row(found("least .93", "least .91")) == "| runs | all | least .91 to .93 | 1 of 2 |"
    assert last_row(found("7", "7", verdicts=("holds", "not judged"))) == "| runs | all | 7 | 1 of 2, 1 not judged |"
    assert last_row(found("7", "8", verdicts=("only measured",) * 2)) == "| runs | all | 7 to 8 |  |"


def test_counts_of_all_runs_are_joined_only_where_every_seed_has_all():
    assert "| all of 5 to 7 |" in last_row(found("5 of 5", "7 of 7"))
    assert "| 5 to 7 of 5 to 8 |" in last_row(found("5 of 5", "7 of 8"))


def test_another_norm_that_comes_next_is_not_named():
    assert "| .5 to .6, next .4 |" in last_row(found(".5, next max entry .4", ".6, next l_1.75 .4"))
    assert "| .5 to .6, next l_3 .4 |" in last_row(found(".5, next l_3 .4", ".6, next l_3 .4"))


def test_the_rest_of_a_page_stays():
    page = put_into(f"before\n{BEGIN}\nold\n{END}\nafter\n", "new")
    assert page.startswith("before\n")
    assert page.endswith(f"\n\nnew\n\n{END}\nafter\n")
    assert "old" not in page
    assert put_into(page, "new") == page
    with pytest.raises(ValueError, match="the page needs a line"):
        put_into(f"{END} {BEGIN}", "new")


def test_summaries_are_compact_and_the_same():
    summary = {"a": [1, 2.5], "b": [{"c": ["x [y] {z}", "w"]}]}
    assert json.loads(compact(summary)) == summary
    assert '"a": [ 1, 2.5 ]' in compact(summary)


def test_a_spread_names_both_ends():
    assert spread([0.25, 0.5]) == ".25 to .50"
    assert spread([0.998, 1.0], ".2f") == "1.00"
