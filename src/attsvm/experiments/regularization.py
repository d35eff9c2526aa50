"""[both papers] regularization paths tend to the max-margin solutions; gradient descent is drawn beside them.

Four kinds of path: W in a Frobenius ball; (K, Q) in a ball, which is a nuclear ball for W; the prompt p with the head
v; W behind a ReLU head with one winner, which positive labels guarantee. The joint theorem lets the head grow first, so
there ||v|| <= R^2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from attsvm.attention import KeyQuery, ReluHead, optimal_tokens
from attsvm.data import TokenDataset, example, random_sphere, starting_points
from attsvm.descent import fit
from attsvm.experiments.base import Check, Experiment, Verdict
from attsvm.experiments.common import long_column, spread_steps, stacked, streams_apart
from attsvm.norms import Nuclear, direction_cosine
from attsvm.svm import AttentionSVM, distance_to_solution_set, solve
from attsvm.sweep import Configuration, Piece, SweepResult, Task
from attsvm.theory import joint_prediction, one_winner, regularization_path

PATHS = ("W", "KQ", "joint tight", "joint relaxed", "relu")


@dataclass(frozen=True, kw_only=True)
class RegularizationPaths(Configuration):
    """Small random data on the sphere for W, (K, Q) and the ReLU head; the paper's examples for joint training.

    Arguments:
        datasets: random data sets of each of these paths.
        width: number of ReLU units.
        steps: of normalized gradient descent (step 0.1), drawn against its norm.
    """

    n: int = 3
    T: int = 4
    d: int = 6
    width: int = 3
    datasets: int = 20
    least_radius: float = 1.0
    largest_radius: float = 1000.0
    radii: int = 19
    steps: int = 10_000

    runs_field: ClassVar[str | None] = "datasets"

    def quick(self) -> Self:
        return self.with_values(datasets=4, radii=7, steps=4000)

    @property
    def grid(self) -> list[float]:
        """The radii."""
        return [float(each) for each in np.geomspace(self.least_radius, self.largest_radius, self.radii)]


def tasks(configuration: RegularizationPaths) -> Sequence[Task]:
    """One task for each kind of path."""
    return [Task(name.lower().replace(" ", "-"), {"path": name}) for name in PATHS]


def compute(configuration: RegularizationPaths, task: Task, device: torch.device) -> Piece:
    """Follow the path, run descent beside it, measure both against the max-margin solution."""
    name = task.values["path"]
    if name.startswith("joint"):
        return _joint(configuration, name)
    return _single(configuration, name, device)


def _single(configuration: RegularizationPaths, name: str, device: torch.device) -> Piece:
    count = configuration.datasets
    data = random_sphere(n=configuration.n, T=configuration.T, d=configuration.d, batch=count, seed=configuration.seed)
    head: Any = None
    counts: dict[str, int] = {}
    if name == "relu":
        own = streams_apart([(configuration.seed, number) for number in range(count)])
        matrices = [stream.standard_normal((configuration.d, configuration.width)) for stream in own]
        data = TokenDataset(data.tokens, data.queries, torch.ones_like(data.labels))
        head = ReluHead(torch.from_numpy(np.stack(matrices)))
        winner = one_winner(data, head).holds
        counts["relu: no single winner, or winner not proved"] = int((~winner).sum())
        keep = torch.nonzero(winner).flatten()
        data, head = data[keep], ReluHead(head.matrix[keep])
    kind = KeyQuery() if name == "KQ" else None
    norm = Nuclear() if name == "KQ" else None
    problem = AttentionSVM(data, optimal_tokens(data, head))
    solution = solve(problem, norm)
    counts[f"{name}: SVM of the optimal tokens not solved"] = int((~solution.solved).sum())
    path = regularization_path(data, head, configuration.grid, parameterization=kind, seed=configuration.seed)
    counts[f"{name}: points of the path not stationary to the tolerance"] = int((~path.converged).sum())
    run = fit(
        data.to(device), head, parameterization=kind, steps=configuration.steps, keep=("weights",),
        record=spread_steps(5, configuration.steps, 50), seed=configuration.seed,
    )  # fmt: skip
    reached = (run.selected.cpu() == problem.reference).all(-1)
    counts[f"{name}: descent reached another selection (left out)"] = int((~reached).sum())

    def away(weights: Tensor) -> Tensor:
        if name != "KQ":
            return 1 - direction_cosine(weights, solution.weights)
        return torch.stack([distance_to_solution_set(each, problem, norm, solution=solution) for each in weights])

    def size(weights: Tensor) -> Tensor:
        return (norm.value if norm is not None else torch.linalg.matrix_norm)(weights)

    assert run.history.weights is not None
    walked = run.history.weights.cpu()
    points = [
        _rows(name, "path", path.radii[:, None], away(path.weights)),
        _rows(name, "descent", size(walked)[:, reached], away(walked)[:, reached]),
    ]
    return Piece(tables={"points": stacked(points)}, counts=counts)


def _joint(configuration: RegularizationPaths, name: str) -> Piece:
    """The prompt examples: p tends to the SVM of the support inputs, tight or relaxed."""
    identity = name.replace("joint ", "joint-training-")
    data, start = example(identity), starting_points(identity)
    assert start.head is not None
    expected = joint_prediction(data, torch.ones(data.n, dtype=torch.int64))
    radii = configuration.grid
    path = regularization_path(
        data, start.head[0], radii, train_head=True, head_radii=[radius**2 for radius in radii], seed=configuration.seed
    )
    run = fit(
        data, start.head[0], initial={"weights": start.weights[0], "head": start.head[0]}, train_head=True,
        steps=configuration.steps, record=spread_steps(5, configuration.steps, 50), keep=("weights",),
    )  # fmt: skip
    assert run.history.weights is not None
    found = [
        _rows(name, source, norms[:, None], (1 - direction_cosine(weights, expected.weights))[:, None])
        for source, norms, weights in (
            ("path", path.radii, path.weights),
            ("descent", torch.linalg.matrix_norm(run.history.weights), run.history.weights),
        )
    ]
    counts = {f"{name}: points of the path not stationary to the tolerance": int((~path.converged).sum())}
    return Piece(tables={"points": stacked(found)}, counts=counts)


def _rows(name: str, source: str, radius: Tensor, away: Tensor) -> dict[str, object]:
    shape = tuple(away.shape)  # points, data sets
    return {
        "path": name,
        "source": source,
        "dataset": long_column(range(shape[1]), shape, axis=1),
        "point": long_column(range(shape[0]), shape, axis=0),
        "radius": long_column(radius, shape),
        "distance": away,
    }


def checks(result: SweepResult) -> Sequence[Check]:
    """Every path comes to its SVM; its last distances are far below its first ones."""
    largest = result.configuration["largest_radius"]
    names = {"KQ": "distance to the nuclear solution set", "W": "1 - cosine", "relu": "1 - cosine"}
    found = []
    for name in PATHS:
        points = result.column("points", "point", path=name, source="path")
        last = result.column("points", "distance", path=name, source="path", point=points.max())
        first = result.column("points", "distance", path=name, source="path", point=0)
        limit = 1e-2 if name == "KQ" else 1e-3
        found.append(
            Check(f"{name}: {names.get(name, '1 - cosine')} at R = {largest:g}, median and worst", "tends to 0",
                  f"{np.median(last):.1e}, {last.max():.1e} (from {np.median(first):.1e})",
                  Verdict.of(bool(np.median(last) < limit and np.median(last) < 0.1 * np.median(first))))
        )  # fmt: skip
    return found


REGULARIZATION_PATH = Experiment(
    id="regularization-path",
    source="MMTS, TaSVM",
    title="Regularization paths",
    shows="the best weights in a ball turn to the max-margin solution as the ball grows, and so does descent",
    seconds=60,
    default=RegularizationPaths(),
    columns={
        "points": {
            "path": "W, KQ, joint tight, joint relaxed or relu",
            "source": "path: the best weights in a ball; descent: normalized gradient descent",
            "dataset": "number of the data set",
            "point": "number of the radius or of the recorded step",
            "radius": "R, or the norm of the iterate (nuclear for KQ, Frobenius otherwise)",
            "distance": "1 - cosine to the max-margin solution; for KQ the distance to the nuclear solution set",
        }
    },
    tasks=tasks,
    compute=compute,
    checks=checks,
)
