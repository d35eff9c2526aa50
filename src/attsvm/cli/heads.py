"""`attsvm heads`: what the attention heads of a transformer select, and how close to max-margin they are."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

import attsvm
from attsvm.cli.common import options
from attsvm.cli.common.commands import interrupted, refuse_options
from attsvm.cli.common.files import checked_file, command_of, new_result, own_folder, write_json, write_result
from attsvm.cli.common.inputs import checked_backend
from attsvm.cli.common.options import Device, Jobs, Json, Out, Quiet, flag, listed, option
from attsvm.cli.common.registry import SAMPLES, svm_norm_named
from attsvm.cli.common.report import print_json, print_table, status_line

if TYPE_CHECKING:
    from attsvm.heads import HeadModel, HeadsReport, Swapped, Texts

Model = Annotated[
    str, Argument(metavar="MODEL", help="Folder of a model, a GGUF file, or a name on the Hugging Face hub.")
]
TextsFile = Annotated[
    str, option("--texts", "FILE", f"A file with one text per line, or texts of the package: {listed(SAMPLES)}.")
]
Images = Annotated[
    Path | None,
    option("--images", "FOLDER", "PNG and JPEG files for a vision model, or a .npz file with an array called images."),
]
Tokenizer = Annotated[Path | None, option("--tokenizer", "FOLDER", "Where MODEL has none: a folder or .tiktoken file.")]
ModelType = Annotated[str | None, option("--model-type", "NAME", "Such as bert, where config.json does not say it.")]
Most = Annotated[int, Option("--most-texts", metavar="N", min=1, help="Read at most N lines of FILE, or N images.")]
Layers = Annotated[str | None, option("--layers", "LIST", "Such as 0,3 or 2-5; all by default.")]
Heads = Annotated[str | None, option("--heads", "LIST", "Such as 0,3 or L3H7,L0H2; all by default.")]
Norms = Annotated[str, option("--norm", "NAMES", "Such as frobenius or frobenius,nuclear.")]
Queries = Annotated[int, option("--queries", "N", "Solve for at most N confident queries per head.")]
Confidence = Annotated[float, option("--confidence", "P", "Confident are queries with more than P on one token.")]
HeldOut = Annotated[float, option("--held-out", "SHARE", "Share of the texts kept apart, to test the solution on.")]
LeaveOut = Annotated[bool, flag("--leave-out-sinks", "The first token and delimiters are not candidates.")]
Draws = Annotated[int, option("--draws", "N", "Draw each control N times; the table shows their range.")]
Seed = Annotated[int, option("--seed", "N", "Seed of the draws and the controls.")]
Swap = Annotated[bool, flag("--swap", "Instead, run MODEL with W_mm, random weights or nothing in place of heads.")]
Html = Annotated[Path | None, option("--html", "FILE", "Where to write the report; FOLDER/heads.html by default.")]


def heads(
    context: typer.Context, model: Model,
    texts: TextsFile = "sample", images: Images = None, tokenizer: Tokenizer = None, model_type: ModelType = None,
    most_texts: Most = 1000, layers: Layers = None, heads: Heads = None, norm: Norms = "frobenius",
    queries: Queries = 500, confidence: Confidence = 0.5, held_out: HeldOut = 0.2, leave_out_sinks: LeaveOut = False,
    draws: Draws = 5, swap: Swap = False,
    jobs: Jobs = 1, backend: options.BackendName = "loky", scheduler: options.Scheduler = None,
    worker_timeout: options.WorkerTimeout = None,
    html: Html = None, out: Out = Path("out/heads"), seed: Seed = 0, device: Device = "cpu",
    quiet: Quiet = False, json: Json = False,
) -> None:  # fmt: skip
    """Analyse the attention heads of MODEL as support vector machines of their own selections.

    Prints a table sorted by selectivity and says whether trained heads are closer to max-margin than random weights,
    shuffled selections and an untrained model. All numbers are in FOLDER/heads.json.

    Finished heads are kept in FOLDER/cache: the same command goes on where it was stopped, with as many processes as
    you like, here (--jobs) or on a Dask cluster. What --swap measures is in FOLDER/swaps.json, and kept likewise.
    """
    from attsvm.heads.analysis.analyze import chosen_heads

    if swap:
        tasks = {"jobs", "backend", "scheduler", "worker_timeout"}
        unused = {"norm", "held_out", "leave_out_sinks", "draws", "html", *tasks}
        refuse_options(context, unused, "--swap compares in this process, in the Frobenius norm, and writes no page")
    computing, where = checked_backend(backend, scheduler, jobs, worker_timeout, device)
    folder = own_folder(out, "heads")
    page, numbers = checked_file(html or folder / "heads.html", "--html"), checked_file(folder / "heads.json", "--out")
    norms = tuple(svm_norm_named(name.strip(), None) for name in norm.split(","))
    wanted_layers, wanted_heads = _numbers(layers, "--layers"), _numbers(heads, "--heads")
    if images is not None and texts != "sample":
        raise ValueError("--images and --texts exclude each other: a model looks at images or reads texts")
    given = _texts(texts, most_texts) if images is None else attsvm.heads.Texts((), "")
    loaded = attsvm.heads.load(
        model, tokenizer=tokenizer, images=images, most_images=most_texts, model_type=model_type,
        device="cpu" if backend == "dask" else where,
    )  # fmt: skip
    if swap:
        names = [f"L{layer}H{head}" for layer, head in chosen_heads(loaded, wanted_layers, wanted_heads)]
        settings = {"queries": queries, "confidence": confidence, "seed": seed}
        _swap(context, loaded, given, names, settings, folder, quiet, json)
        return
    with status_line(f"Heads of {loaded.name}", quiet=quiet or json) as tell:
        try:
            report = attsvm.heads.analyze(
                loaded, given.lines or None, layers=wanted_layers, heads=wanted_heads, norms=norms, queries=queries,
                confidence=confidence, held_out=held_out, leave_out=attsvm.heads.SINKS if leave_out_sinks else (),
                draws=draws, seed=seed, cache=folder / "cache", backend=computing, device=where,
                progress=lambda at: tell and tell(f"Heads of {loaded.name}: {at.done} of {at.total} · {at.message}"),
            )  # fmt: skip
        except KeyboardInterrupt:
            interrupted("finished heads are kept, the same command goes on from them")
    with new_result(folder) as staging:
        report.save_html(staging / page.name if html is None else page)
        report.save_json(staging / numbers.name)
        write_result(
            staging, context, [page, numbers], report.seconds, kind="heads", source=model, description=repr(report),
            texts=texts if images is None else str(images), seed=seed,
            notes=[*report.notes, *filter(None, [given.note])],
        )  # fmt: skip
    if json:
        print_json({**report.to_json(), "files": [str(page), str(numbers)]})
    else:
        _print(report, given, page, numbers, quiet)


def _swap(
    context: typer.Context, model: HeadModel, given: Texts, heads: Sequence[str], settings: dict[str, Any],
    folder: Path, quiet: bool, json: bool,
) -> None:  # fmt: skip
    """The table of `heads.swaps`, also in FOLDER/swaps.json, which says itself how it was made (FOLDER/manifest.json
    belongs to heads.json); what is measured already is kept beside it until all is there.
    """
    from attsvm.heads.loading.folder import read_json
    from attsvm.sweep.manifest import digest, from_plain, new_manifest, to_plain

    file, part = (checked_file(folder / name, "--out") for name in ("swaps.json", "swaps.partial.json"))
    asked: dict[str, Any] = {
        "model": model.name, "fingerprint": model.fingerprint(), "texts": digest(repr(given.lines).encode()),
        "heads": list(heads), "settings": settings, "attsvm": attsvm.__version__,
    }  # fmt: skip
    before = read_json(part) if part.exists() else {}
    kept = [from_plain(attsvm.heads.Swapped, row) for row in before["swaps"]] if before.get("asked") == asked else []
    began = time.perf_counter()
    with status_line(f"Swaps of {model.name}", quiet=quiet or json) as tell:

        def progress(done: str, rows: Sequence[Swapped]) -> None:
            if rows:
                write_json(part, {"asked": asked, "swaps": rows})
            if tell is not None:
                tell(f"Swaps of {model.name}: {done}")

        try:
            found = attsvm.heads.swaps(model, given.lines or None, heads, **settings, kept=kept, progress=progress)
        except KeyboardInterrupt:
            interrupted("what was measured is kept, the same command goes on from it")
    spent = time.perf_counter() - began
    told = new_manifest("swaps", command=command_of(context), **asked, swaps=to_plain(found), seconds=spent)
    write_json(file, told)
    part.unlink(missing_ok=True)
    if json:
        print_json({**told, "files": [str(file)]})
        return
    if not quiet:
        _print_swaps(model, found)
    typer.echo(f"written: {file}")


def _print_swaps(model: HeadModel, found: Sequence[Swapped]) -> None:
    cells = []
    for row in found:
        numbers = (row.same_choice, row.cosine, row.loss)
        shown = ["-" if math.isnan(mean) else f"{mean:.4g} ± {half:.2g}" for mean, half in numbers]
        cells.append([row.heads, row.kind, str(row.swapped), *shown])
    columns = ["heads", "with", "swapped", "same choice", "cosine of output", "added loss"]
    title = f"{model.name} with other attention, on texts that W_mm has not seen (95 % intervals)"
    print_table(title, [(name, "left" if k < 2 else "right") for k, name in enumerate(columns)], cells)


def _print(report: HeadsReport, given: Texts, page: Path, numbers: Path, quiet: bool) -> None:
    table = attsvm.heads.report.table
    for warning in report.warnings:
        typer.echo(warning)
    if not quiet:
        brief = [column for column in table.COLUMNS if column.brief]
        print_table(
            f"{report.model}: {report.counts}, by selectivity",
            [(column.title, "left" if column.key in ("head", "selects") else "right") for column in brief],
            [[column.format(row[column.key]) for column in brief] for row in report.table],
        )
        unsolved = [f"{', '.join(names)}: {outcome}" for outcome, names in report.outcomes.items()]
        notes = [f"Note: {note}." for note in (*report.notes, *filter(None, [given.note]))]
        for line in (*report.findings, *unsolved, *notes):
            typer.echo(f"- {line}")
    typer.echo(f"{table.in_mebibytes(report.memory)} of states and rows at once; written: {page}, {numbers}")


def _texts(name: str, most: int, option: str = "--texts") -> Texts:
    if name in SAMPLES:
        return attsvm.heads.Texts(tuple(SAMPLES[name]()), "")
    if not Path(name).exists():
        raise ValueError(f"{option} must be a file, or one of {', '.join(SAMPLES)}; {name!r} is neither")
    return attsvm.heads.read_texts(name, most)


def _numbers(text: str | None, option: str) -> list[Any] | None:
    """``0,3`` or ``2-5`` as numbers; names of heads stay what they are."""
    if text is None:
        return None
    found: list[int | str] = []
    for part in map(str.strip, text.split(",")):
        if option == "--heads" and part.startswith("L"):
            found.append(part)
            continue
        if (match := re.fullmatch(r"(\d+)(?:-(\d+))?", part)) is None:
            such = "0,3 or L3H7,L0H2" if option == "--heads" else "0,3 or 2-5"
            raise ValueError(f"{option} must be a list such as {such}; got {text!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first > 10_000:
            raise ValueError(f"{option} must count upwards; got {part!r}")
        found.extend(range(first, last + 1))
    return found
