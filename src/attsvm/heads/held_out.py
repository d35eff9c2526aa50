"""Held-out sentences: does a W learned from a head's selections select what the head selects?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.heads.choices import Choices
from attsvm.heads.kinds import delimiters
from attsvm.heads.views import SentenceView

Rule = Callable[[SentenceView, int], int]


def agreement(weights: Float[Tensor, "D D"], views: Sequence[SentenceView], drawn: Choices) -> float:
    """Share of queries where the largest logit of `weights` is on the selected token; NaN without queries."""
    if len(drawn) == 0:
        return float("nan")
    hits = 0
    for index in torch.unique(drawn.sentence).tolist():
        view, here = views[index], drawn.sentence == index
        positions = drawn.position[here]
        logits = (view.queries[positions] @ weights.T) @ view.keys.T
        best = logits.masked_fill(~view.candidates[positions], -torch.inf).argmax(-1)
        hits += int((best == drawn.selected[here]).sum())
    return hits / len(drawn)


def _last_delimiter(view: SentenceView, query: int) -> int:
    marks = torch.nonzero(delimiters(view.sentence) & view.candidates[query])
    return int(marks[-1]) if marks.numel() else -1


def _same(view: SentenceView, query: int) -> int:
    ids = view.sentence.ids
    others = torch.nonzero((ids == ids[query]) & view.candidates[query] & (torch.arange(len(ids)) != query))
    return int(others[0]) if others.numel() else -1


RULES: dict[str, Rule] = {
    "always the first token": lambda view, query: 0,
    "always itself": lambda view, query: query,
    "always the token before": lambda view, query: query - 1,
    "always the token after": lambda view, query: query + 1,
    "always the last delimiter": _last_delimiter,
    "another token of the same name": _same,
}
"""What a head could do without weights; -1 or a position outside the sentence never agrees."""


def best_rule(views: Sequence[SentenceView], drawn: Choices, held_out: Choices) -> tuple[str, float]:
    """The rule that agrees most often on `drawn`, and how often it agrees on `held_out` (NaN without queries)."""
    name = max(RULES, key=lambda name: _rule_agreement(RULES[name], views, drawn))
    return name, _rule_agreement(RULES[name], views, held_out)


def _rule_agreement(rule: Rule, views: Sequence[SentenceView], drawn: Choices) -> float:
    if len(drawn) == 0:
        return float("nan")
    triples = zip(drawn.sentence.tolist(), drawn.position.tolist(), drawn.selected.tolist(), strict=True)
    return sum(rule(views[index], position) == selected for index, position, selected in triples) / len(drawn)
