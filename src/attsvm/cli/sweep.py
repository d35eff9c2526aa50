"""`attsvm sweep`: a study over a grid of random data sets, described by a file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from attsvm.cli.common.commands import interrupted
from attsvm.cli.common.files import checked_folder, write_json
from attsvm.cli.common.inputs import checked_backend
from attsvm.cli.common.options import BackendName, Device, Jobs, Json, Quiet, Scheduler, WorkerTimeout, flag, option
from attsvm.cli.common.report import plural, print_json

ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="The grid, as in the example.")]
Out = Annotated[Path, option("--out", "FOLDER", "Where tables, arrays and the manifest are written.")]
Resume = Annotated[bool, flag("--resume", "Go on from the chunks that are there.")]
Overwrite = Annotated[bool, flag("--overwrite", "Start over although FOLDER holds a sweep.")]


def sweep(
    config: ConfigFile,
    jobs: Jobs = 1, backend: BackendName = "loky", scheduler: Scheduler = None, worker_timeout: WorkerTimeout = None,
    resume: Resume = False, overwrite: Overwrite = False,
    out: Out = Path("out/sweep"), device: Device = "cpu", quiet: Quiet = False, json: Json = False,
) -> None:  # fmt: skip
    """Draw random data sets, train on them, solve and certify the SVM of what was reached: every cell of a grid.

    CONFIG.toml has one line for each thing that is not as usual, such as: n = [2, 4, 8]; T = 8; d = [5, 10, 20]; runs =
    1000; parameterization = ["w", "kq"]; optimizer = ["ngd", "muon"]; initial = "drawn"; norm = ["frobenius",
    "nuclear"]; stream = "counter". Lists span the grid.

    FOLDER gets runs.parquet (one row for each run), solutions.parquet (one for each run and norm), cells.json and a
    manifest with checksums; a sweep that was stopped goes on with --resume.
    """
    from attsvm.cli.common.experiments import progress_bars
    from attsvm.cli.common.grid import GRID, cells, print_cells, read_grid
    from attsvm.data.machine import check_fits
    from attsvm.sweep import check_folder, run

    configuration = read_grid(config)
    computing, where = checked_backend(backend, scheduler, jobs, worker_timeout, device)
    if backend == "loky":
        sizes = [max(getattr(configuration, name)) for name in ("n", "T", "d")]
        count = min(configuration.runs, configuration.chunk)
        what = f"a chunk of {plural(count, 'data set')} of n, T, d = {', '.join(map(str, sizes))}"
        check_fits(8 * count * (math.prod(sizes) + sizes[2] ** 2), where, what, "make chunk or the sizes smaller")
    folder = checked_folder(out)
    told: dict[str, Any] = {"folder": folder, "resume": resume, "overwrite": overwrite, "device": where}
    check_folder(GRID, configuration, **told, also=["cells.json"])
    try:
        with progress_bars(quiet=quiet or json) as bars:
            result = run(GRID, configuration, backend=computing, progress=bars.reporter("sweep"), say=bars.say, **told)
    except KeyboardInterrupt:
        interrupted("finished chunks are kept, add --resume")
    found = list(cells(result))
    content = {"cells": found, "counts": dict(result.counts), "files": dict(result.manifest["files"])}
    write_json(folder / "cells.json", content)
    if json:
        print_json(content)
        return
    if not quiet:
        print_cells(found)
    left, total = sum(result.counts.values()), sum(cell["runs"] for cell in found)
    said = f"{plural(left, 'problem')} neither solved nor proved infeasible"
    typer.echo(f"{plural(total, 'run')} in {plural(len(found), 'cell')} in {folder}; {said}")
