"""How sharply a head attends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attsvm.heads.choices import Choices
from attsvm.heads.views import SentenceView


@dataclass(frozen=True)
class Selectivity:
    """Means over all queries that have a choice.

    Arguments:
        queries: how many have two candidates or more.
        no_choice: how many have fewer, and are not counted.
        tied: queries whose largest logit two candidates share; they select nothing.
        entropy: of the attention, in nats.
        relative_entropy: entropy over its largest value, log of the number of candidates.
        top_mass: attention on the selected token.
        confident: share of queries with more than the threshold on one token.
    """

    queries: int
    no_choice: int
    tied: int
    entropy: float
    relative_entropy: float
    top_mass: float
    confident: float


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
