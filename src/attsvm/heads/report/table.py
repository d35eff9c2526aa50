"""The table of heads, one list of columns from which all else is made; and whether trained heads beat the controls."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from operator import attrgetter
from typing import Any

from attsvm.heads.report.records import Closeness, Comparison, HeadReport, Interval

CLEAR, NEEDED = 0.01, 8  # a sign test below this is called a difference, and needs so many heads to get there

Measure = Callable[[Closeness], float]  # one number of a closeness
SMALLEST: Measure = attrgetter("efficiency_projected.smallest")
QUANTILE: Measure = attrgetter("efficiency_projected.quantile")
COSINE: Measure = attrgetter("cosine_projected")
MEASURES = {
    "margin efficiency (smallest)": SMALLEST,
    "margin efficiency (quantile)": QUANTILE,
    "direction cosine": COSINE,
}
"""The numbers by which heads and controls are compared; W is projected on the spans of the data."""

Part = Callable[[Comparison], tuple[Closeness, ...]]  # the draws of a control
RANDOM: Part = attrgetter("random_weights")
SHUFFLED: Part = attrgetter("shuffled")
UNTRAINED: Part = attrgetter("untrained")
CONTROLS = {
    "random weights with the same spectrum": RANDOM,
    "shuffled selections": SHUFFLED,
    "the untrained model": UNTRAINED,
}
RULE = "the best rule without weights"
Pair = tuple[float, list[float]]  # the number of a head, and those of the draws of a control


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
    return Column(key, title, meaning, _drawn(lambda first: map(measure, part(first))), control=True, brief=brief)


def _drawn(numbers: Callable[[Comparison], Iterable[float]]) -> Callable[[HeadReport], Interval]:
    """The range of numbers in the first norm."""
    return lambda head: Interval.of(number for first in head.comparisons[:1] for number in numbers(first))


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
           _drawn(lambda first: (mixed.max_margin / first.head.max_margin for mixed in first.shuffled)), control=True,
           brief=False),
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


def number_pair(found: Comparison, measure: Measure, control: Part) -> Pair | None:
    """The number of the head and those of the draws of a control; None where one side does not exist."""
    own, others = measure(found.head), [value for value in map(measure, control(found)) if not math.isnan(value)]
    return None if math.isnan(own) or not others else (own, others)


@dataclass(frozen=True)
class Verdict:
    """All heads against one control, by one number."""

    norm: str
    measure: str
    control: str
    heads: int  #: number of heads where both numbers exist
    larger: int  #: in how many of them the trained head has a larger one than the median of the control's draws
    above: int  #: in how many of those it has a larger one than every draw
    equal: int  #: in how many they are the same, as where shuffling changes nothing
    trained: float  #: median over heads
    controlled: Interval  #: the same for every draw of the control
    p: float  #: of a two-sided sign test; a rough guide, since heads of one model are not independent

    @property
    def tone(self) -> str:
        """closer, further, unclear; or open, if so few heads cannot pass the sign test whatever they do."""
        if self.heads < NEEDED:
            return "open"
        if self.p >= CLEAR:
            return "unclear"
        return "closer" if 2 * self.larger > self.heads - self.equal else "further"

    @property
    def against(self) -> str:
        """The median of the control, and its range over the draws."""
        low, high = self.controlled.low, self.controlled.high
        draws = "" if low == high else f" ({low:.3g} to {high:.3g} by draw)"
        return f"{self.controlled.median:.3g}{draws}"

    def __str__(self) -> str:
        if self.heads == 0:
            return f"{self.norm}, {self.measure}: no head can be compared with {self.control}."
        same = f", equal in {self.equal}" if self.equal else ""
        counts = f"larger in {self.larger} of {self.heads} heads{same} (sign test p = {self.p:.1g})"
        medians = f"median {self.trained:.3g} against {self.against}, {counts}"
        if self.tone == "open":
            return f"Too few heads to judge against {self.control}, {self.measure} ({self.norm}): {medians}."
        if self.control == RULE:
            words = {"closer": "more often", "further": "LESS often", "unclear": "not clearly more often"}[self.tone]
            told = f"On held-out queries the max-margin solution ({self.norm}) selects what the head selects {words}"
            return f"{told} than {RULE}: {medians}."
        words = {"closer": "closer to", "further": "FURTHER from", "unclear": "not clearly closer to"}[self.tone]
        told = f"Trained heads are {words} max-margin than {self.control} by {self.measure} ({self.norm})"
        return f"{told}: {medians}; larger than every draw in {self.above}."


def verdicts(heads: Sequence[HeadReport]) -> tuple[Verdict, ...]:
    """Every measure against every control that there is, for every norm that was analysed."""
    by_norm: dict[str, list[tuple[Comparison, HeadReport]]] = {}
    for head in heads:
        for found in head.comparisons:
            by_norm.setdefault(found.head.norm, []).append((found, head))
    made = []
    for norm, pairs in by_norm.items():
        made += [
            _verdict(norm, name, control, [number_pair(found, measure, part) for found, _ in pairs])
            for name, measure in MEASURES.items()
            for control, part in CONTROLS.items()
            if any(part(found) for found, _ in pairs)
        ]
        rules = [(found.head.agreement, [head.rule_agreement]) for found, head in pairs]
        known = [pair for pair in rules if not math.isnan(pair[0] + pair[1][0])]
        made += [_verdict(norm, "agreement on held-out queries", RULE, known)] if known else []
    return tuple(made)


def sign_test(larger: int, pairs: int) -> float:
    """Probability of a split at least as uneven as `larger` of `pairs`, if both sides were equally likely.

    >>> sign_test(5, 5), sign_test(1, 2)
    (0.0625, 1.0)
    """
    tail = sum(math.comb(pairs, k) for k in range(min(larger, pairs - larger) + 1))
    return min(1.0, 2 * tail / 2**pairs)


def _verdict(norm: str, measure: str, control: str, found: Sequence[Pair | None]) -> Verdict:
    pairs = [(own, Interval.of(others), others) for own, others in filter(None, found)]
    different = [(own, other) for own, other, _ in pairs if own != other.median]
    larger = sum(own > other.median for own, other in different)
    above = sum(own > other.high for own, other in different)
    by_draw = zip_longest(*(others for _, _, others in pairs), fillvalue=math.nan)
    draws = [Interval.of(numbers).median for numbers in by_draw]
    return Verdict(
        norm, measure, control, len(pairs), larger, above, len(pairs) - len(different),
        Interval.of(own for own, _, _ in pairs).median, Interval.of(draws), sign_test(larger, len(different)),
    )  # fmt: skip
