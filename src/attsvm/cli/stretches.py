"""Long runs in stretches, with a checkpoint after each, so that a run that was killed can go on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from attsvm.descent import Run


@dataclass(frozen=True)
class Stretches:
    """Runs up to `steps`, stopping to save at recorded steps, about every `seconds` (0: at every one).

    Stretches end at multiples of `record`, where an uninterrupted run
    records as well, so that a run in stretches is the same run, bit for bit.
    """

    steps: int
    record: int
    seconds: float

    def run(self, advance: Callable[[int, Run | None], Run], begun: Run | None, save: Callable[[Run], None]) -> Run:
        """Call ``advance(up to this step, so far)`` until the last step, or until no element goes on.

        Arguments:
            begun: an earlier part of the run.
            save: writes a checkpoint.
        """
        run, length = begun, self.record
        done = 0 if run is None else run.step
        while True:
            target = min(self.steps, (done + length) // self.record * self.record)
            target = self.steps if target <= done else target
            began = time.perf_counter()
            run = advance(target, run)
            walked = time.perf_counter()
            save(run)
            if run.step < target or target == self.steps:
                return run
            if self.seconds > 0:  # saving takes at most a twentieth of the time
                period = max(self.seconds, 20 * (time.perf_counter() - walked))
                rate = (target - done) / max(walked - began, 1e-9)
                length = max(self.record, int(min(rate * period, self.steps)))
            done = target
