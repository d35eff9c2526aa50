"""Training as `attsvm train` does it: the task, long runs with checkpoints, and what a finished run comes to."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import attsvm
from attsvm.cli.common.files import write_text
from attsvm.cli.common.inputs import data_digest, digest
from attsvm.cli.common.report import SPREAD, number, plural, print_table, spread, spread_columns

if TYPE_CHECKING:
    from torch import Tensor

    from attsvm.attention import Loss, Parameterization
    from attsvm.descent import Optimizer, StoppingRule


@dataclass(frozen=True)
class TrainTask:
    """All that `fit` is told, apart from where the run stands."""

    data: attsvm.TokenDataset
    head: attsvm.LinearHead | None
    parameterization: Parameterization
    optimizer: Optimizer
    loss: Loss
    stop: StoppingRule | None
    initial: Mapping[str, Tensor] | str | None
    starts: int | None
    train_head: bool
    batch_size: int | None
    seed: int
    record: int
    keep: tuple[str, ...]

    def settings(self) -> dict[str, Any]:
        """What must stay the same for a run to be resumed, in words."""
        initial, plain = self.initial, ("starts", "train_head", "batch_size", "seed", "record")
        return {
            "data": data_digest(self.data),
            "head": digest([self.data.head if self.head is None else self.head.vector]),
            **{name: repr(getattr(self, name)) for name in ("parameterization", "optimizer", "loss", "stop")},
            "initial": digest([*initial.values()]) if isinstance(initial, Mapping) else initial,
            **{name: getattr(self, name) for name in plain},
            "keep": list(self.keep),
        }

    def arguments(self, resume: attsvm.Run | None) -> dict[str, Any]:
        """Arguments of `fit`, either from the start or to go on from `resume`, which knows its own weights."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        del given["record"]
        return given | {"resume": resume, "initial": self.initial if resume is None else None}


@dataclass(frozen=True)
class Stretches:
    """A long run in stretches, with a checkpoint after each, so that a run that was killed can go on.

    Stretches end at multiples of `record`, where an uninterrupted run records as well, so that a run in stretches is
    the same run, bit for bit. One takes about `seconds`; 0 saves at every record.
    """

    steps: int
    record: int
    seconds: float

    def run(
        self,
        advance: Callable[[int, attsvm.Run | None], attsvm.Run],
        begun: attsvm.Run | None,
        save: Callable[[attsvm.Run], None],
    ) -> attsvm.Run:
        """Call ``advance(up to this step, so far)`` and `save` until the last step, or until no element goes on."""
        run, length = begun, self.record
        done = 0 if run is None else run.step
        while True:
            target = min(self.steps, (done + length) // self.record * self.record)
            target = self.steps if target <= done else target
            began = time.perf_counter()
            run = advance(target, run)
            walked = time.perf_counter()
            save(run)
            if run.step < target or target == self.steps:
                return run
            if self.seconds > 0:  # saving takes at most a twentieth of the time
                period = max(self.seconds, 20 * (time.perf_counter() - walked))
                rate = (target - done) / max(walked - began, 1e-9)
                length = max(self.record, int(min(rate * period, self.steps)))
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
    share, several = result["share_of_runs_with_optimal_selection"], result["runs"] > 1
    title = f"{plural(result['runs'], 'run')}, {result['steps']} steps"
    if quiet:
        risk, norm = (number(result[name]["median"]) for name in ("risk", "norm"))
        typer.echo(f"{title}: risk {risk}, norm {norm} (medians), optimal selection in {share:.1%}; in {folder}")
        return
    names = {"risk": "Risk", "norm": "Norm of W", "least_attention_on_selected": "Least attention on a selected token"}
    kinds, columns = spread_columns(several)
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
    columns: list[tuple[str, list[float]]] = []
    for name, value in kept.items():
        if value is not None:
            rows = [spread(row) for row in value]
            columns += [(f"{name}_{kind}", [row[kind] for row in rows]) for kind in SPREAD]
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["step", *(name for name, _ in columns)])
    for place, step in enumerate(history.step.tolist()):
        writer.writerow([step, *(repr(values[place]) for _, values in columns)])
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
