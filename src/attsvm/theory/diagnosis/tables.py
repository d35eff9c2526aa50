"""A diagnosis as tables for a terminal."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from attsvm.theory.conditions import Condition

if TYPE_CHECKING:
    from attsvm.theory.diagnosis.diagnose import Diagnosis, Result


def printed(*tables: Table) -> str:
    """Tables as plain text, for `str()`."""
    stream = io.StringIO()
    console = Console(file=stream, width=118, highlight=False)
    for table in tables:
        console.print(table)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def tables_of(diagnosis: Diagnosis) -> str:
    """Conditions, results and predicted limits."""
    return printed(_conditions_table(diagnosis.conditions), _results_table(diagnosis.results), _limits_table(diagnosis))


def _conditions_table(conditions: tuple[Condition, ...]) -> Table:
    table = Table(title="Conditions", title_justify="left", box=None, pad_edge=False, title_style="bold")
    for column, side in (("condition", "left"), ("holds", "left"), ("by", "right"), ("needed by", "left")):
        table.add_column(column, justify=side)  # type: ignore[arg-type]
    for one in conditions:
        table.add_row(one.name, _holds(one.holds), _middle(one.margin), one.citation.replace("[", r"\["))
    return table


def _results_table(results: tuple[Result, ...]) -> Table:
    table = Table(title="\nResults", title_justify="left", box=None, pad_edge=False, title_style="bold")
    for column in ("result", "applies", "source"):
        table.add_column(column)
    for one in results:
        table.add_row(one.statement, _holds(one.applies), one.citation.replace("[", r"\["))
    return table


def _limits_table(diagnosis: Diagnosis) -> Table:
    title = f"\nPredicted limits, {diagnosis.bias.norm.name} norm ({diagnosis.bias.standing.value})"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, title_style="bold")
    for column, side in (
        ("limit", "left"),
        ("selection", "left"),
        ("separable", "left"),
        ("attracts", "left"),
        ("margin", "right"),
    ):
        table.add_column(column, justify=side)  # type: ignore[arg-type]
    for one in diagnosis.limits:
        shown = (
            " ".join(str(token) for token in one.selected.tolist())
            if one.selected.ndim == 1
            else "one for each data set"
        )
        margin = torch.where(one.solution.solved, 1 / one.solution.certificate.primal_value, torch.nan)
        table.add_row(one.name, shown, _holds(one.solution.solved), _holds(one.locally_optimal), _middle(margin))
    rule = diagnosis.rule
    table.caption = f"predicted by: {rule}"
    table.caption_justify = "left"
    return table


def _holds(value: Tensor) -> str:
    if value.ndim == 0:
        return "yes" if bool(value) else "no"
    return f"{int(value.sum())} of {value.numel()}"


def _middle(value: Tensor) -> str:
    known = value[torch.isfinite(value)] if value.ndim else value.reshape(1)[torch.isfinite(value.reshape(1))]
    return f"{known.median().item():.3g}" if known.numel() else "-"
