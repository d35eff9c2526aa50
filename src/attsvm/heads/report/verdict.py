"""Whether trained heads are closer to max-margin than the controls, in words, from the numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from attsvm.heads.analysis.comparison import Fit
from attsvm.heads.report.records import Comparison, HeadReport

_CLEAR = 0.01  # a sign test below this is called a difference

Number = Callable[[Fit], float]
MEASURES: dict[str, Number] = {
    "margin efficiency (smallest)": lambda fit: fit.efficiency_projected.smallest,
    "margin efficiency (quantile)": lambda fit: fit.efficiency_projected.quantile,
    "direction cosine": lambda fit: fit.cosine_projected,
}
CONTROLS: dict[str, Callable[[Comparison], Fit | None]] = {
    "random weights with the same spectrum": lambda found: found.random_weights,
    "shuffled selections": lambda found: found.shuffled,
    "the untrained model": lambda found: found.untrained,
}


@dataclass(frozen=True)
class Verdict:
    """Heads beside one control in one number.

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
    """Every measure against every control, for every norm that was analysed."""
    norms = list(dict.fromkeys(found.head.norm for head in heads for found in head.comparisons))
    return tuple(
        _verdict(
            norm, measure, control, [found for head in heads for found in head.comparisons if found.head.norm == norm]
        )
        for norm in norms
        for measure in MEASURES
        for control in CONTROLS
        if any(CONTROLS[control](found) for head in heads for found in head.comparisons if found.head.norm == norm)
    )


def sign_test(larger: int, pairs: int) -> float:
    """Probability of a split at least as uneven as `larger` of `pairs`, if both sides were equally likely.

    >>> sign_test(5, 5), sign_test(1, 2)
    (0.0625, 1.0)
    """
    tail = sum(math.comb(pairs, k) for k in range(min(larger, pairs - larger) + 1))
    return min(1.0, 2 * tail / 2**pairs)


def _verdict(norm: str, measure: str, control: str, comparisons: Sequence[Comparison]) -> Verdict:
    pairs = []
    for found in comparisons:
        other = CONTROLS[control](found)
        if other is not None:
            pair = MEASURES[measure](found.head), MEASURES[measure](other)
            if not any(math.isnan(value) for value in pair):
                pairs.append(pair)
    different = [(own, other) for own, other in pairs if own != other]
    larger = sum(own > other for own, other in different)
    return Verdict(
        norm, measure, control, len(pairs), larger, len(pairs) - len(different),
        statistics.median(own for own, _ in pairs) if pairs else math.nan,
        statistics.median(other for _, other in pairs) if pairs else math.nan,
        sign_test(larger, len(different)),
    )  # fmt: skip
