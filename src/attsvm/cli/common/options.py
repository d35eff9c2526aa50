"""Options that several commands have, with their help. Options of one command stand in its own file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, BadParameter, Option

from attsvm.cli.common.registry import EXAMPLES, LOSSES, NORMS, OPTIMIZERS, SCHEDULES

MODEL, STEPS = "Model", "Descent"  # panels of the help of `train` and `diagnose`


def option(name: str, value: str, text: str, panel: str | None = None) -> Any:
    """An option: its name, what its value is called, its help, and the panel of the help it stands in."""
    parser = _folder if value == "FOLDER" else None
    return Option(name, metavar=value, help=text, rich_help_panel=panel, parser=parser)


def _folder(name: str | Path) -> Path:
    """A folder: ``~`` is that of the user, and an empty name, as of a variable that is not set, is none."""
    if not str(name).strip():
        raise BadParameter("it must name a folder; . is the one you are in")
    return Path(name).expanduser()


def flag(name: str, text: str, panel: str | None = None) -> Any:
    """An option without a value; off unless it is given."""
    return Option(name, help=text, rich_help_panel=panel)


def listed(names: Iterable[str]) -> str:
    """Names for a help text."""
    return ", ".join(names)


Data = Annotated[str, Argument(metavar="DATA", help=f"A .npz or .safetensors file, or one of: {listed(EXAMPLES)}.")]

# What is written and printed, and where it is computed.
Out = Annotated[Path, option("--out", "FOLDER", "Folder for everything that is written.")]
Seed = Annotated[int, Option("--seed", metavar="N", min=0, help="Seed of random starts and mini-batches.")]
Device = Annotated[str, option("--device", "NAME", "cpu, cuda, or cuda:1 and so on.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Print a line, and what is to be noted, not progress and tables.")]
Json = Annotated[bool, flag("--json", "Print the result as one JSON document and nothing else.")]

# Tasks of a sweep.
Jobs = Annotated[int, option("--jobs", "N", "Processes on this machine.")]
BackendName = Annotated[str, option("--backend", "NAME", "loky (this machine) or dask.")]
Scheduler = Annotated[str | None, option("--scheduler", "ADDRESS", "Of a Dask cluster, such as tcp://host:8786.")]
_TIMEOUT = "Give up when a Dask cluster has no worker for so long; else wait for one."
WorkerTimeout = Annotated[float | None, option("--worker-timeout", "SECONDS", _TIMEOUT)]

# The model and how it is trained.
Parameterization = Annotated[str, option("--parameterization", "NAME", "w (weights) or kq (key-query).", MODEL)]
Rank = Annotated[int | None, option("--rank", "M", "Columns of K and Q; d by default.", MODEL)]
Loss = Annotated[str, option("--loss", "NAME", f"One of {listed(LOSSES)}.", MODEL)]
Head = Annotated[Path | None, option("--head", "FILE", "File with an array called head, if DATA has none.", MODEL)]
_SELECT = (
    "optimal (the best-scored token of every input); reached:FILE (what a saved run selects); or a FILE with"
    " selected or selected_set: .npz, .safetensors, .npy, .json, or indices in a .txt or .csv."
)
Select = Annotated[str, option("--select", "WHICH", _SELECT)]
_STARTS = "zeros; paper (the starts of a built-in example); or a file with a saved run, weights, or key and query."
Initial = Annotated[str | None, option("--initial", "START", _STARTS, MODEL)]
OPTIMIZER_NAMES = f"One of {listed(OPTIMIZERS)}, or torch.optim.Muon and the like."
Optimizer = Annotated[str, option("--optimizer", "NAME", OPTIMIZER_NAMES, STEPS)]
_SIZE = "0.1 by default, PyTorch's own for torch.optim; for polyak and --schedule lipschitz a factor, 1 by default."
StepSize = Annotated[float | None, option("--step-size", "X", _SIZE, STEPS)]
Schedule = Annotated[str, option("--schedule", "NAME", f"One of {listed(SCHEDULES)}.", STEPS)]
_NORM = f"Norm of --optimizer steepest and joint: {listed(NORMS)}, or l1.5 and the like."
DescentNorm = Annotated[str | None, option("--norm", "NAME", _NORM, STEPS)]
WeightDecay = Annotated[float | None, option("--weight-decay", "X", "Decoupled weight decay; none by default.", STEPS)]
Clip = Annotated[float | None, option("--clip", "TAU", "QK-clip: rescale where a logit passes TAU.", STEPS)]
_SETTING = "Setting of --optimizer torch.optim.NAME; repeatable."
Settings = Annotated[list[str] | None, option("--setting", "NAME=VALUE", _SETTING, STEPS)]
Exponent = Annotated[float | None, option("--p", "P", "Exponent of mirror descent.", STEPS)]
