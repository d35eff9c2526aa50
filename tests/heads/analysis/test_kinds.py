from __future__ import annotations

import pytest

from attsvm.heads import SINKS, SelectionKind
from attsvm.heads.analysis.selections import delimiters, kind_of, kind_shares, left_out_tokens
from heads.planted import sentence

LINE = sentence("[CLS]", "the", "cat", ",", "the", "##s", "[SEP]", special=(0, 6))


@pytest.mark.parametrize(("query", "selected", "kind"), [
    (3, 0, SelectionKind.FIRST),
    (0, 0, SelectionKind.FIRST),  # the first in the order of the enumeration counts
    (2, 2, SelectionKind.SELF),
    (3, 2, SelectionKind.PREVIOUS),
    (5, 6, SelectionKind.NEXT),
    (1, 6, SelectionKind.LAST),
    (1, 3, SelectionKind.DELIMITER),
    (4, 1, SelectionKind.SAME),
    (4, 2, SelectionKind.CONTENT),
])  # fmt: skip
def test_the_kind_of_a_selection(query, selected, kind):
    assert kind_of(LINE, query, selected, delimiters(LINE)) is kind


def test_delimiters_are_special_tokens_and_tokens_without_a_letter():
    assert delimiters(LINE).tolist() == [True, False, False, True, False, False, True]
    assert delimiters(sentence("Ġ.", "▁a", "Ċ", "##", "é", "7")).tolist() == [True, False, True, True, False, False]


def test_what_is_left_out():
    plain = sentence("a", ",", "b")
    assert left_out_tokens(plain, SINKS).tolist() == [True, True, False]
    assert left_out_tokens(plain, (SelectionKind.DELIMITER,)).tolist() == [False, True, False]
    assert not left_out_tokens(plain, ()).any()


def test_fixed_distances_and_places_are_kinds_of_their_own():
    """What was called content: four in five selections lie three before, or two before the last."""
    words = sentence(*"abcdefghijkl")
    before = [(0, query, query - 3) for query in (4, 6, 8, 9)] + [(0, 3, 8)]
    assert kind_shares([words], before)["3 before"] == 0.8
    assert kind_shares([words], before)[SelectionKind.CONTENT] == 0.2
    ends = [(0, query, 9) for query in (2, 4, 5)] + [(0, 1, 7)]
    assert kind_shares([words], ends)["2 before the last"] == 0.75
    scattered = [(0, 1, 5), (0, 2, 7), (0, 9, 3), (0, 11, 4)]
    assert kind_shares([words], scattered)[SelectionKind.CONTENT] == 1


def test_shares_add_up():
    shares = kind_shares([LINE], [(0, 2, 0), (0, 3, 2), (0, 4, 1), (0, 2, 2)])
    assert shares[SelectionKind.FIRST] == shares[SelectionKind.SAME] == shares[SelectionKind.SELF] == 0.25
    assert sum(shares.values()) == 1
    assert sum(kind_shares([LINE], []).values()) == 0
