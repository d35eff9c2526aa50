"""Whether trained heads are closer to max-margin than the controls, in words, from the numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from attsvm.heads.report.records import Closeness, Comparison, HeadReport, Interval

_CLEAR = 0.01  # a sign test below this is called a difference

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
        """closer, further, or unclear."""
        if self.heads == 0 or self.p >= _CLEAR:
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
    draws = [
        Interval.of(others[k] for _, _, others in pairs if k < len(others)).median
        for k in range(max((len(others) for _, _, others in pairs), default=0))
    ]
    return Verdict(
        norm, measure, control, len(pairs), larger, above, len(pairs) - len(different),
        Interval.of(own for own, _, _ in pairs).median, Interval.of(draws), sign_test(larger, len(different)),
    )  # fmt: skip
