"""What an analysis is asked for, and everything that is known about one head: the records that it fills in.

Numbers that do not exist (nothing solved, nothing held out) are NaN here and null in JSON.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from attsvm.data.checks import check_count, check_number
from attsvm.norms import Frobenius, Norm


class SelectionKind(StrEnum):
    """A word for a selection; where several fit, the first in this order counts."""

    FIRST = "first"
    SELF = "self"
    PREVIOUS = "previous"
    NEXT = "next"
    LAST = "last"
    DELIMITER = "delimiter"
    SAME = "same token"
    CONTENT = "content"


SINKS: tuple[SelectionKind, ...] = (SelectionKind.FIRST, SelectionKind.DELIMITER)
"""The tokens on which heads park attention they have no use for: to leave out, ``analyze(..., leave_out=SINKS)``."""


@dataclass(frozen=True)
class Settings:
    """What `analyze` is asked for.

    Arguments:
        norms: of the max-margin problems; the first one is shown in the table.
        queries: largest number of confident queries that enter the problem of a head, drawn with `seed`. Where
            positions are inside the logits and they have more than 6,000 candidates, the head's weights are projected
            on a larger space, all frequencies of all tokens, and their margin efficiency is somewhat smaller for it.
        confidence: a query is confident where the largest attention exceeds this. From 0.5 on, the selected token has
            more than all others together.
        held_out: share of the sentences kept apart, to ask whether W_mm selects there what the head selects.
        leave_out: kinds of tokens that cannot be selected, such as `SINKS`; attention is renormalised on the others.
        accuracy: relative gap to which a solution must be certified.
        quantile: which quantile of the margins is reported next to the smallest.
        other_queries: like `queries`, for norms other than Frobenius, whose solvers hold all working rows at once.
        rounds: largest number of scans of all rows in one solve in the Frobenius norm. Ten are usual; a problem that
            takes many more is hardly separable, or not at all.
        examples: number of sentences shown with their attention for each head.
        draws: of each control.
        seed: of the draws, the split and the controls.
        device: where problems in the Frobenius norm are solved, "cpu" or "cuda".
    """

    norms: tuple[Norm, ...] = (Frobenius(),)
    queries: int = 500
    confidence: float = 0.5
    held_out: float = 0.2
    leave_out: tuple[SelectionKind, ...] = ()
    accuracy: float = 1e-3
    quantile: float = 0.1
    other_queries: int = 60
    rounds: int = 60
    examples: int = 3
    draws: int = 5
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        if not self.norms or not all(isinstance(norm, Norm) for norm in self.norms):
            raise ValueError(f"norms must be norms such as (Frobenius(), Nuclear()); got {self.norms!r}")
        if len({norm.name for norm in self.norms}) < len(self.norms):
            raise ValueError(f"norms must differ; got {', '.join(norm.name for norm in self.norms)}")
        for name in ("queries", "other_queries", "rounds", "draws", "examples", "seed"):
            check_count(getattr(self, name), name, least=int(name not in ("examples", "seed")))
        for name in ("confidence", "held_out", "quantile"):
            check_number(getattr(self, name), name, "lie in [0, 1)", lambda number: 0 <= number < 1)
        if not re.fullmatch(r"cpu|cuda(:\d+)?", self.device):
            raise ValueError(f"device must be cpu, cuda or cuda:N; got {self.device!r}")
        check_number(self.accuracy, "accuracy", "be positive", lambda number: number > 0)
        if unknown := [kind for kind in self.leave_out if kind not in SINKS]:
            sinks = " and ".join(map(str, SINKS))
            raise ValueError(f"leave_out may hold {sinks}, which do not depend on the query; got {unknown[0]!s}")


@dataclass(frozen=True)
class Selectivity:
    """How sharply a head attends: means over all queries that have a choice."""

    queries: int  #: how many have two candidates or more
    no_choice: int  #: how many have fewer, and are not counted
    tied: int  #: queries whose largest logit two candidates share; they select nothing
    entropy: float  #: of the attention, in nats
    relative_entropy: float  #: entropy over its largest value, log of the number of candidates
    top_mass: float  #: attention on the selected token
    confident: float  #: share of queries with more than the threshold on one token


@dataclass(frozen=True)
class Spectrum:
    """Singular values of a matrix, largest first and relative to it."""

    values: tuple[float, ...] = ()  #: relative singular values above 1e-6
    rank: int = 0  #: how many exceed 1e-2
    #: Exp of the entropy of the singular values over their sum (Roy and Vetterli, 2007).
    effective_rank: float = math.nan


@dataclass(frozen=True)
class Efficiency:
    """Normalized margins of W over the max margin."""

    #: Of the worst query; at most 1, and 1 means max-margin. Negative where W does not separate.
    smallest: float = math.nan
    quantile: float = math.nan  #: of the queries; may exceed 1, since the max margin is that of the worst query
    median: float = math.nan  #: the same for half of the queries


@dataclass(frozen=True)
class Closeness:
    """How close weights W are to W_mm, the max-margin solution of some selections in one norm."""

    norm: str  #: its name
    queries: int  #: selections in the problem
    rows: int  #: constraints
    status: str  #: how the solve ended, in a sentence
    solved: bool  #: whether the solution is certified to `accuracy`
    gap: float  #: certified relative gap
    seconds: float  #: of the solve
    memory: int  #: bytes of the problem
    max_margin: float = math.nan  #: 1 / N(W_mm)
    efficiency: Efficiency = Efficiency()  #: of W as it is
    efficiency_projected: Efficiency = Efficiency()  #: of W projected on the spans of the data
    cosine: float = math.nan  #: direction cosine of W and W_mm
    cosine_projected: float = math.nan  #: of the projected W and W_mm
    in_span: float = math.nan  #: norm of the projected W over that of W
    #: Of the projected W and of what W_mm turns to as the gap that is asked for grows and a fixed bias (ALiBi) counts
    #: less and less; NaN for heads without one, whose W_mm does not depend on the gap.
    cosine_large_gap: float = math.nan
    turned_by_bias: float = math.nan  #: cosine of W_mm, at the head's own gap, and of the same
    spectrum: Spectrum = Spectrum()  #: of W_mm
    support_rows: int = 0  #: constraints with a positive multiplier
    support_queries: int = 0  #: queries that have one
    agreement: float = math.nan  #: share of held-out queries on which W_mm selects what the head selects
    margins: tuple[float, ...] = ()  #: smallest margin of every query under the projected W, over the max margin


@dataclass(frozen=True)
class Interval:
    """One number of a control over its draws: the median, the smallest and the largest; NaN where no draw has it."""

    median: float = math.nan
    low: float = math.nan
    high: float = math.nan

    @classmethod
    def of(cls, values: Iterable[float]) -> Interval:
        """Of the values that exist.

        >>> Interval.of([3.0, math.nan, 1.0, 2.0])
        Interval(median=2.0, low=1.0, high=3.0)
        """
        known = [value for value in values if not math.isnan(value)]
        return cls(statistics.median(known), min(known), max(known)) if known else cls()


@dataclass(frozen=True)
class Comparison:
    """The closeness of a head to max-margin in one norm, beside that of its controls, each drawn several times.

    Margins and singular values are kept for the first draw of a control only.
    """

    head: Closeness  #: its weights and its own selections
    #: Weights with the same spectrum and random directions, and *their* own selections; draws that ties leave without a
    #: confident query are not there.
    random_weights: tuple[Closeness, ...]
    #: The head's weights against its selections dealt out at random within each sentence.
    shuffled: tuple[Closeness, ...]
    #: The same head of freshly initialised models, and its own selections; empty where there are none.
    untrained: tuple[Closeness, ...]


@dataclass(frozen=True)
class SupportToken:
    """A constraint that holds the solution in place: this query's selected token is hardest to tell from `token`."""

    share: float  #: of this constraint in the sum of all multipliers
    sentence: int  #: index of the sentence
    query_position: int
    selected_position: int
    token_position: int
    query: str  #: the names of the three
    selected: str
    token: str
    text: str  #: of the sentence

    def __str__(self) -> str:
        return f"{self.query!r} selects {self.selected!r}, not {self.token!r} ({self.share:.1%}): {self.text}"


@dataclass(frozen=True)
class Example:
    """A sentence with its attention."""

    sentence: int  #: index of the sentence
    tokens: tuple[str, ...]  #: their names
    attention: tuple[tuple[int, ...], ...]  #: in thousandths, row = query; 0 where a token is not a candidate
    selected: tuple[int, ...]  #: the selected position of each query, -1 where it has no choice or a tie
    drawn: tuple[bool, ...]  #: whether the query is in the problem
    support: tuple[tuple[int, int, float], ...]  #: (query, token, share of all multipliers) of its support tokens


@dataclass(frozen=True)
class HeadReport:
    """One head: what it selects, and how close to max-margin it is."""

    layer: int
    head: int  #: both counted from 0
    outcome: str  #: in a sentence, how far the analysis came
    selectivity: Selectivity  #: over all queries
    kinds: dict[str, float]  #: share of each kind of selection among confident queries (`SelectionKind`)
    attention_error: float  #: largest difference between the model's own attention and the one recomputed from the form
    spectrum: Spectrum  #: of the head's weights
    rule: str  #: the best rule without weights, or two of them, on confident queries that are not held out
    rule_agreement: float  #: how often it holds on held-out queries
    confident_queries: int  #: in all sentences
    held_out_queries: int  #: confident ones drawn from held-out sentences
    comparisons: tuple[Comparison, ...]  #: one for each norm; none without confident queries
    untrained_selectivity: tuple[Selectivity, ...]  #: of the same head of each untrained model
    support_tokens: tuple[SupportToken, ...]  #: in the first norm, largest share first
    examples: tuple[Example, ...]  #: sentences with attention

    @property
    def name(self) -> str:
        """Such as ``L3H7``."""
        return f"L{self.layer}H{self.head}"

    @property
    def closeness(self) -> Closeness | None:
        """How close the head is to max-margin in the first norm; None without confident queries."""
        return self.comparisons[0].head if self.comparisons else None

    @property
    def efficiency(self) -> Efficiency:
        """Margin efficiency in the first norm, W projected on the spans of the data."""
        return self.closeness.efficiency_projected if self.closeness else Efficiency()

    @property
    def cosine(self) -> float:
        """Direction cosine of the projected W and W_mm in the first norm."""
        return self.closeness.cosine_projected if self.closeness else math.nan

    @property
    def main_kind(self) -> str | None:
        """What it selects most often; None without confident queries."""
        kind = max(self.kinds, key=lambda kind: self.kinds[kind])
        return kind if self.kinds[kind] > 0 else None

    def __repr__(self) -> str:
        return f"HeadReport({self.name}, efficiency {self.efficiency.smallest:.3g}, cosine {self.cosine:.3g})"
