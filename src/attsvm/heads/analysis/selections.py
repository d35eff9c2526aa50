"""What a head does with every query: the token it selects, with how much attention, and the draw that is analysed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attsvm.heads.analysis.views import SentenceView
from attsvm.heads.model import HeadWeights
from attsvm.heads.report.records import Selectivity

# The largest logit and the next are a tie where they differ by less than this times the largest in size.
_TIE = 1e-9


@dataclass(frozen=True, eq=False)
class Choices:
    """The queries of some sentences that have a choice (two candidates or more), for one head.

    Arguments:
        sentence: index of the query's sentence.
        position: of the query in it.
        selected: position of the token with the largest logit.
        mass: attention on it.
        entropy: of the attention, in nats.
        options: number of candidates.
        tied: another candidate has the same logit to round-off, so that nothing is selected.
    """

    sentence: Int[Tensor, " n"]
    position: Int[Tensor, " n"]
    selected: Int[Tensor, " n"]
    mass: Float[Tensor, " n"]
    entropy: Float[Tensor, " n"]
    options: Int[Tensor, " n"]
    tied: Bool[Tensor, " n"]

    def __len__(self) -> int:
        return len(self.sentence)

    def __getitem__(self, index: Tensor) -> Choices:
        return Choices(*(getattr(self, field.name)[index] for field in fields(self)))

    def confident(self, threshold: float) -> Choices:
        """Those with more attention than `threshold` on one token, and no tie."""
        return self[(self.mass > threshold) & ~self.tied]

    def within(self, sentences: Bool[Tensor, " sentences"]) -> Choices:
        """Those of the marked sentences."""
        return self[sentences[self.sentence]]

    def draw(self, count: int, generator: torch.Generator) -> Choices:
        """At most `count` of them, without repetition, in order."""
        if len(self) <= count:
            return self
        return self[torch.randperm(len(self), generator=generator)[:count].sort().values]


def choices(views: Sequence[SentenceView], form: HeadWeights, temperature: float = 1.0) -> Choices:
    """Every query's choice under the form; logits are multiplied by `temperature`."""
    parts: list[tuple[Tensor, ...]] = []
    for index, view in enumerate(views):
        options = view.candidates.sum(-1)
        position = torch.nonzero(options > 1)[:, 0]
        if position.numel() == 0:
            continue
        logits = view.logits(form)[position] * temperature
        top = logits.topk(2, dim=-1)
        log_attention = logits.log_softmax(-1)
        entropy = -torch.where(logits.isinf(), 0.0, log_attention.exp() * log_attention).sum(-1)
        size = logits.masked_fill(logits.isinf(), 0.0).abs().amax(-1)
        parts.append((
            torch.full_like(position, index), position, top.indices[:, 0],
            log_attention.gather(-1, top.indices[:, :1])[:, 0].exp(), entropy.clamp(min=0.0), options[position],
            top.values[:, 0] - top.values[:, 1] <= _TIE * size,
        ))  # fmt: skip
    if not parts:
        none = torch.zeros(0, dtype=torch.int64)
        return Choices(none, none, none, none.double(), none.double(), none, none.bool())
    return Choices(*(torch.cat(column) for column in zip(*parts, strict=True)))


def matching_temperature(views: Sequence[SentenceView], form: HeadWeights, threshold: float, share: float) -> float:
    """The factor on the logits of `form` at which a share of `share` of its queries is confident.

    Margins are normalised, so the factor changes nothing but which queries count as confident: a control is then as
    selective as the head it stands beside. Found by bisection; the share grows with the factor.
    """
    gaps, rows, count = [], [], 0
    for view in views:
        logits = view.logits(form)[view.candidates.sum(-1) > 1]
        if logits.numel() == 0:
            continue
        kept = ~logits.isinf()
        gaps.append((logits.amax(-1, keepdim=True) - logits)[kept])
        rows.append(torch.nonzero(kept)[:, 0] + count)
        count += len(logits)
    if count == 0:
        return 1.0
    gap, row = torch.cat(gaps), torch.cat(rows)
    scale = float(gap.mean()) or 1.0
    low, high = -20.0, 20.0  # natural logarithm of the factor, relative to the mean gap
    for _ in range(50):
        middle = (low + high) / 2
        inverse = torch.zeros(count, dtype=gap.dtype).index_add_(0, row, torch.exp(-gap * (math.exp(middle) / scale)))
        low, high = (low, middle) if float((1 / inverse > threshold).double().mean()) >= share else (middle, high)
    return math.exp(high) / scale


def selectivity(found: Choices, views: Sequence[SentenceView], threshold: float) -> Selectivity:
    """Summarise the choices of a head over `views`."""
    return Selectivity(
        queries=len(found),
        no_choice=sum(len(view.sentence) for view in views) - len(found),
        tied=int(found.tied.sum()),
        entropy=float(found.entropy.mean()),
        relative_entropy=float((found.entropy / found.options.double().log()).mean()),
        top_mass=float(found.mass.mean()),
        confident=float(((found.mass > threshold) & ~found.tied).double().mean()),
    )
