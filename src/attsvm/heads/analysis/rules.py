"""Rules without weights: what a head could do by places and names alone, and the rule that does most of what it does.

Two rules can share the queries: the second where the first names no candidate, or one of them where the query is a
delimiter. All are chosen on confident queries of the texts that are not held out (on all of them, where W_mm gets
some), and judged on the held-out queries that W_mm is judged on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from attsvm.heads.analysis.selections import Choices, Views, delimiters

MOST_QUERIES = 2000  # on which rules are chosen
_MOST = 300  # rules that are tried in pairs: those that hold most often
NAMED = (
    "the first delimiter",
    "the last delimiter",
    "the nearest delimiter before",
    "the nearest delimiter after",
    "the first other token of the same name",
    "the last other token of the same name",
    "the nearest token of the same name before",
    "the nearest token of the same name after",
    "the token after an earlier one of the same name",
)
"""Rules that are not a fixed place."""


@dataclass(frozen=True)
class Rule:
    """One token for each query: counted from the query, the start or the end, or by a name of `NAMED`."""

    kind: Literal["start", "query", "end", "named"]
    place: int = 0
    name: str = ""

    def __str__(self) -> str:
        """In words.

        >>> [str(Rule("query", k)) for k in (0, -1, 3)], str(Rule("end", 2)), str(Rule("start"))
        (['itself', 'the token before', 'the token 3 after'], 'the token 2 before the last', 'the first token')
        """
        near = {("query", 0): "itself", ("query", -1): "the token before", ("query", 1): "the token after"}
        near |= {("start", 0): "the first token", ("end", 0): "the last token"}
        side = {"start": "after the first", "query": "before" if self.place < 0 else "after", "end": "before the last"}
        return self.name or near.get((self.kind, self.place), f"the token {abs(self.place)} {side.get(self.kind)}")


class _Seen:
    """Queries as arrays, for all rules at once."""

    def __init__(self, views: Views, drawn: Choices) -> None:
        self.position, self.selected = drawn.position.numpy(), drawn.selected.numpy()
        self.length = np.array([len(views[index].sentence) for index in drawn.sentence.tolist()])
        self.candidates = np.zeros((len(drawn), int(self.length.max()) + 1), dtype=bool)  # the last column is for none
        self.delimiter = np.zeros(len(drawn), dtype=bool)
        self.named = np.full((len(drawn), len(NAMED)), -1)
        marks = {index: delimiters(views[index].sentence) for index in set(drawn.sentence.tolist())}
        for row, (index, position, _) in enumerate(drawn.triples):
            ids, candidates = views[index].sentence.ids, views[index].allowed[position]
            equal = ids == ids[position]
            equal[position] = False
            earlier = torch.nonzero(equal[:position])
            named = []  # by each rule of `NAMED`, -1 where there is none
            for part in (marks[index], equal):
                tokens = torch.nonzero(part & candidates)[:, 0].tolist()
                before, after = [t for t in tokens if t < position], [t for t in tokens if t > position]
                named += [(tokens or [-1])[0], (tokens or [-1])[-1], (before or [-1])[-1], (after or [-1])[0]]
            self.named[row] = [*named, int(earlier[-1]) + 1 if len(earlier) else -1]
            self.candidates[row, : len(ids)] = candidates.numpy()
            self.delimiter[row] = bool(marks[index][position])

    def fixed_places(self) -> list[Rule]:
        """Every fixed place that holds for at least one query: near ones first."""
        found: list[Rule] = []
        for kind, start in (("start", 0 * self.length), ("query", self.position)):
            places = sorted(set((self.selected - start).tolist()), key=abs)
            found += [Rule(kind, place) for place in places]  # type: ignore[arg-type]
        return [*found, *(Rule("end", back) for back in sorted(set((self.length - 1 - self.selected).tolist())))]

    def named_by(self, rule: Rule) -> np.ndarray:
        """The token that the rule names for each query, -1 where it is no candidate."""
        if rule.kind == "named":
            token = self.named[:, NAMED.index(rule.name)]
        else:
            base = {"start": 0 * self.length, "query": self.position, "end": self.length - 1}[rule.kind]
            token = base - rule.place if rule.kind == "end" else base + rule.place
        inside = (token >= 0) & (token < self.length)
        return np.where(inside & self.candidates[np.arange(len(token)), np.where(inside, token, -1)], token, -1)


def best_rule(views: Views, drawn: Choices, held_out: Choices) -> tuple[str, float]:
    """The rule, or two rules, that agree most often with `drawn`, and how often with `held_out` (NaN if it is empty).

    Two rules are taken where they agree with more queries of `drawn` than the best one alone, by more than the
    logarithm of the number of rules: among so many pairs some fit better by chance.
    """
    seen = _Seen(views, drawn)
    rules = [*seen.fixed_places(), *(Rule("named", name=name) for name in NAMED)]
    named = np.stack([seen.named_by(rule) for rule in rules])
    hits = named == seen.selected
    kept = np.argsort(-hits.sum(1), kind="stable")[:_MOST]
    rules, named, hits = [rules[row] for row in kept], named[kept], hits[kept].astype(np.float64)
    pairs = {
        "or else": (named < 0) @ hits.T + hits.sum(1)[:, None],  # the second where the first names no candidate
        "delimiters": (hits @ seen.delimiter)[:, None] + hits @ ~seen.delimiter,
    }
    how = max(pairs, key=lambda way: pairs[way].max())
    first, second = divmod(int(pairs[how].argmax()), len(rules))
    if pairs[how].max() <= hits[0].sum() + math.log(len(rules)):
        first, second, how = 0, 0, "always"
    one, other = rules[first], rules[second]
    words = {
        "always": f"always {one}",
        "or else": f"{one}, or else {other}",
        "delimiters": f"{one} for delimiters, {other} for others",
    }
    if len(held_out) == 0:
        return words[how], math.nan
    seen = _Seen(views, held_out)
    here, there = seen.named_by(one), seen.named_by(other)
    found = np.where(seen.delimiter if how == "delimiters" else here >= 0, here, there)
    return words[how], float((found == seen.selected).mean())
