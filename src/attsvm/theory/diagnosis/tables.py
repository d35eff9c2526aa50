"""Tables for a terminal: conditions, and what else is told of a training."""

from __future__ import annotations

import io
from collections.abc import Sequence

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch import Tensor

from attsvm.theory.conditions import Condition


def table(title: str, columns: Sequence[str], right: Sequence[str] = ()) -> Table:
    """A table without rows; the columns in `right` are aligned to the right."""
    made = Table(title=title, title_justify="left", box=None, pad_edge=False, title_style="bold")
    for name in columns:
        made.add_column(name, justify="right" if name in right else "left")
    return made


def printed(*tables: Table) -> str:
    """Tables as plain text, for `str()`."""
    stream = io.StringIO()
    console = Console(file=stream, width=118, highlight=False)
    for each in tables:
        console.print(each)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def median(values: Tensor, digits: int) -> str:
    """The median of the finite values, "-" where there are none."""
    known = values[torch.isfinite(values)]
    return f"{known.median().item():.{digits}g}" if known.numel() else "-"


def conditions_table(conditions: Sequence[Condition]) -> Table:
    """Each condition, whether and by how much it holds, and whose it is."""
    made = table("Conditions", ("condition", "holds", "by", "needed by"), right=("by",))
    for one in conditions:
        made.add_row(one.name, answer(one.holds, one.certain), median(one.margin, 3), escape(one.citation))
    return made


def answer(holds: Tensor, certain: Tensor) -> str:
    """ "yes", "no" or "not known"; over a batch how many hold, and of how many it is not known."""
    if holds.ndim == 0:
        words = ("yes", "no") if bool(certain) else ("not refuted", "not known")
        return words[0] if bool(holds) else words[1]
    unknown = int((~certain).sum())
    said = f"{int((holds & certain).sum())} of {holds.numel()}"
    return f"{said} ({unknown} not known)" if unknown else said
