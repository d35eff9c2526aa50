"""[TaSVM, local convergence; talk] descent started inside cones of growing opening and norm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from attsvm.attention import optimal_tokens
from attsvm.data import TokenDataset, random_sphere
from attsvm.data.dataset import repeated
from attsvm.experiments.base import Check, DataSets, claim
from attsvm.experiments.common import long_table, stacked, streams_apart
from attsvm.svm import AttentionSVM, solve
from attsvm.sweep import Piece, SweepResult, Task
from attsvm.theory import is_locally_optimal, locally_optimal_selections, search_cone

KINDS = ("global", "local", "not local")


@dataclass(frozen=True, kw_only=True)
class Cones(DataSets, identity="cones"):
    """Random data on the sphere; normalized descent with step 0.1 from directions around W_mm."""

    n: int = 4
    T: int = 6
    d: int = 6
    openings: tuple[float, ...] = (1e-5, 1e-4, 0.001, 0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 1.0)  # 1 - cosine to W_mm
    radii: tuple[float, ...] = (1.0, 10.0, 100.0, 1000.0)  # norm of the start
    directions: int = 16  # random directions for each opening and radius
    steps: int = 5000
    chunk_size: int = 10
    smaller: ClassVar = {"datasets": 10, "directions": 4, "steps": 3000}

    def tasks(self) -> Sequence[Task]:
        return self.chunks("data")

    def compute(self, task: Task, device: torch.device) -> Piece:
        """For a selection of each kind of every data set: the share of starts whose runs end at it."""
        seeds = self.seeds(task)
        data = random_sphere(n=self.n, T=self.T, d=self.d, batch=len(seeds), seed=seeds)
        tables: list[dict[str, np.ndarray]] = []
        counts: dict[str, int] = {}
        chosen = [_selections(data[place], seed) for place, seed in enumerate(seeds)]
        for kind in KINDS:
            there = [place for place, found in enumerate(chosen) if kind in found]
            counts[f"{kind}: no such separable selection"] = len(seeds) - len(there)
            if not there:
                continue
            search = search_cone(
                data[there].to(device), selected=torch.stack([chosen[place][kind] for place in there]).to(device),
                openings=self.openings, radii=self.radii, directions=self.directions, steps=self.steps,
                seed=[seeds[place] for place in there],
            )  # fmt: skip
            axes = {"dataset": [seeds[place][1] for place in there], "opening": self.openings, "radius": self.radii}
            found = {name: getattr(search, name) for name in ("returned", "unsaturated", "cosine")}
            tables.append(long_table(axes, kind=kind, **found))
        return Piece({"cells": stacked(tables)}, counts=counts)

    def checks(self, result: SweepResult) -> Sequence[Check]:
        """Narrow cones with large norm lead back to locally optimal selections, and not to others."""
        narrow, wide = min(self.openings), max(self.openings)
        radii = sorted(self.radii)
        large, small = radii[-1], radii[0]

        def share(kind: str, opening: float, radius: float) -> float:
            """Of the starts that return; NaN where no data set has such a selection."""
            returned = result.column("cells", "returned", kind=kind, opening=opening, radius=radius)
            return float(returned.mean()) if len(returned) else np.nan

        by_norm = {kind: [share(kind, narrow, radius) for radius in radii] for kind in KINDS}
        open_wide = [share("global", wide, radius) for radius in (small, large)]
        near = {kind: shares[-1] for kind, shares in by_norm.items()}
        there = set(result.column("cells", "kind"))
        best, other, control = (kind in there for kind in KINDS)
        return [
            claim("global: returned from the narrowest cone and largest norm",
                  "all, if the norm is large enough (paper)",
                  f"{near['global']:.1%}; opening {narrow:g}, norm {large:g}", near["global"] == 1,
                  "a start does not return", enough=best),
            claim("local: returned from the narrowest cone, as the norm grows",
                  "more and more, all in the limit (paper)", ", ".join(f"{each:.1%}" for each in by_norm["local"]),
                  all(a < b or a == b == 1 for a, b in pairwise(by_norm["local"])),
                  "no more starts return from one norm than from the one below, unless all do", enough=other),
            claim("local and not local: returned from the narrowest cone and largest norm", "local far more often",
                  f"{near['local']:.1%}, {near['not local']:.1%}", near["local"] > near["not local"] + 0.5,
                  "the shares differ by at most half of the starts", enough=other and control),
            claim("not local: stayed in the narrowest cone with the smallest norm", "none (paper)",
                  f"{by_norm['not local'][0]:.1%}; opening {narrow:g}, norm {small:g}", by_norm["not local"][0] == 0,
                  "a start stays", enough=control),
            claim("global: returned from the narrowest and the widest cone, largest norm", "fewer from the widest",
                  f"{near['global']:.1%}, {open_wide[1]:.1%}", open_wide[1] < near["global"],
                  "as many return from the widest", enough=best),
            claim("global: returned from the smallest and the largest norm, widest cone", "a larger norm confines runs",
                  f"{open_wide[0]:.1%}, {open_wide[1]:.1%}", open_wide[1] < open_wide[0],
                  "as many return from the largest norm", enough=best),
        ]  # fmt: skip


def _selections(data: TokenDataset, seed: tuple[int, int]) -> dict[str, Tensor]:
    """By kind, if there is one: the optimal selection, another locally optimal one of least norm, one that is not."""
    best = optimal_tokens(data)
    found = {"global": best} if bool(solve(AttentionSVM(data, best)).solved) else {}
    optima = locally_optimal_selections(data)
    if len(others := optima.selections[~optima.is_optimal]):
        found["local"] = others[0]
    drawn = torch.from_numpy(streams_apart([seed])[0].integers(0, data.T, (200, data.n)))
    local = is_locally_optimal(repeated(data, (len(drawn),)), None, drawn)
    if len(control := torch.nonzero(local.feasible & ~local.holds)):
        found["not local"] = drawn[int(control[0])]
    return found
