from __future__ import annotations

import math

import pytest
import torch

from attsvm.heads.analysis.rules import NAMED, Rule, _Seen, best_rule
from attsvm.heads.analysis.selections import SentenceView
from heads.analysis.written_out import select
from heads.planted import sentence

WORDS = list("abcdefghijkl")


def seen(*names: str, causal: bool = False) -> SentenceView:
    allowed = torch.ones(len(names), len(names), dtype=torch.bool)
    states = torch.zeros(len(names), 1).double()
    return SentenceView(states, states, allowed.tril() if causal else allowed, sentence=sentence(*names))


VIEWS = [seen(*WORDS[:length]) for length in (8, 9, 11, 12)]


def chosen_by(rule, views=VIEWS):
    """The selections of a head that follows `rule` (from the length and the position) wherever it names a token."""
    triples = [
        (index, position, rule(len(view.sentence), position))
        for index, view in enumerate(views)
        for position in range(len(view.sentence))
    ]
    return select(*zip(*((i, q, t) for i, q, t in triples if 0 <= t < len(views[i].sentence)), strict=True))


@pytest.mark.parametrize(
    ("rule", "words"),
    [(lambda length, query, k=k: query + k, f"always the token {abs(k)} {side}") for k, side in
     ((-7, "before"), (-3, "before"), (-2, "before"), (2, "after"), (5, "after"))]
    + [(lambda length, query, k=k: length - 1 - k, f"always the token {k} before the last") for k in (1, 4)]
    + [(lambda length, query: length - 1, "always the last token"), (lambda length, query: 0, "always the first token"),
       (lambda length, query: query, "always itself"), (lambda length, query: 3, "always the token 3 after the first")],
)  # fmt: skip
def test_every_fixed_place_is_found(rule, words):
    drawn = chosen_by(rule)
    assert best_rule(VIEWS, drawn, drawn) == (words, 1.0)


def test_two_rules_share_the_queries():
    """Two before, and the first token where there is none: all of it by two rules, most of it by one."""
    drawn = chosen_by(lambda length, query: query - 2 if query >= 2 else length - 1)
    words, share = best_rule(VIEWS, drawn, drawn)
    assert (words, share) == ("the token 2 before, or else the last token", 1.0)
    marked = [seen("a", ",", "b", "c", ".", "d"), seen(",", "a", "b", ".", "c", "d", "e")] * 4
    triples = [
        (index, query, 2 if name in ",." else query)
        for index, view in enumerate(marked)
        for query, name in enumerate(view.sentence.tokens)
    ]
    drawn = select(*zip(*triples, strict=True))
    assert best_rule(marked, drawn, drawn) == ("the token 2 after the first for delimiters, itself for others", 1.0)


def test_two_rules_must_gain_more_than_chance_among_so_many():
    """One odd selection is no second rule; without the guard some pair would fit it."""
    drawn = chosen_by(lambda length, query: query - 2 if query >= 2 else -1)
    odd = select([0, *drawn.sentence.tolist()], [0, *drawn.position.tolist()], [5, *drawn.selected.tolist()])
    assert best_rule(VIEWS, odd, drawn) == ("always the token 2 before", 1.0)


def test_rules_are_chosen_on_some_queries_and_judged_on_others():
    training = chosen_by(lambda length, query: query - 2)
    other = select([0, 1, 2, 3], [4, 4, 4, 4], [2, 2, 2, 3])
    assert best_rule(VIEWS, training, other) == ("always the token 2 before", 0.75)
    assert math.isnan(best_rule(VIEWS, training, other[torch.zeros(0, dtype=torch.int64)])[1])


@pytest.mark.parametrize("name", NAMED)
def test_marks_and_names(name):
    """Each rule by hand, in a sentence where no two of them name the same token."""
    view = seen("x", ",", "y", "z", ".", "x", "q", "x", "r", ";", "x", "s", "!", "x")
    expected = dict(zip(NAMED, (1, 12, 4, 9, 0, 13, 5, 10, 6), strict=True))[name]
    drawn = select([0], [7], [expected])
    others = select([0] * 8, [7] * 8, [expected] * 8)
    words, share = best_rule([view], others, drawn)
    assert share == 1.0
    assert _Seen([view], drawn).named_by(Rule("named", name=name)).tolist() == [expected]
    assert words.startswith("always")


def test_a_rule_that_names_no_candidate_does_not_agree():
    view = seen(*WORDS[:6], causal=True)
    drawn = select([0, 0], [3, 4], [4, 5])  # after the query: not allowed, so no rule can name it
    assert best_rule([view], drawn, drawn)[1] == 0.0
