"""A diagnosis as tables for a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch import Tensor

if TYPE_CHECKING:
    from attsvm.theory.diagnosis.diagnose import Diagnosis

_SHOWN = 20  # locally optimal selections of a data set


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


def tables_of(diagnosis: Diagnosis) -> str:
    """Conditions, results, predicted limits and, where they were asked for, all locally optimal selections."""
    text = printed(_conditions(diagnosis), _results(diagnosis), _limits(diagnosis))
    return text if diagnosis.local is None else "\n".join([text, *_local(diagnosis)])


def _conditions(diagnosis: Diagnosis) -> Table:
    made = table("Conditions", ("condition", "holds", "by", "needed by"), right=("by",))
    for one in diagnosis.conditions:
        made.add_row(one.name, _count(one.holds, one.certain), median(one.margin, 3), escape(one.citation))
    return made


def _results(diagnosis: Diagnosis) -> Table:
    made = table("\nResults", ("result", "applies", "source"))
    for one in diagnosis.results:
        made.add_row(one.statement, _count(one.applies), escape(one.citation))
    return made


def _limits(diagnosis: Diagnosis) -> Table:
    title = f"\nPredicted limits, {diagnosis.bias.norm.name} norm ({diagnosis.bias.standing.value})"
    made = table(title, ("limit", "selection", "separable", "attracts", "margin"), right=("margin",))
    for one in diagnosis.limits:
        selection = " ".join(map(str, one.selected.tolist())) if one.selected.ndim == 1 else "one for each data set"
        solution, separable = one.solution, one.solution.separable
        margin = torch.where(separable, 1 / solution.certificate.primal_value, torch.nan)
        attracts = _count(one.locally_optimal, solution.solved | solution.infeasible)
        made.add_row(one.name, selection, _count(separable, ~solution.undecided), attracts, median(margin, 3))
    made.caption, made.caption_justify = f"predicted by: {diagnosis.rule}", "left"
    return made


def _local(diagnosis: Diagnosis) -> Iterator[str]:
    local = diagnosis.local or ()
    yield from ("", "Locally optimal selections")
    for element, one in enumerate(local):
        label = f"data set {element}: " if len(local) > 1 else ""
        yield f"{label}{len(one)} ({'all of them' if one.exhaustive else 'a sample, those reached from many starts'})"
        for selection, size in zip(one.selections[:_SHOWN].tolist(), one.norms[:_SHOWN].tolist(), strict=True):
            yield f"  {' '.join(map(str, selection))}   margin {1 / size:.4g}" if size > 0 else f"  {selection}"


def _count(value: Tensor, certain: Tensor | None = None) -> str:
    """Yes, no, or how many; a "no" that is not `certain` is "not known"."""
    open_ends = torch.zeros_like(value) if certain is None else ~value & ~certain
    if value.ndim == 0:
        return "yes" if bool(value) else "not known" if bool(open_ends) else "no"
    unknown = int(open_ends.sum())
    return f"{int(value.sum())} of {value.numel()}" + (f", {unknown} not known" if unknown else "")
