"""`attsvm figure`: the experiments of the papers, by their ids."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import attsvm
from attsvm.cli.common.commands import Command, Group, interrupted
from attsvm.cli.common.files import MANIFEST, checked_folder
from attsvm.cli.common.inputs import checked_backend
from attsvm.cli.common.options import BackendName, Device, Jobs, Json, Quiet, Scheduler, WorkerTimeout, flag, option
from attsvm.cli.common.report import plural, print_json

if TYPE_CHECKING:
    from attsvm.cli.common.experiments import FigureSummary
    from attsvm.experiments import AcrossSeeds, Configuration, Experiment, SweepResult

figure = typer.Typer(cls=Group)

FORMATS = ("png", "pdf", "svg")

Ids = Annotated[list[str], typer.Argument(metavar="ID", help="Ids from `attsvm figure list`, or all.")]
Folders = Annotated[list[Path], typer.Argument(metavar="FOLDER", help="Folders of results, or that hold such folders.")]
Out = Annotated[Path, option("--out", "FOLDER", "Each experiment gets a folder of its own in this one.")]
Formats = Annotated[str, option("--format", "LIST", f"Any of {', '.join(FORMATS)}, separated by commas.")]
Quick = Annotated[bool, flag("--quick", "Smaller versions: minutes for all of them.")]
Runs = Annotated[int | None, option("--runs", "N", "Number of data sets, or of draws.")]
Resume = Annotated[bool, flag("--resume", "Go on from the chunks that are there.")]
Overwrite = Annotated[bool, flag("--overwrite", "Start over although FOLDER holds results of these experiments.")]
Seed = Annotated[int, option("--seed", "N", "Seed of all random draws.")]
_SEEDS = "Compute with N seeds, from --seed on, and count in how many of them each check holds."
Seeds = Annotated[int | None, option("--seeds", "N", _SEEDS)]


@figure.callback(invoke_without_command=True)
def describe(context: typer.Context) -> None:
    """Run and draw the experiments of the papers: `figure list`, `figure run ID...`, `figure draw FOLDER...`."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@figure.command("list", cls=Command)
def list_experiments(quiet: Quiet = False, json: Json = False) -> None:
    """List all experiments: id, paper, what each shows, and how long it takes on one core."""
    experiments = attsvm.experiments.EXPERIMENTS
    if json:
        names = ("id", "source", "title", "shows", "seconds")
        plain = {one.id: {name: getattr(one, name) for name in names} for one in experiments.values()}
        found = [plain[name] | {"configuration": one.default.to_json()} for name, one in experiments.items()]
        print_json({"experiments": found})
    elif quiet:
        typer.echo("\n".join(experiments))
    else:
        from attsvm.cli.common.experiments import print_list

        print_list(list(experiments.values()))


@figure.command("run", cls=Command)
def run_experiments(
    ids: Ids, quick: Quick = False, runs: Runs = None, jobs: Jobs = 1, backend: BackendName = "loky",
    scheduler: Scheduler = None, worker_timeout: WorkerTimeout = None, resume: Resume = False,
    overwrite: Overwrite = False, out: Out = Path("out/figures"), formats: Formats = "png,pdf,svg", seed: Seed = 0,
    seeds: Seeds = None, device: Device = "cpu", quiet: Quiet = False, json: Json = False,
) -> None:  # fmt: skip
    """Compute experiments, store tables, draw pictures, and hold what was measured against what was expected.

    Everything lands in FOLDER/ID: Parquet tables, arrays.npz, manifest.json, summary.json and pictures. A run that was
    stopped goes on with --resume; --overwrite computes afresh what is there.

    With --seeds every seed lands in FOLDER/ID/seed-N, and FOLDER/ID/seeds.json says in how many of them each check
    holds; with --resume, more seeds can be added later.

    The exit code is 0 when everything was computed and drawn, even if a check does not hold: the last line says how
    many do. If one of several experiments fails, the others go on, and the exit code is 1.
    """
    from attsvm.cli.common.experiments import progress_bars
    from attsvm.experiments import check_folder, run

    computing, where = checked_backend(backend, scheduler, jobs, worker_timeout, device)
    told: dict[str, Any] = {"resume": resume, "overwrite": overwrite, "device": where}
    wanted = _formats(formats)
    chosen = _planned(ids, out, quick=quick, runs=runs, seed=seed, seeds=seeds)
    folder = checked_folder(out)
    for each, configuration, path in chosen:
        check_folder(each, configuration, folder=path, **told)
    imports = time.process_time()

    told |= {"backend": computing}
    summaries: list[FigureSummary] = []
    failures: list[str] = []
    try:
        with progress_bars(quiet=quiet or json) as bars:
            for each, configuration, path in chosen:
                name = each.id if seeds is None else f"{each.id} with seed {configuration.seed}"
                try:
                    result = run(each, configuration, folder=path, progress=bars.reporter(name), say=bars.say, **told)
                    summaries.append(_summary(result, wanted))
                    if seeds is not None:
                        _across([one for one in summaries if one.experiment == each.id])
                except Exception as error:
                    why = _words(error, alone=len(chosen) == 1)
                    failures.append(f"{name} failed ({why}); run it alone to see where")
                    bars.say(failures[-1])
    except KeyboardInterrupt:
        interrupted("finished chunks are kept, add --resume")
    several = [] if seeds is None else _across(summaries)
    _report([] if several else summaries, several, imports, folder, quiet=quiet, json=json)
    _leave(failures, f"{len(chosen)} {'experiments' if seeds is None else 'runs'} failed")


@figure.command("draw", cls=Command)
def draw_results(folders: Folders, formats: Formats = "png,pdf,svg", quiet: Quiet = False, json: Json = False) -> None:
    """Draw stored results again, without computing, and hold them against what was expected once more.

    The seeds of `figure run --seeds` are counted again when FOLDER is the one that holds them.

    If one of several results is damaged or unfinished, the others are drawn, and the exit code is 1.
    """
    from attsvm.experiments.seeds import is_seed_folder

    wanted = _formats(formats)
    paths = list(dict.fromkeys(path for folder in folders for path in _results_in(folder)))
    imports = time.process_time()
    summaries: list[FigureSummary] = []
    failures: list[str] = []
    for path in paths:
        try:
            summaries.append(_summary(attsvm.experiments.SweepResult.load(path), wanted))
        except Exception as error:
            why = _words(error, alone=len(paths) == 1)
            failures.append(str(error) if str(path) in str(error) else f"{path} cannot be drawn ({why})")
    seeds = [each for each in summaries if each.folder not in folders and is_seed_folder(each.folder)]
    alone = [each for each in summaries if each not in seeds]
    several: list[AcrossSeeds] = []
    for parent in dict.fromkeys(each.folder.parent for each in seeds):
        try:
            several += _across([each for each in seeds if each.folder.parent == parent])
        except ValueError as error:
            failures.append(str(error))
    _report(alone, several, imports, *dict.fromkeys(folders), quiet=quiet, json=json)
    _leave(failures, f"{len(paths)} results were not drawn")


def _words(error: Exception, *, alone: bool) -> str:
    """An error that others survive; it is raised if there are none, or if they would fare no better: no disk, say."""
    if alone or isinstance(error, OSError):
        raise error
    return f"{type(error).__name__}: {error}"


def _leave(failures: Sequence[str], of: str) -> None:
    if failures:
        typer.echo(f"attsvm: {len(failures)} of {of}: {'; '.join(failures)}", err=True)
        raise typer.Exit(1)


def _summary(result: SweepResult, formats: list[str]) -> FigureSummary:
    """Draw and judge a result, and store what that comes to."""
    from attsvm.cli.common.experiments import summarize
    from attsvm.plots.figures import draw

    began = time.process_time()
    pictures = [path for files in draw(result, formats=formats).values() for path in files]
    drawing = time.process_time() - began
    summary = summarize(attsvm.experiments.experiment(result.id), result, pictures, drawing)
    summary.save()
    return summary


def _across(summaries: Sequence[FigureSummary]) -> list[AcrossSeeds]:
    """The seeds of each experiment side by side, stored beside their folders."""
    found = []
    for parent in dict.fromkeys(each.folder.parent for each in summaries):
        found.append(attsvm.experiments.AcrossSeeds.of([each for each in summaries if each.folder.parent == parent]))
        found[-1].save(parent)
    return found


def _report(
    summaries: Sequence[FigureSummary], several: Sequence[AcrossSeeds], imports: float, *folders: Path,
    quiet: bool, json: bool,
) -> None:  # fmt: skip
    """Print results of one seed, and those of several."""
    from attsvm.cli.common.experiments import print_seeds, print_summary, seeds_line, verdict_line

    parts = [verdict_line(summaries)] if summaries or not several else []
    verdicts = "; ".join([*parts, *([seeds_line(several)] if several else [])])
    if json:
        found = {"results": [each.to_json() for each in summaries], "seeds": [each.to_json() for each in several]}
        print_json({**found, "import_cpu_seconds": round(imports, 3), "verdicts": verdicts})
        return
    if not quiet and (summaries or not several):
        print_summary(summaries, imports)
    if not quiet and several:
        print_seeds(several)
    typer.echo(f"{plural(len(summaries) + len(several), 'experiment')} in {', '.join(map(str, folders))}: {verdicts}")


def _formats(text: str) -> list[str]:
    wanted = [part.strip().lower() for part in text.split(",") if part.strip()]
    if (unknown := [each for each in wanted if each not in FORMATS]) or not wanted:
        got = ", ".join(unknown) or "nothing"
        raise ValueError(f"--format must be of {', '.join(FORMATS)}, with commas between; got {got}")
    return list(dict.fromkeys(wanted))


def _planned(
    ids: list[str], out: Path, *, quick: bool, runs: int | None, seed: int, seeds: int | None
) -> list[tuple[Experiment[Any], Configuration, Path]]:
    """What to compute, each experiment once, and where: a folder for each experiment, or for each of its seeds."""
    from attsvm.experiments.seeds import seed_folders

    for name, count, of in (("--runs", runs, "data sets"), ("--seeds", seeds, "seeds")):
        if count is not None and count < 1:
            raise ValueError(f"{name} must be a positive number of {of}; got {count}")
    if seed < 0:
        raise ValueError(f"--seed must not be negative; got {seed}")
    named = [attsvm.experiments.experiment(name) for name in ids if name != "all"]
    chosen = attsvm.experiments.EXPERIMENTS.values() if "all" in ids else {each.id: each for each in named}.values()
    ignoring = [each.id for each in chosen if runs is not None and each.default.runs_field is None]
    if refused := ", ".join(each.id for each in named if each.id in ignoring):
        raise ValueError(f"--runs does not apply to {refused}, which has no number of data sets; leave it out")
    if ignoring:
        typer.echo(f"--runs does not apply to {', '.join(ignoring)}; computed as without it", err=True)
    planned: list[tuple[Experiment[Any], Configuration, Path]] = []
    for each in chosen:
        own = each.default.with_values(seed=seed)
        own = own.quick() if quick else own
        own = own.with_runs(runs) if runs is not None and each.id not in ignoring else own
        folders = [(own, out / each.id)] if seeds is None else seed_folders(own, seeds, out / each.id)
        planned += [(each, *where) for where in folders]
    return planned


def _results_in(folder: Path) -> list[Path]:
    """`folder` itself if it holds a result, and those of its folders that hold one or, for each seed, one."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; give the --out of `attsvm figure run`, or a folder inside it")
    own = [folder] if (folder / MANIFEST).is_file() else []
    within = ("seed-*",) if own else ("*", "*/seed-*")
    inside = [path.parent for name in within for path in folder.glob(f"{name}/{MANIFEST}")]
    if not own and not inside:
        raise ValueError(f"{folder} holds no result of an experiment; run one with `attsvm figure run`")
    return own + sorted(inside, key=lambda path: re.sub(r"\d+", lambda found: f"{int(found[0]):09}", str(path)))
