"""
An experiment of your own
=========================

The experiments of the papers are a configuration, a function that computes one chunk, and checks. Yours get the same:
finished chunks are stored at once, a run that was stopped goes on where it was, and other processes or a cluster can do
the work.

The question here: does the step size change how often normalized descent finds the best tokens?
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from matplotlib.figure import Figure

import attsvm
from attsvm.experiments import Check, Configuration, Experiment, Piece, Task, Verdict, run
from attsvm.plots import PALETTE, house_style
from attsvm.plots.curves import wilson


@dataclass(frozen=True, kw_only=True)
class StepSizes(Configuration):
    """Every field has a default; `runs_field` names the one that counts data sets."""

    sizes: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0)
    datasets: int = 60
    length: float = 60.0
    runs_field: ClassVar[str | None] = "datasets"


def tasks(configuration):
    """One chunk for each step size."""
    return [Task(f"size-{place}", {"size": size}) for place, size in enumerate(configuration.sizes)]


def compute(configuration, task, device):
    """Walk the same length with each step size; data and starts are the same for all."""
    seeds = [(configuration.seed, element) for element in range(configuration.datasets)]
    data = attsvm.data.random_sphere(n=6, T=8, d=10, batch=len(seeds), seed=seeds).to(device)
    size = task.values["size"]
    trained = attsvm.fit(
        data,
        optimizer=attsvm.NormalizedGradientDescent(size),
        steps=round(configuration.length / size),
        record=[0],
        keep=(),
        seed=seeds,
    )
    best = (trained.selected == attsvm.optimal_tokens(data)).all(-1)
    saturated = (trained.attention.amax(-1) > 0.99).all(-1)
    return Piece(
        tables={"runs": {"size": size, "dataset": np.arange(len(seeds)), "best": best}},
        counts={f"step {size:g}: not saturated": int((~saturated).sum())},
    )


def checks(result):
    """What was expected, and by whom, against what was measured."""
    shares = [result.column("runs", "best", size=size).mean() for size in result.configuration["sizes"]]
    measured = " ".join(f"{share:.2f}" for share in shares)
    return [Check("share that finds the best tokens", "the same for all (a guess)", measured,
                  Verdict.of(max(shares) - min(shares) < 0.1))]  # fmt: skip


STEP_SIZES = Experiment(
    id="step-sizes", source="own", title="Step sizes", shows="Whether the step size decides what is found", seconds=3,
    default=StepSizes(), tasks=tasks, compute=compute, checks=checks,
    columns={"runs": {"size": "of the steps", "dataset": "its number", "best": "whether the best tokens were found"}},
)  # fmt: skip

# %%
# The result is a folder with tables, a manifest and the chunks. Running it again with ``resume=True`` computes nothing.

folder = Path(tempfile.mkdtemp()) / "step-sizes"
result = run(STEP_SIZES, folder=folder)
print(sorted(path.name for path in folder.iterdir()))
print(result.tables["runs"].num_rows, "rows;", dict(result.counts))
for check in STEP_SIZES.checks(result):
    print(f"{check.what}: expected {check.expected}, measured {check.measured}: {check.verdict.value}")

# %%
# A picture from the stored result alone, with 95 % intervals.

sizes = np.array(result.configuration["sizes"])
found = np.array([result.column("runs", "best", size=size).sum() for size in sizes])
low, high = wilson(found, np.full(len(sizes), result.configuration["datasets"]))
share = found / result.configuration["datasets"]
with house_style():
    picture = Figure(figsize=(5.2, 3.3), layout="constrained")
    axes = picture.add_subplot()
    axes.errorbar(sizes, share, [share - low, high - share], fmt="o-", color=PALETTE[0], capsize=3)
    axes.set(xscale="log", xlabel="step size", ylabel="share that finds the best tokens", ylim=(0, 1))
