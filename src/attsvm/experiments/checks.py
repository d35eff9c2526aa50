"""What a check of an experiment says, and the checks and allowances that several experiments share."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

_REACHED = 0.99


class Verdict(enum.Enum):
    """What a check says; its value is what the summary prints."""

    HOLDS = "holds"
    FAILS = "does not hold"
    OPEN = "not judged"
    MEASURED = "only measured"

    @staticmethod
    def of(answer: bool, *, enough: bool = True) -> Verdict:
        """Holds, or does not; `OPEN` unless there was `enough` to judge by."""
        if not enough:
            return Verdict.OPEN
        return Verdict.HOLDS if answer else Verdict.FAILS


@dataclass(frozen=True)
class Check:
    """One row of the summary.

    The verdict is `OPEN` where a smaller run cannot decide, never where something came out wrong, and `MEASURED` for a
    number that nobody predicted.
    """

    what: str  # is looked at: the same for every seed and size of the run, so that runs can be compared
    expected: str  # what should come out, and who says so
    measured: str  # what came out
    verdict: Verdict
    fails_if: str = ""  # the clause that decides, with its threshold: "a cosine is at most .999"
    why: str = ""  # printed below `what`, as `fails_if` is, unless the check holds


def claim(
    what: str,
    expected: str,
    measured: str,
    holds: bool | np.bool_,
    fails_if: str,
    *,
    enough: bool | np.bool_ = True,
    why: str = "",
    predicted: bool = True,
) -> Check:
    """A check that holds or does not; not judged, and `why`, unless there was `enough` to judge by.

    Where nobody `predicted` it, it is only measured.
    """
    verdict = Verdict.of(bool(holds), enough=bool(enough)) if predicted else Verdict.MEASURED
    return Check(what, expected, measured, verdict, fails_if if predicted else "", "" if enough else why)


def reported(what: str, expected: str, measured: str) -> Check:
    """A number that nobody predicted."""
    return Check(what, expected, measured, Verdict.MEASURED)


def allowance(deviation: float, count: int, public: int) -> float:
    """Three standard errors of the difference between a mean of `count` values and a public one: what chance explains.

    `deviation` is that of one value, sqrt(p (1 - p)) for a share p; `public` values are behind the public mean.

    >>> round(allowance(0.5, 100, 100), 3)
    0.212
    """
    return float(3 * deviation * np.sqrt(1 / count + 1 / public))


def rises(shares: Sequence[float], count: int) -> bool:
    """Whether shares of `count` draws each rise, from the first to the last and as far as chance lets one say.

    The last must lie above the first, and none below an earlier one, each time by more than three standard errors.

    >>> rises([0.1, 0.5, 0.45, 0.9], 100), rises([0.1, 0.9, 0.5], 100), rises([0.5, 0.5], 100)
    (True, False, False)
    """

    def climb(before: float, after: float) -> float:
        middle = (before + after) / 2
        return (after - before) / allowance(max(np.sqrt(middle * (1 - middle)), 1e-9), count, count)

    return climb(shares[0], shares[-1]) > 1 and all(climb(a, b) >= -1 for a, b in combinations(shares, 2))


NOT_RISING = "the last share is not above the first, or one is below an earlier one, by more than three standard errors"


def turning(
    what: str, expected: str, cosines: Callable[..., np.ndarray], recorded: np.ndarray, last: int, *, enough: bool
) -> Check:
    """A check that the directions of all runs tend to their limits, the slowest included.

    A run that is not there yet, at a cosine of .99 or less, must be on its way: while attention saturates the angle
    falls like the inverse of the norm, 1 - cosine like its square. Half that pace is asked for, over the last half of
    the steps, since a run may turn late. `cosines` gives those of every run at a recorded step; `enough` says whether
    the runs are long enough to judge those that are not there yet.
    """
    half = int(recorded[recorded <= last / 2].max())
    after, growth = cosines(step=last), last / half
    there = after > _REACHED
    stuck = ~there & ~(1 - after <= (1 - cosines(step=half)) / growth)  # so is a run without a cosine
    decided = len(after) > 0 and (enough or bool(there.all()))
    found = f"; median {np.median(after):.5f}, least {after.min():.4f}" if len(after) else ""
    return claim(
        what, expected, f"{there.sum()} of {len(after)} above .99, {stuck.sum()} stuck{found}", not stuck.any(),
        f"a run ends at a cosine of .99 or less, and 1 - cosine fell less than {growth:.2f}-fold from step {half:,} to"
        f" {last:,}", enough=decided, why="so few runs or steps do not decide",
    )  # fmt: skip
