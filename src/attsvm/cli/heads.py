"""`attsvm heads`: what the attention heads of a transformer select, and how close to max-margin they are."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from attsvm.cli.options import Out, Quiet, own_folder
from attsvm.cli.registry import svm_norm_named
from attsvm.cli.report import print_json, print_table, status_line
from attsvm.heads import SINKS, HeadsReport, Progress, Texts, analyze, load, read_texts, sample_reactions, sample_texts
from attsvm.heads.report.table import COLUMNS, shown
from attsvm.sweep.manifest import NAME, now, versions, write_manifest

SAMPLES = {"sample": sample_texts, "reactions": sample_reactions}
_SHOWN = (
    "head", "selects", "confident", "top_mass", "queries", "efficiency", "efficiency_random", "efficiency_untrained",
    "cosine", "cosine_random", "cosine_shuffled", "cosine_untrained", "effective_rank", "effective_rank_svm",
    "agreement", "agreement_rule", "gap",
)  # fmt: skip

Model = Annotated[str, Argument(metavar="MODEL", help="Folder of a model, or its name on the Hugging Face hub.")]
TextsFile = Annotated[
    str,
    Option("--texts", metavar="FILE", help=f"One text a line; or {', '.join(SAMPLES)}: what the package brings."),
]
Most = Annotated[int, Option("--most-texts", metavar="N", min=1, help="Lines read of FILE.")]
Layers = Annotated[str | None, Option("--layers", metavar="LIST", help="Such as 0,3 or 2-5; all by default.")]
Heads = Annotated[str | None, Option("--heads", metavar="LIST", help="Such as 0,3 or L3H7,L0H2; all by default.")]
Norms = Annotated[str, Option("--norm", metavar="NAMES", help="Such as frobenius or frobenius,nuclear.")]
Queries = Annotated[int, Option("--queries", metavar="N", help="Most confident queries a head.")]
Confidence = Annotated[float, Option("--confidence", metavar="P", help="Attention on one token that counts as sure.")]
HeldOut = Annotated[float, Option("--held-out", metavar="SHARE", help="Share of the texts kept apart.")]
LeaveOut = Annotated[bool, Option("--leave-out-sinks", help="First token and delimiters are no candidates.")]
Seed = Annotated[int, Option("--seed", metavar="N", help="Seed of the draws and the controls.")]
Html = Annotated[Path | None, Option("--html", metavar="FILE", help="The report; FOLDER/heads.html by default.")]
JsonFile = Annotated[
    Path | None, Option("--json", metavar="FILE", help="All numbers; FOLDER/heads.json by default, - prints them.")
]


def heads(
    context: typer.Context,
    model: Model,
    texts: TextsFile = "sample",
    most_texts: Most = 1000,
    layers: Layers = None,
    heads: Heads = None,
    norm: Norms = "frobenius",
    queries: Queries = 500,
    confidence: Confidence = 0.5,
    held_out: HeldOut = 0.2,
    leave_out_sinks: LeaveOut = False,
    html: Html = None,
    json: JsonFile = None,
    out: Out = Path("out/heads"),
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Analyse the attention heads of MODEL as support vector machines of their own selections.

    Prints a table sorted by selectivity and says whether trained heads are closer to max-margin than random weights,
    shuffled selections and an untrained model. Finished heads are kept in FOLDER/cache: a run that was stopped goes on
    where it was.
    """
    folder = own_folder(out, "heads")
    printed = str(json) == "-"
    page = _writable(html or folder / "heads.html", "--html")
    numbers = _writable(folder / "heads.json" if json is None or printed else json, "--json")
    norms = tuple(svm_norm_named(name.strip(), None) for name in norm.split(","))
    wanted_layers, wanted_heads = _numbers(layers, "--layers"), _heads(heads)
    given = _texts(texts, most_texts)
    loaded = load(model)
    with status_line(f"Heads of {loaded.name}", quiet=quiet or printed) as tell:

        def progress(at: Progress) -> None:
            if tell is not None:
                tell(f"Heads of {loaded.name}: {at.done} of {at.total} · {at.message}")

        report = analyze(
            loaded, given.lines, layers=wanted_layers, heads=wanted_heads, norms=norms, queries=queries,
            confidence=confidence, held_out=held_out, leave_out=SINKS if leave_out_sinks else (), seed=seed,
            cache=folder / "cache",
            progress=progress,
        )  # fmt: skip
    report.save_html(page)
    report.save_json(numbers)
    write_manifest(folder, {
        "kind": "heads",
        "status": "finished",
        "command": shlex.join(["attsvm", *(context.obj or [])]),
        "source": model,
        "description": repr(report),
        "texts": texts,
        "notes": [*report.notes, *([given.note] if given.note else [])],
        "seed": seed,
        "versions": versions(),
        "wall_seconds": report.seconds,
        "written": now(),
        "files": [str(page), str(numbers), NAME],
    })  # fmt: skip
    if printed:
        print_json({**report.to_json(), "files": [str(page), str(numbers)]})
    else:
        _print(report, given, page, numbers, quiet)


def _print(report: HeadsReport, given: Texts, page: Path, numbers: Path, quiet: bool) -> None:
    if not quiet:
        print_table(
            f"{report.model}: {len(report)} heads, {len(report) - len(report.unsolved)} solved, by selectivity",
            [(COLUMNS[key], "left" if key in ("head", "selects") else "right") for key in _SHOWN],
            [[shown(row[key]) for key in _SHOWN] for row in report.table],
        )
        for verdict in report.verdicts:
            typer.echo(f"- {verdict}")
        for head in report.unsolved:
            typer.echo(f"- {head.name}: {head.outcome}")
        for note in (*report.notes, *filter(None, [given.note])):
            typer.echo(f"- Note: {note}.")
    typer.echo(f"{report.memory / 2**20:.0f} MiB of states and rows at once; written: {page}, {numbers}")


def _texts(name: str, most: int) -> Texts:
    if name in SAMPLES:
        return Texts(tuple(SAMPLES[name]()), "")
    if not Path(name).exists():
        raise ValueError(f"--texts must be a file, or one of {', '.join(SAMPLES)}; {name!r} is neither")
    return read_texts(name, most)


def _numbers(text: str | None, option: str) -> list[int] | None:
    """``0,3`` or ``2-5`` as numbers."""
    if text is None:
        return None
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match is None:
            raise ValueError(f"{option} must be numbers such as 0,3 or 2-5; got {text!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first > 10_000:
            raise ValueError(f"{option} must count upwards; got {part.strip()!r}")
        found.extend(range(first, last + 1))
    return found


def _heads(text: str | None) -> list[int | str] | None:
    if text is None:
        return None
    found: list[int | str] = []
    for part in text.split(","):
        found += [part.strip()] if part.strip().startswith("L") else (_numbers(part, "--heads") or [])
    return found


def _writable(path: Path, option: str) -> Path:
    """`path`, if a file can be written there, before any work is done.

    Raises:
        ValueError: if its folder does not exist or it cannot be written.
    """
    folder = path.parent
    if not folder.is_dir():
        raise ValueError(f"{option} {path} cannot be written: the folder {folder} does not exist")
    if path.is_dir():
        raise ValueError(f"{option} must be a file; {path} is a folder")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise ValueError(f"{option} {path} cannot be written: permission denied")
    return path
