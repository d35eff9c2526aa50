"""One experiment with several seeds: in how many of them does each check hold?

Every seed has a folder of its own, ``seed-N``, which `run` computes and resumes like any other. What the checks say is
put side by side and stored as ``seeds.json``, small enough to be committed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from attsvm.data.files import write_atomically
from attsvm.experiments.base import Experiment
from attsvm.experiments.checks import Check, Verdict
from attsvm.sweep.backends import Backend
from attsvm.sweep.configuration import Configuration, differences
from attsvm.sweep.result import SweepResult
from attsvm.sweep.runner import Progress, check_folder, run

C = TypeVar("C", bound=Configuration)

FILE = "seeds.json"
_FOLDER = re.compile(r"seed-(\d+)")
# A sign belongs to a number unless a number or a word stands before it, as in "0-2".
_NUMBER = re.compile(
    r"(?:(?<![\w.)])[-+])?(?<![\w.])(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)(?:e[-+]?\d+)?"
)


def seed_folders(configuration: C, seeds: int, folder: Path | str) -> list[tuple[C, Path]]:
    """The configurations of `seeds` seeds, from that of `configuration` on, each with its folder ``seed-N``.

    Raises:
        ValueError: if `seeds` is not positive.
    """
    if seeds < 1:
        raise ValueError(f"seeds must be a positive number of seeds; got {seeds}")
    wanted = range(configuration.seed, configuration.seed + seeds)
    return [(configuration.with_values(seed=seed), Path(folder) / f"seed-{seed}") for seed in wanted]


def is_seed_folder(folder: Path) -> bool:
    """Whether `folder` is named as the folder of one seed of several."""
    return _FOLDER.fullmatch(folder.name) is not None


@dataclass(frozen=True)
class Judged:
    """A stored result and what its checks say, without its tables.

    Arguments:
        experiment: its id.
        folder: where the result is.
        configuration: as JSON holds it, the seed included.
        checks: expected against measured.
        counts: instances discarded or failed, by reason.
    """

    experiment: str
    folder: Path
    configuration: Mapping[str, Any]
    checks: Sequence[Check]
    counts: Mapping[str, int]

    @property
    def seed(self) -> int:
        """Of all its random draws."""
        return int(self.configuration["seed"])

    @property
    def shared(self) -> dict[str, Any]:
        """What results that differ in nothing but their seeds share."""
        rest = {name: value for name, value in self.configuration.items() if name != "seed"}
        return {"experiment": self.experiment, **rest}


@dataclass(frozen=True)
class SeedRow:
    """One check in every seed: what was measured and what it says, in the order of the seeds."""

    what: str
    expected: str
    why: str
    measured: Sequence[str]
    verdicts: Sequence[Verdict]  # not judged where a seed does not have this check
    fails_if: str = ""

    def count(self, verdict: Verdict) -> int:
        """In how many seeds the check says so."""
        return list(self.verdicts).count(verdict)

    @property
    def range(self) -> str:
        """What was measured in all seeds, as one text in which numbers that differ are ranges.

        A mere list of numbers becomes two, of the least and of the largest. Texts that differ in more than their
        numbers cannot be joined: then it is the first one, said to be of one seed.

        >>> SeedRow("a", "b", "", ["least .93 of 7", "least .91 of 7"], [Verdict.HOLDS] * 2).range
        'least .91 to .93 of 7'
        """
        if len({_NUMBER.sub("#", text) for text in self.measured}) > 1:
            return f"first seed: {self.measured[0]}"
        places = zip(*(_NUMBER.findall(text) for text in self.measured), strict=True)
        ordered = [sorted(place, key=_value) for place in places]
        if len(ordered) > 2 and not _NUMBER.sub("", self.measured[0]).strip(", "):  # a list of numbers and nothing else
            ends = [_filled(self.measured[0], [place[end] for place in ordered]) for end in (0, -1)]
            return ends[0] if ends[0] == ends[1] else " to ".join(ends)
        return _filled(self.measured[0], [_range(place) for place in ordered])

    def to_json(self) -> dict[str, Any]:
        """As JSON holds it, with the numbers of every measured text and the counts."""
        return {
            "what": self.what,
            "expected": self.expected,
            "fails_if": self.fails_if,
            "why": self.why,
            "range": self.range,
            "counts": {verdict.value: self.count(verdict) for verdict in Verdict if self.count(verdict)},
            "verdicts": [verdict.value for verdict in self.verdicts],
            "measured": list(self.measured),
            "numbers": [[_value(number) for number in _NUMBER.findall(text)] for text in self.measured],
        }


@dataclass(frozen=True)
class AcrossSeeds:
    """What the checks of one experiment say in several seeds.

    Arguments:
        experiment: its id.
        seeds: in ascending order.
        configuration: what all seeds share: every field but the seed.
        rows: one for each check.
        counts: instances discarded or failed, by reason, by seed.
    """

    experiment: str
    seeds: Sequence[int]
    configuration: Mapping[str, Any]
    rows: Sequence[SeedRow]
    counts: Mapping[str, Sequence[int]]

    @staticmethod
    def of(judged: Sequence[Judged]) -> AcrossSeeds:
        """Put the checks of results that differ in nothing but their seeds side by side.

        Raises:
            ValueError: if there is none, or they differ in more.
        """
        if not judged:
            raise ValueError("there is no result to put side by side; compute some seeds first")
        ordered = sorted(judged, key=lambda each: each.seed)
        first = ordered[0]
        for each in ordered[1:]:
            if each.shared != first.shared:
                raise ValueError(
                    f"{each.folder} differs from {first.folder} in more than its seed"
                    f" ({differences(first.shared, each.shared)}); compute one of them again"
                )
        known = [{check.what: check for check in each.checks} for each in ordered]
        names = dict.fromkeys(what for checks in known for what in checks)
        reasons = dict.fromkeys(reason for each in ordered for reason in each.counts)
        return AcrossSeeds(
            experiment=first.experiment,
            seeds=[each.seed for each in ordered],
            configuration={name: value for name, value in first.configuration.items() if name != "seed"},
            rows=[_row(what, [checks.get(what) for checks in known]) for what in names],
            counts={reason: [each.counts.get(reason, 0) for each in ordered] for reason in reasons},
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {
            "experiment": self.experiment,
            "seeds": list(self.seeds),
            "configuration": dict(self.configuration),
            "checks": [row.to_json() for row in self.rows],
            "counts": {reason: list(counts) for reason, counts in self.counts.items()},
        }

    def save(self, folder: Path) -> Path:
        """Write it to FOLDER/seeds.json."""
        text = json.dumps(self.to_json(), indent=1, allow_nan=False, ensure_ascii=False) + "\n"
        return write_atomically(folder / FILE, text.encode())


def run_seeds(
    experiment: Experiment[C],
    configuration: C | None = None,
    *,
    seeds: int,
    folder: Path | str,
    backend: Backend | None = None,
    resume: bool = False,
    overwrite: bool = False,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> AcrossSeeds:
    """Compute an experiment with several seeds, each into a folder ``seed-N`` of `folder`, and judge all of them.

    ``folder/seeds.json`` holds the answer, of the seeds finished so far while others are still computed.

    Arguments:
        experiment: such as one of `EXPERIMENTS`.
        configuration: by default the experiment's own; its seed is the first one, the others follow.
        seeds: how many.
        folder, backend, resume, overwrite, device, progress, say: as for `run`; with `resume`, finished seeds are kept.

    Returns:
        In which seeds each check holds.

    Raises:
        ValueError: as `run` does, before anything is computed, and if `seeds` is not positive.
    """
    planned = seed_folders(configuration or experiment.default, seeds, folder)
    for each, path in planned:
        check_folder(experiment, each, folder=path, resume=resume, overwrite=overwrite, device=device)
    judged: list[Judged] = []
    for each, path in planned:
        result = run(
            experiment, each, folder=path, backend=backend, resume=resume, overwrite=overwrite, device=device,
            progress=progress, say=say,
        )  # fmt: skip
        judged.append(judge(experiment, result))
        AcrossSeeds.of(judged).save(Path(folder))
    return AcrossSeeds.of(judged)


def judge(experiment: Experiment[Any], result: SweepResult) -> Judged:
    """What the checks of `experiment` say about a stored result of it."""
    return Judged(result.id, result.folder, result.configuration, experiment.checks(result), result.counts)


def _row(what: str, checks: Sequence[Check | None]) -> SeedRow:
    known = [check for check in checks if check is not None]
    return SeedRow(
        what=what,
        expected=known[0].expected,
        why=next((check.why for check in known if check.why), ""),
        measured=["no such check" if check is None else check.measured for check in checks],
        verdicts=[Verdict.OPEN if check is None else check.verdict for check in checks],
        fails_if=known[0].fails_if,
    )


def _value(number: str) -> float:
    return float(number.replace(",", ""))


def _filled(text: str, numbers: Sequence[str]) -> str:
    """`text` with other numbers."""
    rest = iter(numbers)
    return _NUMBER.sub(lambda _: next(rest), text)


def _range(ordered: Sequence[str]) -> str:
    least, largest = ordered[0], ordered[-1]
    return least if _value(least) == _value(largest) else f"{least} to {largest}"
