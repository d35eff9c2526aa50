"""What one finished experiment is worth: checks, counts, pictures and CPU seconds, for the tables and summary.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attsvm.data.files import write_atomically
from attsvm.experiments import Check, Experiment, ExperimentResult, Verdict

SUMMARY = "summary.json"


@dataclass(frozen=True)
class Speed:
    """CPU seconds of computing against those of the public code, for the paper's configuration on a CPU."""

    seconds: float
    public_seconds: float

    @property
    def factor(self) -> float:
        """How many times less."""
        return self.public_seconds / max(self.seconds, 1e-9)

    def __str__(self) -> str:
        return f"CPU {seconds(self.seconds)}, public code {seconds(self.public_seconds)}: {times(self.factor)}"


@dataclass(frozen=True)
class FigureSummary:
    """One experiment's part of the summary.

    Arguments:
        checks: expected against measured; the speed is one of them where a factor is expected.
        counts: discarded and failed instances by reason.
        cpu_seconds: computing, compiling, importing, drawing.
    """

    experiment: str
    folder: Path
    pictures: Sequence[Path]
    checks: Sequence[Check]
    counts: Mapping[str, int]
    cpu_seconds: Mapping[str, float]
    wall_seconds: float
    speed: Speed | None
    notes: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {
            "experiment": self.experiment,
            "folder": str(self.folder),
            "pictures": [path.name for path in self.pictures],
            "checks": [
                {"what": one.what, "expected": one.expected, "measured": one.measured, "verdict": one.verdict.value,
                 "why": one.why}
                for one in self.checks
            ],
            "counts": dict(self.counts),
            "cpu_seconds": dict(self.cpu_seconds),
            "wall_seconds": self.wall_seconds,
            "public_code": None if self.speed is None else {
                "seconds": self.speed.public_seconds, "ours": round(self.speed.seconds, 4),
                "factor": round(self.speed.factor, 1),
            },
            "notes": list(self.notes),
        }  # fmt: skip

    def save(self) -> Path:
        """Write it to FOLDER/summary.json."""
        text = json.dumps(self.to_json() | {"folder": "."}, indent=2, allow_nan=False) + "\n"
        return write_atomically(self.folder / SUMMARY, text.encode())


def summarize(
    experiment: Experiment[Any], result: ExperimentResult, pictures: Sequence[Path], drawing: float
) -> FigureSummary:
    """Judge a stored result; `drawing` is the CPU time that its pictures took."""
    speed = _speed(experiment, result)
    checks = list(experiment.checks(result))
    if speed is not None and experiment.public_factor is not None:
        expected = f"public code {seconds(speed.public_seconds)}, at least {times(experiment.public_factor)} less"
        measured = f"{seconds(speed.seconds)}, {times(speed.factor)} less"
        verdict = Verdict.of(speed.factor >= experiment.public_factor)
        checks.append(Check("CPU time of computing", expected, measured, verdict))
    return FigureSummary(
        experiment=experiment.id,
        folder=result.folder,
        pictures=pictures,
        checks=checks,
        counts=dict(result.counts),
        cpu_seconds={**result.manifest["cpu_seconds"], "drawing": round(drawing, 4)},
        wall_seconds=result.manifest["wall_seconds"],
        speed=speed,
        notes=list(result.manifest["notes"]),
    )


def _speed(experiment: Experiment[Any], result: ExperimentResult) -> Speed | None:
    """Known only for the paper's configuration, whatever the seed, and on a CPU as the public code was."""
    paper = experiment.default.to_json() | {"seed": result.configuration["seed"]}
    if experiment.public_seconds is None or result.configuration != paper or result.manifest["device"] != "cpu":
        return None
    return Speed(result.cpu_seconds(experiment.public_tasks), experiment.public_seconds)


def verdict_line(summaries: Sequence[FigureSummary]) -> str:
    """How many checks hold, in a clause.

    >>> verdict_line([])
    'no checks'
    """
    verdicts = [check.verdict for each in summaries for check in each.checks]
    if not verdicts:
        return "no checks"
    held, failed, left = (verdicts.count(kind) for kind in (Verdict.HOLDS, Verdict.FAILS, Verdict.OPEN))
    parts = [f"{held} of {len(verdicts)} checks hold"]
    parts += [f"{failed} {'does' if failed == 1 else 'do'} not"] if failed else []
    parts += [f"{left} {'is' if left == 1 else 'are'} not judged"] if left else []
    return "; ".join(parts)


def seconds(value: float) -> str:
    """A time for a table.

    >>> seconds(0.012), seconds(1.234), seconds(190), seconds(34560)
    ('0.01 s', '1.23 s', '190 s', '9.6 h')
    """
    if value < 1000:
        return f"{value:.2f} s" if value < 10 else f"{value:.0f} s"
    return f"{value / 3600:.1f} h" if value >= 6000 else f"{value / 60:.0f} min"


def times(factor: float) -> str:
    """A factor for a table.

    >>> times(1.26), times(158.4), times(67890)
    ('1.3x', '158x', '67,890x')
    """
    return f"{factor:.1f}x" if factor < 10 else f"{factor:,.0f}x"
