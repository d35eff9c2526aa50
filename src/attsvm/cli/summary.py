"""What a finished run is worth, in a few numbers: for the table, for JSON, and for history.csv."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import torch
import typer
from torch import Tensor

from attsvm.attention import LinearHead, optimal_token_set
from attsvm.cli.report import number, print_table
from attsvm.data import TokenDataset
from attsvm.data.files import write_atomically
from attsvm.descent import Run


def summary(data: TokenDataset, head: LinearHead | None, run: Run, *, train_head: bool) -> dict[str, Any]:
    """Risk, norm, attention and selections, JSON-able; over many runs as median, lowest and highest."""
    optimal = _optimal_sets(data, head, run, train_head)
    right = optimal.gather(-1, run.selected.unsqueeze(-1)).squeeze(-1)
    chosen = run.attention.gather(-1, run.selected.unsqueeze(-1)).squeeze(-1)
    return {
        "runs": run.risk.numel(),
        "steps": run.step,
        "risk": _spread(run.risk),
        "norm": _spread(run.norm),
        "least_attention_on_selected": _spread(chosen.amin(-1)),
        "share_of_runs_with_optimal_selection": float(right.all(-1).double().mean()),
        "share_of_inputs_with_optimal_selection": float(right.double().mean()),
        "selected": run.selected.tolist() if run.risk.numel() <= 8 else None,
        "notes": run.notes,
    }


def print_summary(result: dict[str, Any], folder: Path, *, quiet: bool) -> None:
    """The summary as a table, or, if `quiet`, in one line."""
    share, several = result["share_of_runs_with_optimal_selection"], result["runs"] > 1
    title = f"{result['runs']} run{'s' if several else ''}, {result['steps']} steps"
    if quiet:
        risk, norm = (number(result[name]["median"]) for name in ("risk", "norm"))
        typer.echo(f"{title}: risk {risk}, norm {norm} (medians), optimal selection in {share:.1%}; in {folder}")
        return
    names = {
        "risk": "Risk",
        "norm": "Norm of W",
        "least_attention_on_selected": "Least attention on a selected token",
    }
    kinds = ("median", "lowest", "highest") if several else ("median",)
    columns = [("", "left"), *((kind.capitalize() if several else "Value", "right") for kind in kinds)]
    rows = [[label, *(number(result[name][kind]) for kind in kinds)] for name, label in names.items()]
    print_table(title, columns, rows)
    typer.echo(f"Optimal token selected in every input: {share:.1%} of runs.")
    typer.echo(f"Optimal token selected: {result['share_of_inputs_with_optimal_selection']:.1%} of inputs.")
    for note in result["notes"]:
        typer.echo(note)
    typer.echo(f"The run, its history and its manifest are in {folder}")


def write_history(path: Path, run: Run) -> None:
    """A row for each recorded step: median, lowest and highest of risk, norm and least attention on a winner."""
    history = run.history
    least = None if history.attention is None else history.attention.amax(-1).amin(-1)
    kept = {"risk": history.risk, "norm": history.norm, "least_attention_on_selected": least}
    columns: list[tuple[str, list[float]]] = []
    for name, value in kept.items():
        if value is not None:
            rows = [_spread(row) for row in value]
            columns += [(f"{name}_{kind}", [row[kind] for row in rows]) for kind in ("median", "lowest", "highest")]
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["step", *(name for name, _ in columns)])
    for place, step in enumerate(history.step.tolist()):
        writer.writerow([step, *(repr(values[place]) for _, values in columns)])
    write_atomically(path, text.getvalue().encode())


def _optimal_sets(data: TokenDataset, head: LinearHead | None, run: Run, train_head: bool) -> Tensor:
    """Masks of the optimal tokens of every run, ``[*starts, *batch, n, T]``; a trained head scores as it ended."""
    if not train_head:
        return optimal_token_set(data, head).expand_as(run.attention)
    vectors = run.parameters["head"]
    several = run.risk.ndim > len(data.batch_shape)
    each = vectors if several else vectors.unsqueeze(0)
    masks = torch.stack([optimal_token_set(data, LinearHead(vector)) for vector in each])
    return masks if several else masks[0]


def _spread(values: Tensor) -> dict[str, float]:
    flat = values.flatten()
    return {"median": float(flat.median()), "lowest": float(flat.min()), "highest": float(flat.max())}
