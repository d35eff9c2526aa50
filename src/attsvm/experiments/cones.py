"""[TaSVM, local convergence; talk] descent started inside cones of growing opening and norm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from attsvm.attention import optimal_tokens
from attsvm.data import TokenDataset, random_sphere, streams
from attsvm.experiments.base import Check, Experiment, Verdict
from attsvm.svm import AttentionSVM, solve
from attsvm.sweep.configuration import Configuration
from attsvm.sweep.result import SweepResult
from attsvm.sweep.task import Piece, Task, cut
from attsvm.theory import is_locally_optimal, locally_optimal_selections, search_cone

KINDS = ("global", "local", "not local")
# Selections for the control are drawn from streams apart from those that drew the data.
_APART = 1_000_003


@dataclass(frozen=True, kw_only=True)
class Cones(Configuration):
    """Random data on the sphere; normalized descent with step 0.1 from directions around W_mm.

    Arguments:
        openings: mu = 1 - cosine of the start to W_mm.
        radii: norm of the start.
        directions: random directions of each cell.
    """

    n: int = 4
    T: int = 6
    d: int = 6
    datasets: int = 100
    openings: tuple[float, ...] = (1e-5, 1e-4, 0.001, 0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 1.0)
    radii: tuple[float, ...] = (1.0, 10.0, 100.0, 1000.0)
    directions: int = 16
    steps: int = 5000
    chunk_size: int = 10

    runs_field: ClassVar[str | None] = "datasets"

    def quick(self) -> Self:
        return self.with_values(datasets=10, directions=4, steps=3000)


def tasks(configuration: Cones) -> Sequence[Task]:
    """Chunks of data sets."""
    parts = cut(configuration.datasets, configuration.chunk_size)
    return [Task(f"data-{first:05d}", {"first": first, "last": last}) for first, last in parts]


def compute(configuration: Cones, task: Task, device: torch.device) -> Piece:
    """For a selection of each kind of every data set: the share of starts that end at it."""
    first, last = task.values["first"], task.values["last"]
    seeds = [(configuration.seed, element) for element in range(first, last)]
    data = random_sphere(n=configuration.n, T=configuration.T, d=configuration.d, batch=len(seeds), seed=seeds)
    rows: dict[str, list[np.ndarray]] = {}
    counts = {f"{kind}: no such separable selection": 0 for kind in KINDS}
    chosen = [_selections(data[place], seed) for place, seed in enumerate(seeds)]
    grid = np.meshgrid(configuration.openings, configuration.radii, indexing="ij")
    for kind in KINDS:
        there = [place for place, found in enumerate(chosen) if kind in found]
        counts[f"{kind}: no such separable selection"] += len(seeds) - len(there)
        if not there:
            continue
        search = search_cone(
            data[there].to(device),
            selected=torch.stack([chosen[place][kind] for place in there]).to(device),
            openings=configuration.openings,
            radii=configuration.radii,
            directions=configuration.directions,
            steps=configuration.steps,
            seed=[seeds[place] for place in there],
        )
        cells = grid[0].size
        columns = {
            "dataset": np.repeat([first + place for place in there], cells),
            "kind": np.repeat(kind, len(there) * cells),
            "opening": np.tile(grid[0].ravel(), len(there)),
            "radius": np.tile(grid[1].ravel(), len(there)),
            "returned": search.returned.cpu().numpy().reshape(-1),
            "unsaturated": search.unsaturated.cpu().numpy().reshape(-1),
            "cosine": search.cosine.cpu().numpy().reshape(-1),
        }
        for name, values in columns.items():
            rows.setdefault(name, []).append(values)
    return Piece(tables={"cells": {name: np.concatenate(parts) for name, parts in rows.items()}}, counts=counts)


def _selections(data: TokenDataset, seed: tuple[int, int]) -> dict[str, Tensor]:
    """The optimal selection, another locally optimal one of least norm, and a separable one that is not; if there."""
    best = optimal_tokens(data)
    found = {"global": best} if bool(solve(AttentionSVM(data, best)).solved) else {}
    optima = locally_optimal_selections(data)
    others = optima.selections[~optima.is_optimal]
    if len(others):
        found["local"] = others[0]
    stream = streams([(seed[0] + _APART, seed[1])], (1,))[0]
    drawn = torch.from_numpy(stream.integers(0, data.T, (200, data.n)))
    local = is_locally_optimal(_copies(data, len(drawn)), None, drawn)
    control = torch.nonzero(local.feasible & ~local.holds)
    if len(control):
        found["not local"] = drawn[int(control[0])]
    return found


def _copies(data: TokenDataset, count: int) -> TokenDataset:
    def repeated(value: Tensor) -> Tensor:
        return value.expand(count, *value.shape)

    assert data.head is not None
    return TokenDataset(repeated(data.tokens), repeated(data.queries), repeated(data.labels), head=repeated(data.head))


def checks(result: SweepResult) -> Sequence[Check]:
    """Narrow cones with large norm lead back to locally optimal selections, and not to others."""
    narrow, wide = min(result.configuration["openings"]), max(result.configuration["openings"])
    large, small = max(result.configuration["radii"]), min(result.configuration["radii"])

    def share(kind: str, opening: float, radius: float) -> float:
        return float(np.nanmean(result.column("cells", "returned", kind=kind, opening=opening, radius=radius)))

    near = {kind: share(kind, narrow, large) for kind in KINDS}
    return [
        Check(f"global: returned from opening {narrow:g}, norm {large:g}", "all, for a norm large enough",
              f"{near['global']:.1%}", Verdict.of(near["global"] == 1)),
        Check(f"local: returned from opening {narrow:g}, norm {large:g}", "all, for a norm large enough",
              f"{near['local']:.1%}", Verdict.of(True) if near["local"] == 1 else Verdict.OPEN,
              "which norm is large enough depends on the data; much larger ones leave no time to tell"),
        Check(f"the same start: local, not local, norm {large:g}", "local far more often",
              f"{near['local']:.1%}, {near['not local']:.1%}", Verdict.of(near["local"] > near["not local"] + 0.5)),
        Check(f"not local: stayed from opening {narrow:g}, norm {small:g}", "none in the end",
              f"{share(KINDS[2], narrow, small):.1%}", Verdict.of(share(KINDS[2], narrow, small) < 0.05)),
        Check(f"global: success falls as the cone opens, norm {large:g}", "yes",
              f"{share('global', narrow, large):.1%} to {share('global', wide, large):.1%}",
              Verdict.of(share("global", wide, large) < share("global", narrow, large))),
        Check(f"global: a larger norm confines runs, opening {wide:g}", "yes",
              f"{share('global', wide, small):.1%} to {share('global', wide, large):.1%}",
              Verdict.of(share("global", wide, large) < share("global", wide, small))),
    ]  # fmt: skip


CONES = Experiment(
    id="cones",
    source="TaSVM, talk",
    title="Cones of attraction",
    shows="descent started near W_mm and far out returns to it exactly where alpha is locally optimal",
    seconds=350,
    default=Cones(),
    columns={
        "cells": {
            "dataset": "number of the data set",
            "kind": "of the selection: global, local, or separable but not locally optimal",
            "opening": "1 - cosine of the start to W_mm",
            "radius": "norm of the start",
            "returned": "share of starts that ended with every input above 0.9 attention on the selection",
            "unsaturated": "share of starts whose attention was still spread in the end; counted as not returned",
            "cosine": "smallest final cosine to W_mm",
        }
    },
    tasks=tasks,
    compute=compute,
    checks=checks,
)
