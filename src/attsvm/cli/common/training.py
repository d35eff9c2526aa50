"""Training as `attsvm train` does it: what must not change, long runs with checkpoints, and what a run comes to."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import attsvm
from attsvm.cli.common.files import write_text
from attsvm.cli.common.report import SPREAD, number, plural, print_table, spread, spread_columns

if TYPE_CHECKING:
    from torch import Tensor


def settings_of(task: Mapping[str, Any], record: int) -> dict[str, Any]:
    """What must stay the same for a run to be resumed besides data and head; `task` holds the arguments of `fit`."""
    from attsvm.descent.fingerprint import start_digest

    initial = task["initial"]
    return {
        **{name: repr(task[name]) for name in ("parameterization", "optimizer", "loss", "stop")},
        "initial": start_digest(initial) if isinstance(initial, Mapping) else initial,
        **{name: task[name] for name in ("starts", "train_head", "batch_size", "seed")},
        "record": record,
        "keep": list(task["keep"]),
    }


def in_stretches(
    advance: Callable[[int, attsvm.Run | None], attsvm.Run],
    begun: attsvm.Run | None,
    save: Callable[[attsvm.Run], None],
    *,
    steps: int,
    record: int,
    seconds: float,
) -> attsvm.Run:
    """A long run in stretches, with a checkpoint after each, so that a run that was killed can go on.

    Calls ``advance(up to this step, so far)`` and `save` until the last step, or until no element goes on. Stretches
    end at multiples of `record`, where an uninterrupted run records as well, so that a run in stretches is the same
    run, bit for bit. One takes about `seconds`; 0 saves at every record.
    """
    run, length = begun, record
    done = 0 if run is None else run.step
    while True:
        target = min(steps, (done + length) // record * record)
        target = steps if target <= done else target
        began = time.perf_counter()
        run = advance(target, run)
        walked = time.perf_counter()
        save(run)
        if run.step < target or target == steps:
            return run
        if seconds > 0:  # saving takes at most a twentieth of the time
            period = max(seconds, 20 * (time.perf_counter() - walked))
            rate = (target - done) / max(walked - began, 1e-9)
            length = max(record, int(min(rate * period, steps)))
        done = target


def summary(
    data: attsvm.TokenDataset, head: attsvm.LinearHead | None, run: attsvm.Run, *, train_head: bool
) -> dict[str, Any]:
    """Risk, norm, attention and selections, JSON-able; over many runs as median, lowest and highest."""
    optimal = _optimal_sets(data, head, run, train_head)
    right = optimal.gather(-1, run.selected.unsqueeze(-1)).squeeze(-1)
    chosen = run.attention.gather(-1, run.selected.unsqueeze(-1)).squeeze(-1)
    return {
        "runs": run.risk.numel(),
        "steps": run.step,
        "risk": spread(run.risk),
        "norm": spread(run.norm),
        "least_attention_on_selected": spread(chosen.amin(-1)),
        "share_of_runs_with_optimal_selection": float(right.all(-1).double().mean()),
        "share_of_inputs_with_optimal_selection": float(right.double().mean()),
        "selected": run.selected.tolist() if run.risk.numel() <= 8 else None,
        "notes": run.notes,
    }


def print_summary(result: dict[str, Any], folder: Path, *, quiet: bool) -> None:
    """The summary as a table, or, if `quiet`, in one line."""
    share = result["share_of_runs_with_optimal_selection"]
    title = f"{plural(result['runs'], 'run')}, {result['steps']} steps"
    if quiet:
        risk, norm = (number(result[name]["median"]) for name in ("risk", "norm"))
        typer.echo(f"{title}: risk {risk}, norm {norm} (medians), optimal selection in {share:.1%}; in {folder}")
        return
    names = {"risk": "Risk", "norm": "Norm of W", "least_attention_on_selected": "Least attention on a selected token"}
    kinds, columns = spread_columns(result["runs"] > 1)
    rows = [[label, *(number(result[name][kind]) for kind in kinds)] for name, label in names.items()]
    print_table(title, columns, rows)
    typer.echo(f"Optimal token selected in every input: {share:.1%} of runs.")
    typer.echo(f"Optimal token selected: {result['share_of_inputs_with_optimal_selection']:.1%} of inputs.")
    for note in result["notes"]:
        typer.echo(note)
    typer.echo(f"The run, its history and its manifest are in {folder}")


def write_history(path: Path, run: attsvm.Run) -> None:
    """A row for each recorded step: median, lowest and highest of risk, norm and least attention on a winner."""
    history = run.history
    least = None if history.attention is None else history.attention.amax(-1).amin(-1)
    kept = {"risk": history.risk, "norm": history.norm, "least_attention_on_selected": least}
    there = {name: value for name, value in kept.items() if value is not None}
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["step", *(f"{name}_{kind}" for name in there for kind in SPREAD)])
    for place, step in enumerate(history.step.tolist()):
        writer.writerow([step, *(repr(each) for value in there.values() for each in spread(value[place]).values())])
    write_text(path, text.getvalue())


def _optimal_sets(
    data: attsvm.TokenDataset, head: attsvm.LinearHead | None, run: attsvm.Run, train_head: bool
) -> Tensor:
    """Masks of the optimal tokens of every run, ``[*starts, *batch, n, T]``; a trained head scores as it ended."""
    import torch

    if not train_head:
        return attsvm.optimal_token_set(data, head).expand_as(run.attention)
    vectors = run.parameters["head"]
    several = run.risk.ndim > len(data.batch_shape)
    each = vectors if several else vectors.unsqueeze(0)
    masks = torch.stack([attsvm.optimal_token_set(data, attsvm.LinearHead(vector)) for vector in each])
    return masks if several else masks[0]
