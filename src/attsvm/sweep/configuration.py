"""What a sweep computes: plain values, checked when they are set, and told apart by a hash."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from attsvm import __version__
from attsvm.data.checks import check_count

_KINDS: Mapping[str, tuple[type, str]] = {
    "int": (numbers.Integral, "an integer"),
    "float": (numbers.Real, "a number"),
    "str": (str, "a string"),
}


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """Base of every sweep's configuration: a frozen dataclass of numbers, strings and tuples of them.

    A subclass gives every field a default and may override `quick`. If the number of data sets (or draws) is a field,
    `runs_field` names it, so that `with_runs` can change it. Chunk sizes are fields like all others: a result never
    depends on how many processes computed it.

    Raises:
        ValueError: if a field is not of its kind, the seed is negative, or the number of data sets is not positive.
    """

    seed: int = 0

    runs_field: ClassVar[str | None] = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _check_kind(field.name, str(getattr(field.type, "__name__", field.type)), getattr(self, field.name))
        check_count(self.seed, "seed", 0)
        if self.runs_field is not None:
            check_count(getattr(self, self.runs_field), self.runs_field)

    def quick(self) -> Self:
        """A smaller version that shows the same in a few seconds; itself where it is quick already."""
        return self

    def with_runs(self, runs: int) -> Self:
        """A copy with this number of data sets; a ValueError if it is not positive, or there is none to change."""
        check_count(runs, "runs")
        if self.runs_field is None:
            raise ValueError(f"runs does not apply: {type(self).__name__} has no number of data sets")
        return self.with_values(**{self.runs_field: runs})

    def with_values(self, **values: Any) -> Self:
        """A copy with these fields changed, checked anew; a ValueError if there is no such field."""
        names = [field.name for field in dataclasses.fields(self)]
        unknown = [name for name in values if name not in names]
        if unknown:
            raise ValueError(f"{type(self).__name__} has no field {unknown[0]!r}; it has {', '.join(names)}")
        return dataclasses.replace(self, **values)

    def to_json(self) -> dict[str, Any]:
        """All fields, as JSON can hold them; a ValueError if a number is not finite."""
        try:
            plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self), allow_nan=False))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{type(self).__name__} must hold finite numbers, strings and tuples of them ({error})"
            ) from None
        return plain

    def fingerprint(self, sweep: str, device: str) -> str:
        """A hash that tells results apart: id of the sweep, every field, version of attsvm, kind of device."""
        # The first key keeps the name it had when only experiments were sweeps: stored chunks carry this hash.
        content = {"experiment": sweep, "device": device, "attsvm": __version__, "configuration": self.to_json()}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Which fields differ, in words: ``steps 2000 instead of 500``.

    >>> differences({"steps": 500, "seed": 0}, {"steps": 2000, "seed": 0})
    'steps 2000 instead of 500'
    """
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return ", ".join(f"{name} {after.get(name)} instead of {before.get(name)}" for name in names)


def _check_kind(name: str, kind: str, value: object) -> None:
    """Check a field that is declared int, float, str or a tuple of these; the subclass checks other declarations."""
    inner = kind.removeprefix("tuple[").removesuffix(", ...]")
    if inner != kind and inner in _KINDS:
        if not isinstance(value, tuple) or not value:
            raise ValueError(f"{name} must be a tuple with something in it; got {value!r}")
        for part in value:
            _check_kind(f"every part of {name}", inner, part)
    elif kind in _KINDS:
        expected, words = _KINDS[kind]
        if not isinstance(value, expected) or isinstance(value, bool):
            raise ValueError(f"{name} must be {words}; got {value!r}")
