"""The options of `attsvm train`, with their help."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from attsvm.cli.registry import LOSSES, NORMS, OPTIMIZERS, SCHEDULES, STOPPING
from attsvm.data import EXAMPLES

_MODEL, _STEPS, _FILES = "Model", "Descent", "Recording and checkpoints"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


Data = Annotated[str, Argument(metavar="DATA", help=f"A .npz or .safetensors file, or one of: {_listed(EXAMPLES)}.")]

Parameterization = Annotated[
    str, Option("--parameterization", metavar="NAME", help="w (weights) or kq (key-query).", rich_help_panel=_MODEL)
]
Rank = Annotated[
    int | None, Option("--rank", metavar="M", help="Columns of K and Q; d by default.", rich_help_panel=_MODEL)
]
Loss = Annotated[str, Option("--loss", metavar="NAME", help=f"{_listed(LOSSES)}.", rich_help_panel=_MODEL)]
Head = Annotated[
    Path | None,
    Option(
        "--head", metavar="FILE", help="File with an array called head, where DATA has none.", rich_help_panel=_MODEL
    ),
]
TrainHead = Annotated[bool, Option("--train-head", help="Train the head too.", rich_help_panel=_MODEL)]
Starts = Annotated[
    int | None, Option("--starts", metavar="N", help="Random starts for each data set.", rich_help_panel=_MODEL)
]
Initial = Annotated[
    str | None,
    Option(
        "--initial",
        metavar="START",
        help="zeros; paper (the starts of a built-in example); a file: a saved run, or weights, or key and query.",
        rich_help_panel=_MODEL,
    ),
]

Optimizer = Annotated[
    str, Option("--optimizer", metavar="NAME", help=f"{_listed(OPTIMIZERS)}.", rich_help_panel=_STEPS)
]
StepSize = Annotated[
    float | None,
    Option(
        "--step-size",
        metavar="X",
        help="0.1 by default; a factor, by default 1, for polyak and --schedule lipschitz.",
        rich_help_panel=_STEPS,
    ),
]
Schedule = Annotated[str, Option("--schedule", metavar="NAME", help=f"{_listed(SCHEDULES)}.", rich_help_panel=_STEPS)]
Growth = Annotated[
    float | None,
    Option("--growth", metavar="X", help="Factor a step of the geometric schedule; 1.01.", rich_help_panel=_STEPS),
]
Largest = Annotated[
    float | None,
    Option("--largest", metavar="X", help="Largest step of the geometric schedule.", rich_help_panel=_STEPS),
]
Norm = Annotated[
    str | None,
    Option(
        "--norm",
        metavar="NAME",
        help=f"Of steepest descent: {_listed(NORMS)}, or l1.5 and the like.",
        rich_help_panel=_STEPS,
    ),
]
Exponent = Annotated[
    float | None, Option("--p", metavar="P", help="Exponent of mirror descent.", rich_help_panel=_STEPS)
]
Momentum = Annotated[
    float | None,
    Option("--momentum", metavar="X", help="Of sign, spectral and steepest descent.", rich_help_panel=_STEPS),
]
Steps = Annotated[int, Option("--steps", metavar="N", help="Steps in all.", rich_help_panel=_STEPS)]
BatchSize = Annotated[
    int | None, Option("--batch-size", metavar="N", help="Inputs a step; all by default.", rich_help_panel=_STEPS)
]
Stop = Annotated[
    str | None, Option("--stop", metavar="RULE", help=f"Stop early: {_listed(STOPPING)}.", rich_help_panel=_STEPS)
]

Record = Annotated[
    int,
    Option("--record", metavar="N", help="Record every N steps, the first and the last.", rich_help_panel=_FILES),
]
Keep = Annotated[
    str,
    Option(
        "--keep",
        metavar="NAMES",
        help="What to record: risk, norm, attention, weights, parameters.",
        rich_help_panel=_FILES,
    ),
]
Checkpoint = Annotated[
    float, Option("--checkpoint", metavar="SECONDS", help="Time between checkpoints.", rich_help_panel=_FILES)
]
Resume = Annotated[
    bool, Option("--resume", help="Go on from the checkpoint in FOLDER, if there is one.", rich_help_panel=_FILES)
]
Overwrite = Annotated[
    bool, Option("--overwrite", help="Start over although FOLDER holds an unfinished run.", rich_help_panel=_FILES)
]
