"""[both papers] regularization paths tend to the max-margin solutions; gradient descent is drawn beside them.

Four kinds of path: W in a Frobenius ball; (K, Q) in a ball, which is a nuclear ball for W; the prompt p with the head
v; W behind a ReLU head with one winner, which positive labels guarantee. The joint theorem lets the head grow first, so
there ||v|| <= R^2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from attsvm.attention import KeyQuery, ReluHead, optimal_tokens
from attsvm.data import TokenDataset, example, random_sphere, starting_points
from attsvm.descent import fit
from attsvm.experiments.base import Check, Study, claim
from attsvm.experiments.common import long_table, recorded, spread_steps, stacked, streams_apart
from attsvm.norms import Nuclear, direction_cosine
from attsvm.svm import AttentionSVM, distance_to_solution_set, solve
from attsvm.sweep import Piece, SweepResult, Task
from attsvm.theory import joint_prediction, one_winner, regularization_path

_STANDING = {"W": "proved of plain gradient descent", "KQ": "conjecture"}  # what is known of the limit of descent
_NEAR = 0.01  # 1 - cosine below which a trained direction counts as that of the solution
PATHS = ("W", "KQ", "joint tight", "joint relaxed", "relu")


@dataclass(frozen=True, kw_only=True)
class RegularizationPaths(Study, identity="regularization-path"):
    """Small random data on the sphere for W, (K, Q) and the ReLU head; the paper's examples for joint training."""

    n: int = 3
    T: int = 4
    d: int = 6
    width: int = 3  # number of ReLU units
    datasets: int = 20  # random data sets of each of these paths
    least_radius: float = 1.0
    largest_radius: float = 1000.0
    radii: int = 19
    steps: int = 10_000  # of normalized gradient descent (step 0.1), drawn against its norm

    runs_field = "datasets"
    smaller: ClassVar = {"datasets": 4, "radii": 7, "steps": 4000}

    @property
    def grid(self) -> list[float]:
        """The radii."""
        return [float(each) for each in np.geomspace(self.least_radius, self.largest_radius, self.radii)]

    def tasks(self) -> Sequence[Task]:
        return [Task(name.lower().replace(" ", "-"), {"path": name}) for name in PATHS]

    def compute(self, task: Task, device: torch.device) -> Piece:
        """Follow the path, run descent beside it, measure both against the max-margin solution."""
        name = task.values["path"]
        return self._joint(name) if name.startswith("joint") else self._single(name, device)

    def _single(self, name: str, device: torch.device) -> Piece:
        count = self.datasets
        data = random_sphere(n=self.n, T=self.T, d=self.d, batch=count, seed=self.seed)
        head: Any = None
        counts: dict[str, int] = {}
        if name == "relu":
            own = streams_apart([(self.seed, number) for number in range(count)])
            matrices = [stream.standard_normal((self.d, self.width)) for stream in own]
            data = TokenDataset(data.tokens, data.queries, torch.ones_like(data.labels))
            head = ReluHead(torch.from_numpy(np.stack(matrices)))
            winner = one_winner(data, head).holds
            counts["relu: no single winner, or winner not proved"] = int((~winner).sum())
            keep = torch.nonzero(winner).flatten()
            data, head = data[keep], ReluHead(head.matrix[keep])
        kind, norm = (KeyQuery(), Nuclear()) if name == "KQ" else (None, None)
        problem = AttentionSVM(data, optimal_tokens(data, head))
        solution = solve(problem, norm)
        counts[f"{name}: SVM of the optimal tokens not solved"] = int((~solution.solved).sum())
        path = regularization_path(data, head, self.grid, parameterization=kind, seed=self.seed)
        counts[f"{name}: points of the path not stationary to the tolerance"] = int((~path.converged).sum())
        run = fit(
            data.to(device), head, parameterization=kind, steps=self.steps, keep=("weights",),
            record=spread_steps(5, self.steps, 50), seed=self.seed,
        )  # fmt: skip
        reached = (run.selected.cpu() == problem.reference).all(-1)
        counts[f"{name}: descent reached another selection (left out)"] = int((~reached).sum())

        def away(weights: Tensor) -> Tensor:
            if name != "KQ":
                return 1 - direction_cosine(weights, solution.weights)
            return torch.stack([distance_to_solution_set(each, problem, norm, solution=solution) for each in weights])

        walked, size = recorded(run).cpu(), torch.linalg.matrix_norm if norm is None else norm.value
        points = [
            _rows(name, "path", path.radii[:, None], away(path.weights)),
            _rows(name, "descent", size(walked)[:, reached], away(walked)[:, reached]),
        ]
        return Piece({"points": stacked(points)}, counts=counts)

    def _joint(self, name: str) -> Piece:
        """The prompt examples: p tends to the SVM of the support inputs, tight or relaxed."""
        identity = name.replace("joint ", "joint-training-")
        data, start = example(identity), starting_points(identity)
        assert start.head is not None
        expected = joint_prediction(data, torch.ones(data.n, dtype=torch.int64))
        radii = self.grid
        path = regularization_path(
            data, start.head[0], radii, train_head=True, head_radii=[radius**2 for radius in radii], seed=self.seed
        )
        run = fit(
            data, start.head[0], initial={"weights": start.weights[0], "head": start.head[0]}, train_head=True,
            steps=self.steps, record=spread_steps(5, self.steps, 50), keep=("weights",),
        )  # fmt: skip
        walked = recorded(run)
        sources = {"path": (path.radii, path.weights), "descent": (torch.linalg.matrix_norm(walked), walked)}
        found = [
            _rows(name, source, norms[:, None], (1 - direction_cosine(weights, expected.weights))[:, None])
            for source, (norms, weights) in sources.items()
        ]
        counts = {f"{name}: points of the path not stationary to the tolerance": int((~path.converged).sum())}
        return Piece({"points": stacked(found)}, counts=counts)

    def checks(self, result: SweepResult) -> Sequence[Check]:
        """Every path comes to its SVM, and so does descent, the slowest data set included."""
        found = []
        for name in PATHS:
            measure = "distance to the nuclear solution set" if name == "KQ" else "1 - cosine"
            first, last = (_at_end(result, name, "path", end) for end in (0, -1))
            trained = _at_end(result, name, "descent", -1)
            # A distance of unit vectors is the root of 2 (1 - cosine).
            limit = np.sqrt(2 * _NEAR) if name == "KQ" else _NEAR
            worst = f"median {np.median(trained):.1e}, worst {trained.max():.1e}; " if len(trained) else ""
            found += [
                claim(f"{name}: {measure} along the path",
                      f"tends to 0 (theorem): at R = {self.largest_radius:g} and {self.least_radius:g}",
                      f"median {np.median(last):.1e}, worst {last.max():.1e}; from {np.median(first):.1e}",
                      (last < first / 10).all(), "it does not fall below a tenth on a data set",
                      enough=self.largest_radius >= 100 * self.least_radius, why="asked of a hundredfold R"),
                claim(f"{name}: {measure} of descent in the end",
                      f"the same limit ({_STANDING.get(name, 'proved of the path alone')})",
                      f"{worst}{len(trained)} of {len(last)} data sets", (trained < limit).all(),
                      f"it is {limit:.2g} or more on a data set where descent reaches the same tokens",
                      enough=len(trained) > 0, why="descent reached other tokens on all of them"),
            ]  # fmt: skip
        return found


def _rows(name: str, source: str, radius: Tensor, away: Tensor) -> dict[str, np.ndarray]:
    points, datasets = map(range, away.shape)
    return long_table({"point": points, "dataset": datasets}, path=name, source=source, radius=radius, distance=away)


def _at_end(result: SweepResult, name: str, source: str, end: int) -> np.ndarray:
    """Distances of all data sets at the first (0) or last (-1) radius of a path, or step of descent."""
    points = np.unique(result.column("points", "point", path=name, source=source))
    return result.column("points", "distance", path=name, source=source, point=points[end] if len(points) else 0)
