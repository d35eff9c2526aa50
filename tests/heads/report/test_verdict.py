from __future__ import annotations

import math
from dataclasses import replace

import pytest

from attsvm.heads import HeadsReport
from attsvm.heads.report.verdict import sign_test, verdicts
from heads.planted import planted_report


@pytest.fixture(scope="module")
def report() -> HeadsReport:
    return planted_report()


def test_the_sign_test():
    assert sign_test(10, 10) == pytest.approx(2 / 1024)
    assert sign_test(0, 0) == 1.0


@pytest.mark.parametrize(("factor", "tone"), [(0.5, "closer"), (1.5, "further"), (1.0, "unclear")])
def test_words_follow_the_numbers(report, factor, tone):
    """The same head twenty times, beside controls that are half, one and a half times, and just as good."""
    head = report["L0H1"]
    found = head.comparisons[0]
    best = found.head.efficiency_projected.smallest * factor
    control = replace(found.head, efficiency_projected=replace(found.head.efficiency_projected, smallest=best))
    made = replace(head, comparisons=(replace(found, random_weights=control),))
    verdict = verdicts([made] * 20)[0]
    assert verdict.measure == "margin efficiency (smallest)"
    assert verdict.tone == tone
    words = {"closer": "are closer", "further": "FURTHER", "unclear": "not clearly closer"}[tone]
    assert words in str(verdict)
    assert verdict.heads == 20
    assert verdict.larger == (20 if factor < 1 else 0)


def test_numbers_that_do_not_exist_are_not_counted(report):
    head = report["L0H1"]
    found = head.comparisons[0]
    none = replace(found.head, efficiency_projected=replace(found.head.efficiency_projected, smallest=math.nan))
    made = replace(head, comparisons=(replace(found, random_weights=none),))
    verdict = verdicts([made])[0]
    assert verdict.heads == 0
    assert "no head can be compared" in str(verdict)
