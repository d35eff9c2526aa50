"""The analysis of a model: a table, heads by name, verdicts, files."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from attsvm.data.files import write_atomically
from attsvm.heads.model import counted
from attsvm.heads.report.html.page import page, rendered
from attsvm.heads.report.records import HeadReport, Interval, Settings
from attsvm.heads.report.table import CLEAR, COLUMNS, NEEDED, HeadTable, Verdict, verdicts
from attsvm.sweep.manifest import to_plain


@dataclass(frozen=True, repr=False)
class HeadsReport:
    """What `analyze` found; ``report["L3H7"]`` is one head."""

    model: str
    architecture: str
    layers: int
    heads_per_layer: int
    width: int
    notes: tuple[str, ...]  #: what a reader should know, one sentence each
    sentences: int
    tokens: int  #: in all sentences that the model was run on
    settings: Settings  #: what was asked for
    heads: tuple[HeadReport, ...]  #: sorted by selectivity, the share of confident queries
    seconds: float  #: wall time of this call; heads from a cache cost nothing
    memory: int  #: bytes of hidden states of a layer and of the largest problem

    @cached_property
    def table(self) -> HeadTable:
        """A plain row for each head, sorted by selectivity; prints as a table."""
        rows = ({each.key: each.value(head) for each in COLUMNS} | {"outcome": head.outcome} for head in self.heads)
        return HeadTable(rows)

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Whether trained heads are closer to max-margin than each control, one sentence each (``str``)."""
        return verdicts(self.heads)

    @property
    def findings(self) -> list[str]:
        """The sentences of the verdicts, and one for all those that so few heads leave open."""
        left = [verdict.heads for verdict in self.verdicts if verdict.tone == "open"]
        some = f"{len(left)} of {len(self.verdicts)} comparisons with controls and rules are open: a sign test needs"
        some += f" {NEEDED} heads to find a difference (p < {CLEAR:g}), and these have {max(left, default=0)} at most."
        return [*(str(verdict) for verdict in self.verdicts if verdict.tone != "open"), *([some] if left else [])]

    @property
    def counts(self) -> str:
        """How many heads there are, and how many are solved to which accuracy."""
        solved = len(self.heads) - len(self.unsolved)
        return f"{counted(len(self), 'head')}, {solved} solved to a certified gap of {self.settings.accuracy:g}"

    @property
    def unsolved(self) -> tuple[HeadReport, ...]:
        """Heads without a certified solution in every norm, for whatever reason; each says so in `outcome`."""
        return tuple(head for head in self.heads if head.outcome != "solved")

    @property
    def outcomes(self) -> dict[str, list[str]]:
        """The sentence on each way in which heads have no certified solution, and the names of those heads."""
        different = dict.fromkeys(head.outcome for head in self.unsolved)
        return {outcome: [head.name for head in self.unsolved if head.outcome == outcome] for outcome in different}

    @property
    def warnings(self) -> tuple[str, ...]:
        """The notes without which nothing here should be read; they stand on top."""
        return tuple(note for note in self.notes if note.startswith("WARNING"))

    def __getitem__(self, name: str) -> HeadReport:
        if name not in (found := {head.name: head for head in self.heads}):
            some = f": {', '.join(list(found)[:4])}, ..." if found else ""
            raise KeyError(f"no head {name!r} was analysed; there are {len(self)}{some}")
        return found[name]

    def __iter__(self) -> Iterator[HeadReport]:
        return iter(self.heads)

    def __len__(self) -> int:
        return len(self.heads)

    def to_json(self) -> dict[str, Any]:
        """Everything as plain dictionaries, lists and numbers; what does not exist is None."""
        plain = {field.name: to_plain(getattr(self, field.name)) for field in fields(self) if field.name != "heads"}
        plain["settings"]["norms"] = [norm.name for norm in self.settings.norms]
        return plain | {
            "verdicts": [to_plain(verdict) | {"sentence": str(verdict)} for verdict in self.verdicts],
            "table": to_plain(list(self.table)),
            "heads": [{"name": head.name, **to_plain(head)} for head in self.heads],
        }

    def save_json(self, path: str | os.PathLike[str]) -> Path:
        """Write `to_json` to a file."""
        return write_atomically(Path(path), (json.dumps(self.to_json(), allow_nan=False) + "\n").encode())

    def save_html(self, path: str | os.PathLike[str]) -> Path:
        """Write one self-contained page that opens from disk."""
        return write_atomically(Path(path), page(self).encode())

    def _repr_html_(self) -> str:
        return rendered("fragment.html", self)

    def __str__(self) -> str:
        lines = [*self.warnings, repr(self), str(self.table), *(f"- {each}" for each in self.findings)]
        return "\n".join([*lines, *(f"- Note: {note}." for note in self.notes)])

    def __repr__(self) -> str:
        middle = Interval.of(head.efficiency.smallest for head in self.heads).median
        shown = "" if math.isnan(middle) else f", median efficiency {middle:.3g}"
        return f"HeadsReport({self.model}, {self.counts}{shown})"
