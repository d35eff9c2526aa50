from __future__ import annotations

import math
from dataclasses import replace

import pytest

from attsvm.heads import HeadsReport
from attsvm.heads.report.table import CLEAR, NEEDED, sign_test, verdicts
from heads.planted import planted_report


@pytest.fixture(scope="module")
def report() -> HeadsReport:
    return planted_report()


def test_the_sign_test():
    assert sign_test(10, 10) == pytest.approx(2 / 1024)
    assert sign_test(0, 0) == 1.0
    assert sign_test(0, NEEDED) < CLEAR <= sign_test(0, NEEDED - 1)


@pytest.mark.parametrize(("factor", "tone"), [(0.5, "closer"), (1.5, "further"), (1.0, "unclear")])
def test_words_follow_the_numbers(report, factor, tone):
    """The same head twenty times, beside controls that are half, one and a half times, and just as good."""
    head = report["L0H1"]
    found = head.comparisons[0]
    best = found.head.efficiency_projected.smallest * factor
    control = replace(found.head, efficiency_projected=replace(found.head.efficiency_projected, smallest=best))
    made = replace(head, comparisons=(replace(found, random_weights=(control,) * 5),))
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
    made = replace(head, comparisons=(replace(found, random_weights=(none,)),))
    verdict = verdicts([made])[0]
    assert verdict.heads == 0
    assert "no head can be compared" in str(verdict)


def test_a_verdict_shows_the_range_over_draws(report):
    """Draws at 1/2, 1 and 3/2 of the head: it is equal to the median draw, and above every draw in no head."""
    head = report["L0H1"]
    found = head.comparisons[0]
    own = found.head.efficiency_projected

    def draw(factor):
        return replace(found.head, efficiency_projected=replace(own, smallest=factor * own.smallest))

    made = replace(head, comparisons=(replace(found, random_weights=tuple(map(draw, (0.25, 0.5, 1.5)))),))
    verdict = verdicts([made] * NEEDED)[0]
    assert (verdict.larger, verdict.above, verdict.heads) == (NEEDED, 0, NEEDED)
    assert verdict.controlled.low == pytest.approx(own.smallest / 4)
    assert verdict.controlled.high == pytest.approx(1.5 * own.smallest)
    assert f"({own.smallest / 4:.3g} to {1.5 * own.smallest:.3g} by draw)" in str(verdict)
    assert "larger than every draw in 0" in str(verdict)


def test_max_margin_beats_only_the_best_rule(report):
    """Where rule and solution agree with the head equally often, the solution is not called better."""
    (verdict,) = [found for found in report.verdicts if "rule" in found.control]
    assert verdict.heads == sum(bool(head.comparisons) for head in report)
    (verdict,) = [found for found in verdicts([report["L0H1"]] * 20) if "rule" in found.control]
    assert verdict.tone == "unclear"
    assert "not clearly more often than the best rule without weights" in str(verdict)
    worse = [replace(report["L0H1"], rule_agreement=0.5)] * 20
    (verdict,) = [found for found in verdicts(worse) if "rule" in found.control]
    assert verdict.tone == "closer"


def test_too_few_heads_share_one_sentence(report):
    """However they compare, fewer than `NEEDED` heads decide nothing: that is said once, of as many as there are."""
    head = report["L0H1"]
    few, enough = (replace(report, heads=(head,) * count) for count in (1, NEEDED))
    assert {verdict.tone for verdict in few.verdicts} == {"open"}
    (said,) = few.findings
    many = len(few.verdicts)
    assert said.startswith(f"{many} of {many} comparisons with controls and rules are open: a sign test needs {NEEDED}")
    assert said.endswith("(p < 0.01), and these have 1 at most.")
    assert f"- {said}" in str(few)
    begins = "Too few heads to judge against random weights with the same spectrum, margin"
    assert str(few.verdicts[0]).startswith(begins)
    assert enough.findings == list(map(str, enough.verdicts))
    # One control that all but one head lack: the others are told as ever.
    bare = replace(head, comparisons=tuple(replace(each, untrained=()) for each in head.comparisons))
    mixed = replace(report, heads=(head, *[bare] * (NEEDED - 1)))
    *told, last = mixed.findings
    assert told == [str(each) for each in mixed.verdicts if each.control != "the untrained model"]
    assert last.startswith(f"3 of {many} comparisons")


def test_the_counts_say_how_exact_solved_is(report):
    assert f"{len(report)} heads, " in report.counts
    assert report.counts.endswith(f" solved to a certified gap of {report.settings.accuracy:g}")
    assert report.counts in repr(report)
