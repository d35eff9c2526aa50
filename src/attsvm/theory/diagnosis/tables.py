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

from attsvm.theory.diagnosis.implicit_bias import Standing

if TYPE_CHECKING:
    from attsvm.theory.conditions import Condition
    from attsvm.theory.diagnosis.diagnose import Diagnosis
    from attsvm.theory.diagnosis.theorems import Result
    from attsvm.theory.enumeration import LocalOptima

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
    """Conditions, results, conjectures, predicted limits and, where asked for, all locally optimal selections."""
    tables = [conditions_table(diagnosis.conditions), _results("\nResults", diagnosis.results)]
    if diagnosis.conjectures:
        tables.append(_results("\nConjectures, none of them proved", diagnosis.conjectures))
    parts = [printed(*tables, _limits(diagnosis))]
    if diagnosis.start is not None:
        parts.append(str(diagnosis.start))
    return "\n".join([*parts, *(_local(diagnosis.local) if diagnosis.local is not None else ())])


def conditions_table(conditions: Sequence[Condition]) -> Table:
    """Each condition, whether and by how much it holds, and whose it is."""
    made = table("Conditions", ("condition", "holds", "by", "needed by"), right=("by",))
    for one in conditions:
        made.add_row(one.name, answer(one.holds, one.certain), median(one.margin, 3), escape(one.citation))
    return made


def _results(title: str, results: Sequence[Result]) -> Table:
    made = table(title, ("result", "applies", "not proved here", "source"))
    for one in results:
        missing = ", ".join(one.missing) or "-"
        made.add_row(one.statement, answer(one.applies, one.applies | one.fails), missing, escape(one.citation))
    return made


def _limits(diagnosis: Diagnosis) -> Table:
    conjectured = " (conjectured)" if diagnosis.bias.standing is Standing.CONJECTURED else ""
    title = f"\nPredicted limits, {diagnosis.bias.norm.name} norm{conjectured}"
    made = table(title, ("limit", "selection", "separable", "attracts", "margin"), right=("margin",))
    for one in diagnosis.limits:
        selection = " ".join(map(str, one.selected.tolist())) if one.selected.ndim == 1 else "one for each data set"
        solution = one.solution
        separable = answer(solution.separable, ~solution.undecided)
        attracts = answer(one.locally_optimal, solution.solved | solution.infeasible)
        margin = torch.where(solution.solved, 1 / solution.certificate.primal_value, torch.nan)
        made.add_row(one.name, selection, separable, attracts, median(margin, 3))
    standing = diagnosis.standing
    founded = f"the selection is {standing[0].value}"
    if len(standing) > 1:
        counted = (f"{kind.value} ({standing.count(kind)})" for kind in dict.fromkeys(standing))
        founded = f"the selections are {', '.join(counted)}"
    measured = diagnosis.accuracy or "no accuracy was measured for this kind of problem"
    made.caption, made.caption_justify = f"{founded}; predictions are made by: {diagnosis.rule}; {measured}", "left"
    return made


def _local(local: tuple[LocalOptima, ...]) -> Iterator[str]:
    yield from ("", "Locally optimal selections")
    for element, one in enumerate(local):
        label = f"data set {element}: " if len(local) > 1 else ""
        yield f"{label}{len(one)} ({'all of them' if one.exhaustive else 'a sample, those reached from many starts'})"
        for selection, size in zip(one.selections[:_SHOWN].tolist(), one.norms[:_SHOWN].tolist(), strict=True):
            yield f"  {' '.join(map(str, selection))}   margin {1 / size:.4g}" if size > 0 else f"  {selection}"


def answer(holds: Tensor, certain: Tensor) -> str:
    """ "yes", "no" or "not known"; over a batch how many hold, and of how many it is not known."""
    if holds.ndim == 0:
        words = ("yes", "no") if bool(certain) else ("not refuted", "not known")
        return words[0] if bool(holds) else words[1]
    unknown = int((~certain).sum())
    said = f"{int((holds & certain).sum())} of {holds.numel()}"
    return f"{said} ({unknown} not known)" if unknown else said
