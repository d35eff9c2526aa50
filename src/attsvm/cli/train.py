"""`attsvm train`: one attention layer on every data set of a file."""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

import attsvm
from attsvm.cli.common import options, registry
from attsvm.cli.common.commands import interrupted
from attsvm.cli.common.files import MANIFEST, manifest_in, new_result, own_folder, write_result, write_text
from attsvm.cli.common.inputs import checked_device, load_data, starting_head, starting_point
from attsvm.cli.common.options import MODEL, STEPS, Device, Json, Out, Quiet, Seed, flag, listed, option
from attsvm.cli.common.report import number, plural, print_json, print_table, progress_bar, spread, spread_columns

RUN = "run.safetensors"
HISTORY = "history.csv"
_FILES = "Recording and checkpoints"

TrainHead = Annotated[bool, flag("--train-head", "Train the prediction head too.", MODEL)]
Starts = Annotated[int | None, option("--starts", "N", "Random starts per data set.", MODEL)]
Growth = Annotated[float | None, option("--growth", "X", "Of --schedule geometric, per step; 1.01 by default.", STEPS)]
Largest = Annotated[float | None, option("--largest", "X", "Largest step size of --schedule geometric.", STEPS)]
Momentum = Annotated[float | None, option("--momentum", "X", "Of steepest descent, such as sign and muon.", STEPS)]
Steps = Annotated[int, option("--steps", "N", "Number of steps in all.", STEPS)]
BatchSize = Annotated[int | None, option("--batch-size", "N", "Inputs per step; all by default.", STEPS)]
_STOP = f"Stop early, by one of these rules: {listed(registry.STOPPING)}."
Stop = Annotated[str | None, option("--stop", "RULE", _STOP, STEPS)]
Record = Annotated[int, option("--record", "N", "Record every N steps, and the first and the last.", _FILES)]
Keep = Annotated[str, option("--keep", "NAMES", "What to record: risk, norm, attention, weights, parameters.", _FILES)]
Checkpoint = Annotated[float, option("--checkpoint", "SECONDS", "Seconds between checkpoints.", _FILES)]
Resume = Annotated[bool, flag("--resume", "Go on from the checkpoint in FOLDER, if there is one.", _FILES)]
Overwrite = Annotated[bool, flag("--overwrite", "Start over although FOLDER holds a run.", _FILES)]


def train(
    context: typer.Context, data: options.Data,
    parameterization: options.Parameterization = "w", rank: options.Rank = None,
    optimizer: options.Optimizer = "ngd", step_size: options.StepSize = None, schedule: options.Schedule = "constant",
    growth: Growth = None, largest: Largest = None, norm: options.DescentNorm = None, p: options.Exponent = None,
    momentum: Momentum = None, weight_decay: options.WeightDecay = None, clip: options.Clip = None,
    setting: options.Settings = None, steps: Steps = 2000, loss: options.Loss = "logistic",
    record: Record = 50, keep: Keep = "risk,norm,attention,weights", starts: Starts = None,
    initial: options.Initial = None, head: options.Head = None, train_head: TrainHead = False,
    batch_size: BatchSize = None, stop: Stop = None,
    resume: Resume = False, overwrite: Overwrite = False, checkpoint: Checkpoint = 10.0,
    out: Out = Path("out"), seed: Seed = 0, device: Device = "cpu", quiet: Quiet = False, json: Json = False,
) -> None:  # fmt: skip
    """Train W, or K and Q, on every data set of DATA; write weights, history and a manifest to FOLDER.

    FOLDER/run.safetensors holds the run (attsvm.Run.load reads it), history.csv a row for each recorded step, and
    manifest.json how it was made. The run is saved as it goes: after a crash, the same command with --resume goes on.
    """
    began = time.perf_counter()
    if record < 1:
        raise ValueError(f"--record must be a positive number of steps; got {record}")
    if not 0 <= checkpoint < math.inf:
        raise ValueError(f"--checkpoint must be a number of seconds, not negative; got {checkpoint}")
    where = checked_device(device)
    loaded = load_data(data).to(where)
    begin, own_head = starting_point(initial, data, loaded, train_head=train_head)
    rule = (step_size, schedule, growth, largest, norm, p, momentum, weight_decay, clip, tuple(setting or ()))
    plain = {"starts": starts, "train_head": train_head, "batch_size": batch_size, "seed": seed}
    task: dict[str, Any] = plain | {  # arguments of `fit`
        "data": loaded,
        "head": starting_head(head, loaded, own_head),
        "parameterization": registry.parameterization_named(parameterization, rank),
        "optimizer": registry.optimizer_named(optimizer, registry.OptimizerOptions(*rule)),
        "loss": registry.loss_named(loss),
        # Asked at divisors of --record, at whose multiples stretches end: the same steps with and without a break.
        "stop": registry.stopping_named(stop, every=math.gcd(10, record)),
        "initial": begin,
        "keep": tuple(name.strip() for name in keep.split(",") if name.strip()),
    }
    if starts is None or starts > 0:  # `fit` sees one stretch at a time; what all of them record must fit
        records = 1 if stop is not None else steps // record + 1
        attsvm.descent.initial.check_size(loaded, task["parameterization"], starts, records, task["keep"])
    folder, settings = own_folder(out, "train"), _settings(task, record)
    earlier, spent = _earlier(folder, settings, steps, resume, overwrite)

    def write(target: Path, run: attsvm.Run, status: str) -> dict[str, Any]:
        return write_result(
            target, context, [RUN, HISTORY], spent + time.perf_counter() - began, kind="train", status=status,
            source=data, description=repr(loaded), settings=settings, steps=steps, step=run.step, seed=seed,
            device=str(where), notes=run.notes,
        )  # fmt: skip

    with progress_bar("Training", steps, quiet=quiet or json, done=earlier.step if earlier else 0) as report:

        def advance(target: int, run: attsvm.Run | None) -> attsvm.Run:
            start = task if run is None else task | {"initial": None, "resume": run}  # it knows its own weights
            marks = [*range(0, target, record), target]
            return attsvm.fit(**start, steps=target, record=marks, progress=lambda done, _: report(done))

        def save(run: attsvm.Run) -> None:
            if earlier is not None and run.step == earlier.step:
                return  # it had gone as far as it can
            # The first checkpoint takes the place of an older run, and what described that one goes. A later one keeps
            # its manifest until the next is there: whoever is killed in between goes on from either.
            first = earlier is None and run.step <= record
            with new_result(folder, outdated=(MANIFEST, HISTORY) if first else ()) as staging:
                run.save(staging / RUN)
                write(staging, run, "running")

        try:
            run = in_stretches(advance, earlier, save, steps=steps, record=record, seconds=checkpoint)
        except KeyboardInterrupt:
            saved = (manifest_in(folder) or {}).get("status") == "running"
            interrupted(f"--resume goes on from the last checkpoint in {folder}" if saved else "nothing was saved yet")
    with new_result(folder, outdated=()) as staging:
        _write_history(staging / HISTORY, run)
        content = write(staging, run, "finished")
    result = _summary(loaded, task["head"], run, train_head=train_head)
    if json:
        files = [str(folder / name) for name in content["files"]]
        print_json({**result, "seconds": content["wall_seconds"], "files": files})
    else:
        _print(result, folder, quiet=quiet)


def _earlier(
    folder: Path, settings: dict[str, Any], steps: int, resume: bool, overwrite: bool
) -> tuple[attsvm.Run | None, float]:
    """The run to go on from and the time already spent on it; whether its data and head are these, `fit` looks."""
    found, path = manifest_in(folder), folder / RUN
    if resume and overwrite:
        raise ValueError("--resume and --overwrite contradict each other; give one of them")
    if found is None or not path.is_file() or overwrite:
        if resume:
            typer.echo(f"There is no checkpoint in {folder}; starting from the beginning.", err=True)
        return None, 0.0
    if not resume:
        state, more = "a finished run", f" with more --steps than {found.get('steps')}"
        if found.get("status") == "running":
            state, more = f"an unfinished run, at step {found.get('step')}", ""
        choice = f"--resume goes on{more}, --overwrite starts over, and another --out keeps it"
        raise ValueError(f"{folder} holds {state}: {choice}")
    before = found.get("settings") or {}
    for name, value in settings.items():
        digested = name == "initial" and len(str(before.get(name))) == 64  # in another way, by 0.1
        if before.get(name) != value and not digested:
            was = f"; it was made with {before.get(name)}, now it is {value}"
            raise ValueError(f"--resume needs the same {name.replace('_', ' ')} as the run in {folder}{was}")
    if (run := attsvm.Run.load(path)).step > steps:
        raise ValueError(f"--steps counts from the start: the run in {folder} stands at {run.step}; got {steps}")
    return run, float(found.get("wall_seconds") or 0.0)


def _settings(task: Mapping[str, Any], record: int) -> dict[str, Any]:
    """What must stay the same for a run to be resumed besides data and head; `task` holds the arguments of `fit`."""
    words = {name: repr(task[name]) for name in ("parameterization", "optimizer", "loss", "stop")}
    plain = {name: task[name] for name in ("starts", "train_head", "batch_size", "seed")}
    start = task["initial"]
    start = attsvm.descent.fingerprint.start_digest(start) if isinstance(start, Mapping) else start
    return {**words, "initial": start, **plain, "record": record, "keep": list(task["keep"])}


def in_stretches(
    advance: Callable[[int, attsvm.Run | None], attsvm.Run], begun: attsvm.Run | None,
    save: Callable[[attsvm.Run], None], *, steps: int, record: int, seconds: float,
) -> attsvm.Run:  # fmt: skip
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
        walking = time.perf_counter() - began
        save(run)
        if run.step < target or target == steps:
            return run
        if seconds > 0:  # saving takes at most a twentieth of the time
            period = max(seconds, 20 * (time.perf_counter() - began - walking))
            length = max(record, int(min((target - done) / max(walking, 1e-9) * period, steps)))
        done = target


def _summary(
    data: attsvm.TokenDataset, head: attsvm.LinearHead | None, run: attsvm.Run, *, train_head: bool
) -> dict[str, Any]:
    """Risk, norm, attention and selections, JSON-able; over many runs as median, lowest and highest."""
    import torch

    optimal = attsvm.optimal_token_set(data, head)
    if train_head:  # which scores as it ended
        vectors = run.parameters["head"]
        starts = vectors.reshape(-1, *data.batch_shape, vectors.shape[-1])
        masks = [attsvm.optimal_token_set(data, attsvm.LinearHead(vector)) for vector in starts]
        optimal = torch.stack(masks).reshape(run.attention.shape)
    right = optimal.expand_as(run.attention).gather(-1, run.selected.unsqueeze(-1)).squeeze(-1)
    return {
        "runs": run.risk.numel(),
        "steps": run.step,
        "risk": spread(run.risk),
        "norm": spread(run.norm),
        "least_attention_on_selected": spread(run.attention.amax(-1).amin(-1)),
        "share_of_runs_with_optimal_selection": float(right.all(-1).double().mean()),
        "share_of_inputs_with_optimal_selection": float(right.double().mean()),
        "selected": run.selected.tolist() if run.risk.numel() <= 8 else None,
        "notes": run.notes,
    }


def _print(result: dict[str, Any], folder: Path, *, quiet: bool) -> None:
    """The summary as a table, or, if `quiet`, in one line."""
    share = result["share_of_runs_with_optimal_selection"]
    title = f"{plural(result['runs'], 'run')}, {result['steps']} steps"
    if quiet:
        risk, norm = (number(result[name]["median"]) for name in ("risk", "norm"))
        said = f"{title}: risk {risk}, norm {norm} (medians), optimal selection in {share:.1%}; in {folder}"
        typer.echo("\n".join([said, *result["notes"]]))
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


def _write_history(path: Path, run: attsvm.Run) -> None:
    """A row for each recorded step: median, lowest and highest of risk, norm and least attention on a winner."""
    history = run.history
    least = None if history.attention is None else history.attention.amax(-1).amin(-1)
    kept = {"risk": history.risk, "norm": history.norm, "least_attention_on_selected": least}
    found = {name: [spread(row) for row in value] for name, value in kept.items() if value is not None}
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["step", *(f"{name}_{kind}" for name, rows in found.items() for kind in rows[0])])
    for place, step in enumerate(history.step.tolist()):
        writer.writerow([step, *(repr(each) for rows in found.values() for each in rows[place].values())])
    write_text(path, text.getvalue())
