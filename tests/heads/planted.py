"""A small model with heads that are known: one looks at the token before, one at the first, one at nothing."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from attsvm.heads import HeadModel, HeadsReport, HeadWeights, Sentence, analyze, from_arrays
from attsvm.heads.analysis.selections import SentenceView

WIDTH = 24
POSITIONS = 10


def sentence(*names: str, special: tuple[int, ...] = ()) -> Sentence:
    numbers: dict[str, int] = {}
    ids = torch.tensor([numbers.setdefault(name, len(numbers)) for name in names])
    marked = torch.zeros(len(names), dtype=torch.bool)
    marked[list(special)] = True
    return Sentence(" ".join(names), tuple(names), ids, marked)


def view(keys: Tensor, queries: Tensor | None = None, candidates: Tensor | None = None) -> SentenceView:
    length = len(keys)
    wide = keys.double()
    return SentenceView(
        wide,
        wide if queries is None else queries.double(),
        torch.ones(length, length, dtype=torch.bool) if candidates is None else candidates,
        sentence=sentence(*(f"t{k}" for k in range(length))),
    )


def random_views(count: int, width: int = 6, seed: int = 0, causal: bool = False) -> list[SentenceView]:
    generator = torch.Generator().manual_seed(seed)
    made = []
    for index in range(count):
        length = 3 + index % 5
        allowed = torch.ones(length, length, dtype=torch.bool)
        made.append(
            view(torch.randn(length, width, generator=generator), candidates=allowed.tril() if causal else allowed)
        )
    return made


def random_form(width: int = 6, rank: int = 3, seed: int = 1, scale: float = 1.0) -> HeadWeights:
    generator = torch.Generator().manual_seed(seed)
    key, query = (torch.randn(width, rank, generator=generator).double() for _ in range(2))
    return HeadWeights(key * scale, query)


def planted(sentences: int = 24, seed: int = 0, twin: bool = True) -> HeadModel:
    """One layer of three heads on states ``[position one-hot, word]``.

    Head 0 looks at the token before (the first token at itself), head 1 at the first token, head 2 has weight 0.
    """
    generator = torch.Generator().manual_seed(seed)
    words = torch.randn(12, WIDTH - POSITIONS, generator=generator) * 0.3
    states, names = [], []
    for index in range(sentences):
        length = 3 + index % (POSITIONS - 3)
        chosen = torch.randint(0, len(words), (length,), generator=generator)
        states.append(torch.cat([torch.eye(POSITIONS)[:length], words[chosen]], dim=-1)[None])
        names.append([f"w{word}" for word in chosen.tolist()])
    key, query = torch.zeros(1, 3, WIDTH, POSITIONS), torch.zeros(1, 3, WIDTH, POSITIONS)
    key[0, :2, :POSITIONS] = torch.eye(POSITIONS)
    for position in range(POSITIONS):
        query[0, 0, position, max(position - 1, 0)] = 8.0
        query[0, 1, position, 0] = 6.0

    def untrained(other: int) -> HeadModel:
        draw = torch.Generator().manual_seed(other)
        made = [torch.randn(1, 3, WIDTH, POSITIONS, generator=draw) * 0.02 for _ in range(2)]
        return from_arrays(states, *made, scale=1.0, tokens=names, name="untrained")

    return from_arrays(
        states, key, query, scale=1.0, tokens=names, name="planted", untrained=untrained if twin else None
    )


@cache
def planted_report() -> HeadsReport:
    """The analysis of `planted`, made once for all tests that only read it."""
    return analyze(planted(), queries=60, seed=1)


def many_heads() -> HeadsReport:
    """The heads of `planted_report` a hundred times, as 30 layers of ten heads."""
    report = planted_report()
    heads = sorted(report.heads, key=lambda head: head.head) * 100
    return replace(report, heads=tuple(replace(head, layer=k // 10, head=k % 10) for k, head in enumerate(heads)))
