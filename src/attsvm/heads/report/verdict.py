"""Whether trained heads are closer to max-margin than the controls, in words, from the numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from attsvm.heads.report.records import Closeness, Comparison, HeadReport

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

Part = Callable[[Comparison], Closeness | None]  # the head of a comparison, or one of its controls
OWN: Part = attrgetter("head")
RANDOM: Part = attrgetter("random_weights")
SHUFFLED: Part = attrgetter("shuffled")
UNTRAINED: Part = attrgetter("untrained")
CONTROLS = {
    "random weights with the same spectrum": RANDOM,
    "shuffled selections": SHUFFLED,
    "the untrained model": UNTRAINED,
}


def number_pair(found: Comparison, measure: Measure, control: Part) -> tuple[float, float] | None:
    """The number of the head and that of a control; None where one of them does not exist."""
    other = control(found)
    pair = (math.nan, math.nan) if other is None else (measure(found.head), measure(other))
    return None if any(math.isnan(value) for value in pair) else pair


@dataclass(frozen=True)
class Verdict:
    """All heads against one control, by one number.

    Arguments:
        norm, measure, control: what is compared.
        heads: number of heads where both numbers exist.
        larger: in how many of them the trained head has the larger one.
        equal: in how many they are the same, as where shuffling changes nothing.
        trained, controlled: medians.
        p: of a two-sided sign test. Heads of one model are not independent, so it is a rough guide.
    """

    norm: str
    measure: str
    control: str
    heads: int
    larger: int
    equal: int
    trained: float
    controlled: float
    p: float

    @property
    def tone(self) -> str:
        """closer, further, or unclear."""
        if self.heads == 0 or self.p >= _CLEAR:
            return "unclear"
        return "closer" if 2 * self.larger > self.heads - self.equal else "further"

    def __str__(self) -> str:
        if self.heads == 0:
            return f"{self.norm}, {self.measure}: no head can be compared with {self.control}."
        words = {
            "closer": "Trained heads are closer to max-margin than",
            "further": "Trained heads are FURTHER from max-margin than",
            "unclear": "Trained heads are not clearly closer to max-margin than",
        }[self.tone]
        same = f", equal in {self.equal}" if self.equal else ""
        return (
            f"{words} {self.control} by {self.measure} ({self.norm}): median {self.trained:.3g} against"
            f" {self.controlled:.3g}, larger in {self.larger} of {self.heads} heads{same} (sign test p = {self.p:.1g})."
        )


def verdicts(heads: Sequence[HeadReport]) -> tuple[Verdict, ...]:
    """Every measure against every control that there is, for every norm that was analysed."""
    by_norm: dict[str, list[Comparison]] = {}
    for found in (found for head in heads for found in head.comparisons):
        by_norm.setdefault(found.head.norm, []).append(found)
    return tuple(
        _verdict(norm, measure, control, comparisons)
        for norm, comparisons in by_norm.items()
        for measure in MEASURES
        for control, part in CONTROLS.items()
        if any(part(found) is not None for found in comparisons)
    )


def sign_test(larger: int, pairs: int) -> float:
    """Probability of a split at least as uneven as `larger` of `pairs`, if both sides were equally likely.

    >>> sign_test(5, 5), sign_test(1, 2)
    (0.0625, 1.0)
    """
    tail = sum(math.comb(pairs, k) for k in range(min(larger, pairs - larger) + 1))
    return min(1.0, 2 * tail / 2**pairs)


def _verdict(norm: str, measure: str, control: str, comparisons: Sequence[Comparison]) -> Verdict:
    found = (number_pair(comparison, MEASURES[measure], CONTROLS[control]) for comparison in comparisons)
    pairs = [pair for pair in found if pair is not None]
    different = [(own, other) for own, other in pairs if own != other]
    larger = sum(own > other for own, other in different)
    return Verdict(
        norm, measure, control, len(pairs), larger, len(pairs) - len(different),
        statistics.median(own for own, _ in pairs) if pairs else math.nan,
        statistics.median(other for _, other in pairs) if pairs else math.nan,
        sign_test(larger, len(different)),
    )  # fmt: skip
