"""W and (K, Q) on two inputs in the plane: what the two figures of [TaSVM] with such data share.

The picture shows one data set that was chosen for its clarity; the table holds many that were not chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from attsvm.attention import KeyQuery, optimal_token_set, optimal_tokens, token_scores
from attsvm.data import TokenDataset, example
from attsvm.data.streams import Purpose, streams
from attsvm.descent import NormalizedGradientDescent, Run, fit
from attsvm.experiments.base import Check, Experiment, Verdict
from attsvm.experiments.common import (
    NORMS,
    DataSets,
    cosine_columns,
    long_column,
    own_svms,
    path_steps,
    seeds_of,
    selected_attention,
    separating_offsets,
    spread_steps,
    stacked,
    turning,
)
from attsvm.svm import AttentionSVM, SVMSolution
from attsvm.sweep import Piece, SweepResult, Task
from attsvm.theory import is_locally_optimal

PICTURE = -1  # the number of the picture's data set
_OWN = {"W": "frobenius", "KQ": "nuclear"}  # the norm whose SVM each parameterization is known, or thought, to tend to
_EQUAL = 1e-3  # cosines that differ by less say nothing about which solution is nearer

COLUMNS = {
    "history": {
        "dataset": "number of the data set; -1 is the picture's, which has a seed of its own",
        "parameterization": "what was trained: W, or K and Q",
        "step": "steps taken",
        "norm": "Frobenius norm of W or K Q^T",
        "least_probability": "attention on the token selected in the end, least over the inputs",
        "cosine_frobenius": "direction cosine to the Frobenius SVM of the selection reached in the end",
        "cosine_nuclear": "direction cosine to the nuclear SVM of the selection reached in the end",
        "optimal": "whether that selection is the optimal one",
        "locally_optimal": "whether it is locally optimal for the SVM of its own norm",
    }
}


@dataclass(frozen=True, kw_only=True)
class PlaneRuns(DataSets):
    """From W(0) = 0, or Q(0) = 0 and K(0) Gaussian; `steps` is the paper's figure, `long_steps` follows it further."""

    steps: int = 2000
    long_steps: int = 20_000
    step_size: float = 0.1
    key_scale: float = 0.1
    picture_seed: int = 0

    example: ClassVar[str]


def tasks(configuration: PlaneRuns) -> Sequence[Task]:
    """The picture, then chunks of data sets."""
    return [Task("picture"), *configuration.chunks()]


def compute(configuration: PlaneRuns, task: Task, device: torch.device) -> Piece:
    """Train W and (K, Q), solve both SVMs of what each selects, follow the cosines."""
    drawn = task.name == "picture"
    seeds = [(configuration.picture_seed, 0)] if drawn else seeds_of(configuration, task)
    numbers = [PICTURE] if drawn else [number for _, number in seeds]
    data = example(configuration.example, batch=len(seeds), seed=seeds).to(device)
    steps = configuration.steps if drawn else configuration.long_steps
    record = path_steps(steps) if drawn else spread_steps(10, steps, 60, configuration.steps)
    sources = streams(seeds, (len(seeds),), purpose=Purpose.PLANE_START)
    key = [configuration.key_scale * stream.standard_normal((2, 2)) for stream in sources]
    factors = {"key": torch.from_numpy(np.stack(key)).to(device), "query": torch.zeros_like(data.queries)}
    optimizer = NormalizedGradientDescent(configuration.step_size)
    runs = {
        "W": fit(data, optimizer=optimizer, initial="zeros", steps=steps, record=record),
        "KQ": fit(
            data, optimizer=optimizer, parameterization=KeyQuery(), initial=factors, steps=steps, record=record
        ),
    }  # fmt: skip
    tables: list[dict[str, object]] = []
    arrays: dict[str, Tensor] = {}
    counts: dict[str, int] = {}
    for kind, run in runs.items():
        solutions = own_svms(data, run)
        tables.append(_rows(data, run, kind, numbers, solutions))
        for name, each in solutions.items():
            counts[f"{kind}: {name} SVM of the reached selection not solved"] = int((~each.solved).sum())
        counts[f"{kind}: selection changed after the paper's steps"] = _changed(run, configuration.steps)
        if drawn:
            own = solutions[_OWN[kind]].weights
            assert run.history.weights is not None
            arrays |= {
                f"{kind}_paths": torch.einsum("rde,ie->rid", run.history.weights[:, 0], data.queries[0]),
                f"{kind}_rays": torch.einsum("de,ie->id", own[0], data.queries[0]),
                f"{kind}_offsets": separating_offsets(AttentionSVM(data, run.selected), own)[0],
                f"{kind}_selected": run.selected[0],
            }
    if drawn:
        arrays |= {"tokens": data.tokens[0], "scores": token_scores(data)[0], "optimal": optimal_token_set(data)[0]}
    return Piece(tables={"history": stacked(tables)}, arrays=arrays, counts=counts)


def _rows(
    data: TokenDataset, run: Run, kind: str, numbers: Sequence[int], solutions: Mapping[str, SVMSolution]
) -> dict[str, object]:
    """The columns of one parameterization's runs, a row for each recorded step and data set."""
    assert run.history.weights is not None
    shape = (len(run.history), len(numbers))
    local = is_locally_optimal(data, None, run.selected, NORMS[_OWN[kind]], solution=solutions[_OWN[kind]])
    return {
        "dataset": long_column(numbers, shape, axis=1),
        "parameterization": kind,
        "step": long_column(run.history.step, shape, axis=0),
        "norm": long_column(torch.linalg.matrix_norm(run.history.weights), shape),
        "least_probability": long_column(selected_attention(run).amin(-1), shape),
        **cosine_columns(run, solutions, shape),
        "optimal": long_column((run.selected == optimal_tokens(data)).all(-1), shape, axis=1),
        "locally_optimal": long_column(local.holds, shape, axis=1),
    }


def _changed(run: Run, steps: int) -> int:
    """Number of data sets whose selection after `steps` is not the final one."""
    assert run.history.attention is not None
    at_steps = run.history.attention[run.history.step == steps][0].argmax(-1)
    return int((at_steps != run.selected).any(-1).sum())


def checks(result: SweepResult) -> Sequence[Check]:
    """Each parameterization against its own SVM and the other's: the picture, then all data sets."""
    found = []
    steps, long_steps = result.configuration["steps"], result.configuration["long_steps"]
    recorded, far = np.unique(result.column("history", "step", dataset=0)), long_steps >= 10 * steps
    for kind, name, own, other in (("W", "W", "Frobenius", "nuclear"), ("KQ", "(K,Q)", "nuclear", "Frobenius")):
        columns = [f"cosine_{norm.lower()}" for norm in (own, other)]
        where = {"dataset": PICTURE, "parameterization": kind, "step": steps}
        picture = [float(result.column("history", column, **where)[0]) for column in columns]
        every, crossed = (_unchosen(result, column, kind, long_steps) for column in columns)
        # Where both SVMs have one solution the cosines agree up to rounding.
        nearer = every >= crossed - _EQUAL
        claim = "all (proved for plain gradient descent)" if kind == "W" else "all (conjecture)"
        found += [
            Check(f"picture: {name} to the {own} SVM and to the {other} one", "nearer to its own",
                  f"{picture[0]:.5f}, {picture[1]:.5f}", Verdict.of(picture[0] > picture[1]),
                  f"the cosine to the {other} SVM is the larger one at {steps:,}"),
            Check(f"all data sets: {name} nearer to the {own} SVM", claim,
                  f"{nearer.sum()} of {len(every)}; medians {np.median(every):.5f}, {other}"
                  f" {np.median(crossed):.5f}", Verdict.of(bool(nearer.all())),
                  f"the cosine to the {other} SVM is larger by {_EQUAL:g} on a data set in the end"),
            turning(f"all data sets: {name} turns to the {own} SVM", claim,
                    partial(_unchosen, result, columns[0], kind), recorded, long_steps, enough=far),
        ]  # fmt: skip
    return found


def _unchosen(result: SweepResult, column: str, kind: str, step: int) -> np.ndarray:
    """The column at this step, of all data sets but the picture's."""
    values = result.column("history", column, parameterization=kind, step=step)
    datasets = result.column("history", "dataset", parameterization=kind, step=step)
    return values[datasets != PICTURE]


def _experiment(default: PlaneRuns, title: str, shows: str) -> Experiment[PlaneRuns]:
    return Experiment(
        id=default.example, source="TaSVM", title=title, shows=shows, seconds=5, default=default, columns=COLUMNS,
        tasks=tasks, compute=compute, checks=checks,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Hyperplanes(PlaneRuns):
    """First tokens (1, .5) and (1, -.5), the others 0.5 N around (-1, 0), random unit queries and head."""

    picture_seed: int = 13

    example: ClassVar[str] = "hyperplanes"


HYPERPLANES = _experiment(
    Hyperplanes(),
    "Separating lines",
    "W and (K, Q) separate the selected token of each input by the lines of their own SVMs",
)


@dataclass(frozen=True, kw_only=True)
class Trajectories(PlaneRuns):
    """Tokens 0.3 N around (-1, 0) and (1, 0), random unit queries and head."""

    picture_seed: int = 29

    example: ClassVar[str] = "trajectories"


TRAJECTORIES = _experiment(
    Trajectories(), "Paths of W z and K Q^T z", "W z_i turns to the Frobenius rays, K Q^T z_i to the nuclear ones"
)
