"""W and (K, Q) on two inputs in the plane: what the two figures of [TaSVM] with such data share.

The picture shows one data set that was chosen for its clarity; the table holds many that were not chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from attsvm.attention import KeyQuery, optimal_token_set, optimal_tokens, token_scores
from attsvm.data import TokenDataset, example
from attsvm.data.streams import Purpose, streams
from attsvm.descent import NormalizedGradientDescent, Run, fit
from attsvm.experiments.base import Check, Experiment, Verdict
from attsvm.experiments.planar import long_column, path_steps, separating_offsets, stacked
from attsvm.norms import Frobenius, Norm, Nuclear, direction_cosine
from attsvm.svm import AttentionSVM, solve
from attsvm.sweep.configuration import Configuration
from attsvm.sweep.result import SweepResult
from attsvm.sweep.task import Piece, Task, cut
from attsvm.theory import is_locally_optimal

PICTURE = -1
"""The number of the picture's data set."""
_OWN: dict[str, Norm] = {"W": Frobenius(), "KQ": Nuclear()}
"""The norm whose SVM each parameterization is known, or thought, to tend to."""

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
class PlaneRuns(Configuration):
    """From W(0) = 0, or Q(0) = 0 and K(0) Gaussian; `steps` is the paper's figure, `long_steps` follows it further."""

    datasets: int = 100
    steps: int = 2000
    long_steps: int = 20_000
    step_size: float = 0.1
    key_scale: float = 0.1
    picture_seed: int = 0
    chunk_size: int = 50

    runs_field: ClassVar[str | None] = "datasets"
    example: ClassVar[str]

    def quick(self) -> Self:
        return self.with_values(datasets=20)


def tasks(configuration: PlaneRuns) -> Sequence[Task]:
    """The picture, then chunks of data sets."""
    return [
        Task("picture"),
        *(
            Task(f"datasets-{first:05d}", {"first": first, "last": last})
            for first, last in cut(configuration.datasets, configuration.chunk_size)
        ),
    ]


def compute(configuration: PlaneRuns, task: Task, device: torch.device) -> Piece:
    """Train W and (K, Q), solve both SVMs of what each selects, follow the cosines."""
    drawn = task.name == "picture"
    elements = [PICTURE] if drawn else list(range(task.values["first"], task.values["last"]))
    seeds = [(configuration.picture_seed, 0)] if drawn else [(configuration.seed, element) for element in elements]
    data = example(configuration.example, batch=len(seeds), seed=seeds).to(device)
    record = path_steps(configuration.steps) if drawn else _sparse(configuration)
    steps = configuration.steps if drawn else configuration.long_steps
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
        problem = AttentionSVM(data, run.selected)
        solutions = {norm.name.lower(): solve(problem, norm) for norm in _OWN.values()}
        tables.append(_rows(data, run, kind, elements, {name: each.weights for name, each in solutions.items()}))
        for name, each in solutions.items():
            counts[f"{kind}: {name} SVM of the reached selection not solved"] = int((~each.solved).sum())
        counts[f"{kind}: selection changed after the paper's steps"] = _changed(run, configuration.steps)
        if drawn:
            own = solutions[_OWN[kind].name.lower()].weights
            assert run.history.weights is not None
            arrays |= {
                f"{kind}_paths": torch.einsum("rde,ie->rid", run.history.weights[:, 0], data.queries[0]),
                f"{kind}_rays": torch.einsum("de,ie->id", own[0], data.queries[0]),
                f"{kind}_offsets": separating_offsets(problem, own)[0],
                f"{kind}_selected": run.selected[0],
            }
    if drawn:
        arrays |= {
            "tokens": data.tokens[0],
            "scores": token_scores(data)[0],
            "optimal": optimal_token_set(data)[0],
        }
    return Piece(tables={"history": stacked(tables)}, arrays=arrays, counts=counts)


def _rows(
    data: TokenDataset, run: Run, kind: str, elements: Sequence[int], solutions: dict[str, Tensor]
) -> dict[str, object]:
    history = run.history
    assert history.weights is not None
    assert history.attention is not None
    shape = (len(history), len(elements))
    chosen = run.selected.expand(len(history), *run.selected.shape).unsqueeze(-1)
    return {
        "dataset": long_column(elements, shape, axis=1),
        "parameterization": kind,
        "step": long_column(history.step, shape, axis=0),
        "norm": long_column(torch.linalg.matrix_norm(history.weights), shape),
        "least_probability": long_column(history.attention.gather(-1, chosen).squeeze(-1).amin(-1), shape),
        "cosine_frobenius": long_column(direction_cosine(history.weights, solutions["frobenius"]), shape),
        "cosine_nuclear": long_column(direction_cosine(history.weights, solutions["nuclear"]), shape),
        "optimal": long_column((run.selected == optimal_tokens(data)).all(-1), shape, axis=1),
        "locally_optimal": long_column(is_locally_optimal(data, None, run.selected, _OWN[kind]).holds, shape, axis=1),
    }


def _changed(run: Run, steps: int) -> int:
    """Elements whose selection after `steps` is not the final one."""
    assert run.history.attention is not None
    at_steps = run.history.attention[run.history.step == steps][0].argmax(-1)
    return int((at_steps != run.selected).any(-1).sum())


def _sparse(configuration: PlaneRuns) -> list[int]:
    spread = np.geomspace(10, configuration.long_steps, 60).round().astype(int).tolist()
    return sorted({0, configuration.steps, *spread})


def checks(result: SweepResult) -> Sequence[Check]:
    """Each parameterization against its own SVM and the other's: the picture, then all data sets."""
    found = []
    steps, long_steps = result.configuration["steps"], result.configuration["long_steps"]
    for kind, name, own, other in (
        ("W", "W", "Frobenius", "nuclear"),
        ("KQ", "(K,Q)", "nuclear", "Frobenius"),
    ):
        picture = [
            float(
                result.column("history", f"cosine_{norm.lower()}", dataset=PICTURE, parameterization=kind, step=steps)[
                    0
                ]
            )
            for norm in (own, other)
        ]
        found.append(
            Check(f"picture: {name} to the {own} SVM and to the {other} one", "nearer to its own",
                  f"{picture[0]:.5f}, {picture[1]:.5f}", Verdict.of(picture[0] > picture[1]))
        )  # fmt: skip
        every = _unchosen(result, f"cosine_{own.lower()}", kind, steps)
        crossed = _unchosen(result, f"cosine_{other.lower()}", kind, steps)
        later = _unchosen(result, f"cosine_{own.lower()}", kind, long_steps)
        found.append(
            Check(f"{len(every)} data sets: {name}, median cosine at {steps:,}", f"nearer to the {own} SVM",
                  f"{np.median(every):.5f}, {other} {np.median(crossed):.5f}",
                  Verdict.of(bool(np.median(every) > np.median(crossed))))
        )  # fmt: skip
        share, late_share = np.mean(every > 0.99), np.mean(later > 0.99)
        found.append(
            Check(f"{len(every)} data sets: {name}, share above .99", "most", f"{share:.0%} at {steps:,},"
                  f" {late_share:.0%} at {long_steps:,}; least {every.min():.3f}, {later.min():.3f}",
                  Verdict.of(bool(share > 0.5)))
        )  # fmt: skip
    return found


def _unchosen(result: SweepResult, column: str, kind: str, step: int) -> np.ndarray:
    """The column at this step, of all data sets but the picture's."""
    values = result.column("history", column, parameterization=kind, step=step)
    datasets = result.column("history", "dataset", parameterization=kind, step=step)
    return values[datasets != PICTURE]


@dataclass(frozen=True, kw_only=True)
class Hyperplanes(PlaneRuns):
    """First tokens (1, .5) and (1, -.5), the others 0.5 N around (-1, 0), random unit queries and head."""

    picture_seed: int = 13

    example: ClassVar[str] = "hyperplanes"


HYPERPLANES = Experiment(
    id="hyperplanes",
    source="TaSVM",
    title="Separating lines",
    shows="W and (K, Q) separate the selected token of each input by the lines of their own SVMs",
    seconds=5,
    default=Hyperplanes(),
    columns=COLUMNS,
    tasks=tasks,
    compute=compute,
    checks=checks,
)


@dataclass(frozen=True, kw_only=True)
class Trajectories(PlaneRuns):
    """Tokens 0.3 N around (-1, 0) and (1, 0), random unit queries and head."""

    picture_seed: int = 29

    example: ClassVar[str] = "trajectories"


TRAJECTORIES = Experiment(
    id="trajectories",
    source="TaSVM",
    title="Paths of W z and K Q^T z",
    shows="W z_i turns to the Frobenius rays, K Q^T z_i to the nuclear ones",
    seconds=5,
    default=Trajectories(),
    columns=COLUMNS,
    tasks=tasks,
    compute=compute,
    checks=checks,
)
