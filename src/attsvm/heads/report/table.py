"""The table of heads: one list of columns, from which rows, terminal, page and JSON are made."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from attsvm.heads.report.records import Closeness, HeadReport, Interval
from attsvm.heads.report.verdict import COSINE, QUANTILE, RANDOM, SHUFFLED, SMALLEST, UNTRAINED, Measure, Part


def shown(value: Any) -> str:
    """A cell of the table; a control shows its range over the draws.

    >>> shown(0.123456), shown(float("nan")), shown(12), shown(Interval(0.2, 0.1, 0.3))
    ('0.123', '-', '12', '0.1 to 0.3')
    """
    if isinstance(value, Interval):
        single = value.low == value.high or math.isnan(value.median)
        return shown(value.median) if single else f"{value.low:.2g} to {value.high:.2g}"
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:.3g}"
    return str(value)


def shown_share(value: float) -> str:
    """A cell that holds a share.

    >>> shown_share(0.95513), shown_share(1.0), shown_share(float("nan"))
    ('95.5%', '100%', '-')
    """
    return "-" if math.isnan(value) else f"{100 * value:.3g}%"


@dataclass(frozen=True)
class Column:
    """One column of the table of heads."""

    key: str  #: its name in rows and in JSON
    title: str  #: its heading; in lower case where it continues the column before it
    help: str  #: what it says, as a phrase
    value: Callable[[HeadReport], Any]  #: from the report of a head
    format: Callable[[Any], str] = shown  #: from the value to the text of a cell
    control: bool = False  #: whether it is a number of a control
    brief: bool = True  #: whether a terminal, which has less room, shows it too


def _own(number: Callable[[Closeness], Any], otherwise: Any = math.nan) -> Callable[[HeadReport], Any]:
    """A number of the head in the first norm that was asked for; `otherwise` where there is none."""
    return lambda head: number(head.closeness) if head.closeness else otherwise


def _control(key: str, title: str, meaning: str, part: Part, measure: Measure, brief: bool = True) -> Column:
    """A number of a control in the first norm: its range over the draws, sorted by their median."""

    def value(head: HeadReport) -> Interval:
        return Interval.of(map(measure, part(head.comparisons[0]))) if head.comparisons else Interval()

    return Column(key, title, meaning, value, control=True, brief=brief)


def _margin_shuffled(head: HeadReport) -> Interval:
    if not head.comparisons:
        return Interval()
    found = head.comparisons[0]
    return Interval.of(mixed.max_margin / found.head.max_margin for mixed in found.shuffled)


_RANK = attrgetter("spectrum.effective_rank")

# fmt: off
COLUMNS: tuple[Column, ...] = (
    Column("head", "Head", "layer and head, counted from 0", attrgetter("name")),
    Column("selects", "Selects", "the commonest kind of selected token among confident queries",
           lambda head: head.main_kind or ""),
    Column("selects_share", "share", "share of that kind", lambda head: head.kinds.get(head.main_kind or "", math.nan),
           shown_share, brief=False),
    Column("confident", "Confident", "share of queries with more attention on one token than the threshold",
           attrgetter("selectivity.confident"), shown_share),
    Column("top_mass", "Top mass", "mean attention on the selected token", attrgetter("selectivity.top_mass")),
    Column("entropy", "Entropy", "mean entropy of the attention, in nats", attrgetter("selectivity.entropy"),
           brief=False),
    Column("queries", "Queries", "confident queries in the problem", _own(attrgetter("queries"), 0)),
    Column("efficiency", "Efficiency", "smallest normalized margin of W over the max margin; 1 is max-margin",
           _own(SMALLEST)),
    _control("efficiency_random", "random",
             "the same for random weights with the same spectrum and their own selections", RANDOM, SMALLEST),
    _control("efficiency_untrained", "untrained", "the same for the same head of an untrained model",
             UNTRAINED, SMALLEST),
    Column("efficiency_quantile", "Quantile", "normalized margin at the quantile of the queries over the max margin",
           _own(QUANTILE), brief=False),
    _control("quantile_random", "random", "the same for random weights", RANDOM, QUANTILE, brief=False),
    _control("quantile_untrained", "untrained", "the same for the untrained model", UNTRAINED, QUANTILE, brief=False),
    Column("cosine", "Cosine", "direction cosine of W and the max-margin solution", _own(COSINE)),
    _control("cosine_random", "random", "the same for random weights", RANDOM, COSINE),
    _control("cosine_shuffled", "shuffled", "of W and the max-margin solution of shuffled selections",
             SHUFFLED, COSINE),
    _control("cosine_untrained", "untrained", "the same for the untrained model", UNTRAINED, COSINE),
    Column("margin_shuffled", "Shuffled margin", "max margin of shuffled selections over that of the head's own",
           _margin_shuffled, control=True, brief=False),
    Column("effective_rank", "Rank of W", "effective rank of the head's weights", _RANK),
    Column("effective_rank_svm", "of W_mm", "effective rank of the max-margin solution", _own(_RANK)),
    Column("support_rows", "Support", "constraints with a positive multiplier",
           _own(attrgetter("support_rows"), 0), brief=False),
    Column("agreement", "Agrees",
           "share of held-out queries on which the max-margin solution selects what the head selects",
           _own(attrgetter("agreement")), shown_share),
    Column("agreement_rule", "rule", "the same for the best rule without weights", attrgetter("rule_agreement"),
           shown_share),
    Column("gap", "Gap", "certified relative gap of the solution", _own(attrgetter("gap"))),
)
# fmt: on
"""The columns of the table, from left to right; numbers that depend on a norm are those of the first."""


def in_mebibytes(size: int) -> str:
    """A number of bytes for a person.

    >>> in_mebibytes(1000), in_mebibytes(3 * 2**20)
    ('less than 1 MiB', '3 MiB')
    """
    return "less than 1 MiB" if size < 2**20 else f"{size / 2**20:.0f} MiB"


class HeadTable(list[dict[str, Any]]):
    """One row for each head, by the keys of `COLUMNS` and "outcome"; NaN where a number does not exist."""

    def __str__(self) -> str:
        lines = [[column.title for column in COLUMNS]]
        lines += [[column.format(row[column.key]) for column in COLUMNS] for row in self]
        widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        return "\n".join("  ".join(map(str.rjust, line, widths)) for line in lines)

    __repr__ = __str__


def head_row(head: HeadReport) -> dict[str, Any]:
    """One head as a plain row."""
    return {column.key: column.value(head) for column in COLUMNS} | {"outcome": head.outcome}
