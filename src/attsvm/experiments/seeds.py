"""One experiment with several seeds: in how many of them does each check hold?"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from attsvm.data.files import write_atomically
from attsvm.experiments.base import Check, Experiment, Verdict
from attsvm.sweep import Backend, SweepResult, check_folder, run
from attsvm.sweep.manifest import to_plain
from attsvm.sweep.runner import Progress
from attsvm.sweep.task import C, differences

FILE = "seeds.json"
# A sign belongs to a number unless a number or a word stands before it, as in "0-2".
_NUMBER = re.compile(
    r"(?:(?<![\w.)])[-+])?(?<![\w.])(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)(?:e[-+]?\d+)?"
)


def seed_folders(configuration: C, seeds: int, folder: Path | str) -> list[tuple[C, Path]]:
    """The configurations of `seeds` seeds, at least one, from that of `configuration` on, each with its folder."""
    if seeds < 1:
        raise ValueError(f"seeds must be a positive number of seeds; got {seeds}")
    wanted = range(configuration.seed, configuration.seed + seeds)
    return [(configuration.with_values(seed=seed), Path(folder) / f"seed-{seed}") for seed in wanted]


def is_seed_folder(folder: Path) -> bool:
    """Whether `folder` is named as the folder of one seed of several."""
    return re.fullmatch(r"seed-\d+", folder.name) is not None


@dataclass(frozen=True)
class Judged:
    """A stored result and what its checks say, without its tables."""

    experiment: str  # its id
    folder: Path
    configuration: Mapping[str, Any]  # as JSON holds it, the seed included
    checks: Sequence[Check]
    counts: Mapping[str, int]  # instances discarded or failed, by reason

    @property
    def seed(self) -> int:
        """Of all its random draws."""
        return int(self.configuration["seed"])

    @property
    def shared(self) -> dict[str, Any]:
        """Its configuration but the seed."""
        return {name: value for name, value in self.configuration.items() if name != "seed"}


@dataclass(frozen=True)
class SeedRow:
    """One check in every seed: what was measured and what it says, in the order of the seeds."""

    what: str
    expected: str
    why: str
    measured: Sequence[str]
    verdicts: Sequence[Verdict]  # not judged where a seed does not have this check
    fails_if: str = ""

    @staticmethod
    def of(checks: Sequence[Check | None]) -> SeedRow:
        """One check of each seed; None where a seed does not have it."""
        known = [check for check in checks if check is not None]
        return SeedRow(
            known[0].what, known[0].expected, next((check.why for check in known if check.why), ""),
            ["no such check" if check is None else check.measured for check in checks],
            [Verdict.OPEN if check is None else check.verdict for check in checks], known[0].fails_if,
        )  # fmt: skip

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
        ends = [(ordered[0], ordered[-1]) for ordered in (sorted(place, key=_value) for place in places)]
        if len(ends) > 2 and not _NUMBER.sub("", self.measured[0]).strip(", "):  # a list of numbers and nothing else
            least, largest = (self._filled(numbers) for numbers in zip(*ends, strict=True))
            return least if least == largest else f"{least} to {largest}"
        return self._filled([one if _value(one) == _value(two) else f"{one} to {two}" for one, two in ends])

    def _filled(self, numbers: Iterable[str]) -> str:
        """What was measured in the first seed, with other numbers."""
        rest = iter(numbers)
        return _NUMBER.sub(lambda _: next(rest), self.measured[0])

    def to_json(self) -> dict[str, Any]:
        """As JSON holds it, with the numbers of every measured text and the counts."""
        counts = {verdict.value: self.count(verdict) for verdict in Verdict if self.count(verdict)}
        numbers = [[_value(number) for number in _NUMBER.findall(text)] for text in self.measured]
        return to_plain(self) | {"range": self.range, "counts": counts, "numbers": numbers}


def _value(number: str) -> float:
    return float(number.replace(",", ""))


@dataclass(frozen=True)
class AcrossSeeds:
    """What the checks of one experiment say in several seeds."""

    experiment: str  # its id
    seeds: Sequence[int]  # in ascending order
    configuration: Mapping[str, Any]  # what all seeds share: every field but the seed
    rows: Sequence[SeedRow]  # one for each check
    counts: Mapping[str, Sequence[int]]  # instances discarded or failed, by reason, by seed

    @staticmethod
    def of(judged: Sequence[Judged]) -> AcrossSeeds:
        """Put the checks of results side by side; a ValueError if they differ in more than seeds, or there is none."""
        if not judged:
            raise ValueError("there is no result to put side by side; compute some seeds first")
        first, *others = ordered = sorted(judged, key=lambda each: each.seed)
        for each in others:
            told = [{"experiment": one.experiment, **one.shared} for one in (first, each)]
            if told[0] != told[1]:
                raise ValueError(
                    f"{each.folder} differs from {first.folder} in more than its seed ({differences(*told)}); compute"
                    " one of them again"
                )
        known = [{check.what: check for check in each.checks} for each in ordered]
        names = dict.fromkeys(what for checks in known for what in checks)
        reasons = dict.fromkeys(reason for each in ordered for reason in each.counts)
        return AcrossSeeds(
            experiment=first.experiment,
            seeds=[each.seed for each in ordered],
            configuration=first.shared,
            rows=[SeedRow.of([checks.get(what) for checks in known]) for what in names],
            counts={reason: [each.counts.get(reason, 0) for each in ordered] for reason in reasons},
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON holds it."""
        told = {name: to_plain(value) for name, value in vars(self).items() if name != "rows"}
        return told | {"checks": [row.to_json() for row in self.rows]}

    def save(self, folder: Path) -> Path:
        """Write it to FOLDER/seeds.json, small enough to be committed."""
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
        configuration: by default the experiment's own; its seed is the first one, the others follow.
        folder, backend, resume, overwrite, device, progress, say: as for `run`; with `resume`, finished seeds are kept.

    A `ValueError` where `run` has one, before anything is computed, and if `seeds` is not positive.
    """
    planned = seed_folders(configuration or experiment.default, seeds, folder)
    where: dict[str, Any] = {"resume": resume, "overwrite": overwrite, "device": device}
    for each, path in planned:
        check_folder(experiment, each, folder=path, **where)
    judged: list[Judged] = []
    for each, path in planned:
        found = run(experiment, each, folder=path, backend=backend, progress=progress, say=say, **where)
        judged.append(judge(experiment, found))
        AcrossSeeds.of(judged).save(Path(folder))
    return AcrossSeeds.of(judged)


def judge(experiment: Experiment[Any], result: SweepResult) -> Judged:
    """What the checks of `experiment` say about a stored result of it."""
    return Judged(result.id, result.folder, result.configuration, experiment.checks(result), result.counts)
