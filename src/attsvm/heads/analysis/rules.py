"""Rules without weights: what a head could do by places and names alone, and the rule that does most of what it does.

A rule names one token for each query: at a fixed distance from it, at a place counted from either end, a delimiter, or
a token of the same name. Two rules can share the queries: the second where the first names no candidate, or one of them
where the query is a delimiter. All are chosen on the queries of the problem and judged on held-out ones, as W_mm is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from attsvm.heads.analysis.kinds import delimiters
from attsvm.heads.analysis.selections import Choices, SentenceView

_MOST = 300  # rules that are tried in pairs: those that hold most often

Prediction = Callable[["_Query"], int | None]  # the position of a token, or None where the rule names none


@dataclass(frozen=True)
class _Query:
    """One query and what a rule may know of it."""

    position: int
    length: int
    candidates: set[int]
    marks: list[int]  # delimiters among the candidates, in order
    same: list[int]  # other candidates of the same name, in order
    following: int | None  # the token after the nearest earlier one of the same name
    delimiter: bool  # whether it is one itself


def distance_name(offset: int) -> str:
    """A fixed distance in words.

    >>> distance_name(0), distance_name(-1), distance_name(3)
    ('itself', 'the token before', 'the token 3 after')
    """
    if offset == 0:
        return "itself"
    side = "before" if offset < 0 else "after"
    return f"the token {side}" if abs(offset) == 1 else f"the token {abs(offset)} {side}"


def end_name(back: int) -> str:
    """A place counted from the end in words.

    >>> end_name(0), end_name(2)
    ('the last token', 'the token 2 before the last')
    """
    return "the last token" if back == 0 else f"the token {back} before the last"


def _at(tokens: list[int], place: int) -> int | None:
    return tokens[place] if tokens else None


def _nearest(tokens: list[int], position: int, side: int) -> int | None:
    return min(
        (token for token in tokens if side * (token - position) > 0), key=lambda t: abs(t - position), default=None
    )


NAMED: dict[str, Prediction] = {
    "the first delimiter": lambda query: _at(query.marks, 0),
    "the last delimiter": lambda query: _at(query.marks, -1),
    "the nearest delimiter before": lambda query: _nearest(query.marks, query.position, -1),
    "the nearest delimiter after": lambda query: _nearest(query.marks, query.position, 1),
    "the first other token of the same name": lambda query: _at(query.same, 0),
    "the last other token of the same name": lambda query: _at(query.same, -1),
    "the nearest token of the same name before": lambda query: _nearest(query.same, query.position, -1),
    "the nearest token of the same name after": lambda query: _nearest(query.same, query.position, 1),
    "the token after an earlier one of the same name": lambda query: query.following,
}
"""Rules that are not a fixed place."""


def rules_for(drawn: Choices, lengths: Sequence[int]) -> dict[str, Prediction]:
    """Every fixed place that holds for at least one of these selections, and all of `NAMED`."""

    def distance(offset: int) -> Prediction:
        return lambda query: query.position + offset

    def start(place: int) -> Prediction:
        return lambda query: place

    def end(back: int) -> Prediction:
        return lambda query: query.length - 1 - back

    found: dict[str, Prediction] = {}
    triples = drawn.triples
    for place in sorted({token for _, _, token in triples}):
        found["the first token" if place == 0 else f"the token {place} after the first"] = start(place)
    for offset in sorted({token - query for _, query, token in triples}, key=abs):
        found[distance_name(offset)] = distance(offset)
    for back in sorted({lengths[index] - 1 - token for index, _, token in triples}):
        found[end_name(back)] = end(back)
    return found | NAMED


def best_rule(views: Sequence[SentenceView], drawn: Choices, held_out: Choices) -> tuple[str, float]:
    """The rule, or two rules, that agree most often with `drawn`, and how often with `held_out` (NaN if it is empty).

    Two rules are named only where they agree with more of `drawn` than each alone.
    """
    rules = rules_for(drawn, [len(view.sentence) for view in views])
    named, mark, chosen = _predicted(rules, views, drawn)
    hits = named == chosen
    kept = np.argsort(-hits.sum(1), kind="stable")[:_MOST]
    rules = {name: rules[name] for name in np.array(list(rules))[kept].tolist()}
    named, hits = named[kept], hits[kept].astype(np.float64)
    names = list(rules)
    best, parts = hits[0].sum(), (0, 0, "always")
    silent = named < 0
    fallback = silent.astype(np.float64) @ hits.T + hits.sum(1)[:, None]  # the second where the first names none
    if fallback.max() > best:
        best, parts = fallback.max(), (*divmod(int(fallback.argmax()), len(names)), "or else")
    split = [hits @ part for part in (mark, ~mark)]
    if split[0].max() + split[1].max() > best:
        parts = (int(split[0].argmax()), int(split[1].argmax()), "delimiters")
    first, second, how = parts
    text = {
        "always": f"always {names[first]}",
        "or else": f"{names[first]}, or else {names[second]}",
        "delimiters": f"{names[first]} for delimiters, {names[second]} for others",
    }[how]
    if len(held_out) == 0:
        return text, math.nan
    named, mark, chosen = _predicted({name: rules[name] for name in (names[first], names[second])}, views, held_out)
    one, other = named[0], named[-1]
    predicted = {"always": one, "or else": np.where(one < 0, other, one), "delimiters": np.where(mark, one, other)}[how]
    return text, float((predicted == chosen).mean())


def _predicted(
    rules: dict[str, Prediction], views: Sequence[SentenceView], drawn: Choices
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What each rule names for each query, -1 where it is no candidate; delimiters; what the head selected."""
    queries = _queries(views, drawn)
    named = np.full((len(rules), len(queries)), -1)
    for row, rule in enumerate(rules.values()):
        for column, query in enumerate(queries):
            token = rule(query)
            if token is not None and token in query.candidates:
                named[row, column] = token
    return named, np.array([query.delimiter for query in queries], dtype=bool), drawn.selected.numpy()


def _queries(views: Sequence[SentenceView], drawn: Choices) -> list[_Query]:
    marks = {index: delimiters(views[index].sentence) for index in set(drawn.sentence.tolist())}
    found = []
    for index, position, _ in drawn.triples:
        ids, candidates = views[index].sentence.ids, views[index].candidates[position]
        equal = ids == ids[position]
        equal[position] = False
        earlier = torch.nonzero(equal[:position])
        found.append(
            _Query(
                position,
                len(ids),
                set(torch.nonzero(candidates)[:, 0].tolist()),
                torch.nonzero(marks[index] & candidates)[:, 0].tolist(),
                torch.nonzero(equal & candidates)[:, 0].tolist(),
                int(earlier[-1]) + 1 if len(earlier) else None,
                bool(marks[index][position]),
            )
        )
    return found
