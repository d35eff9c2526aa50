"""The options of `attsvm solve`, with their help."""

from pathlib import Path
from typing import Annotated

from typer import Option

from attsvm.cli.registry import SOLVERS, SVM_NORMS

Norm = Annotated[
    str,
    Option("--norm", metavar="NAME", help=f"{', '.join(SVM_NORMS)}, or l3, l1.75 and the like."),
]
Exponent = Annotated[float | None, Option("--p", metavar="P", help="Exponent of --norm entrywise.")]
Select = Annotated[
    str,
    Option(
        "--select",
        metavar="WHICH",
        help="optimal (the best-scored token of every input); reached:FILE (what a saved run selects); or a FILE with"
        " selected or selected_set: .npz, .safetensors, .npy, .json, or indices in a .txt or .csv.",
    ),
]
Start = Annotated[
    int | None, Option("--start", metavar="N", help="Which start of the run, where reached:FILE has several.")
]
Head = Annotated[
    Path | None, Option("--head", metavar="FILE", help="File with an array called head, where DATA has none.")
]
SolverName = Annotated[
    str | None,
    Option(
        "--solver",
        metavar="NAME",
        help=f"{', '.join(SOLVERS)}; chosen by norm and size if not given.",
    ),
]
Sides = Annotated[
    str,
    Option(
        "--rhs",
        metavar="VALUE",
        help="Right-hand side of the rows: a number, or a FILE with one per input or per token.",
    ),
]
Seed = Annotated[int, Option("--seed", metavar="N", help="Noted in the manifest; solving draws no random numbers.")]
