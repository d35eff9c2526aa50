"""Laws of training K and Q, in numbers: ``python -m benchmarks.factor_laws --part growth``.

- ``growth``: the gap against gamma r^2, and the step at which the largest logit passes a threshold, as QK-clip has it,
  predicted from the max-margin solution of the tokens that the run selects;
- ``decay``: under weight decay, whether training ends on the ball of the regularization path (norm of W against its
  radius) and is stationary there (Frank-Wolfe gap); what is not there yet is followed with ever smaller steps.

200 data sets, random_sphere(n=3, T=4, d=5, seed=0); nothing is left out.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

import torch
from torch import Tensor

import attsvm
from attsvm.attention import gradient
from attsvm.data import TokenDataset, random_sphere
from attsvm.descent import Adam, Geometric, InverseSqrt, JointSteepestDescent, Lion, Optimizer, SteepestDescent
from attsvm.experiments.common import spread_steps
from attsvm.norms import Frobenius, LargestColumn, LargestRow, MaxEntry, Norm, Nuclear, Projective, Spectral
from benchmarks.record import RESULTS, publish

SMALL = InverseSqrt(0.3)
GROWTH: dict[str, tuple[Optimizer, int]] = {
    "gradient, each factor": (attsvm.NormalizedGradientDescent(SMALL), 1_000_000),
    "Muon": (SteepestDescent(Spectral(), SMALL), 30_000),
    "gradient, jointly": (JointSteepestDescent(Frobenius(), SMALL), 100_000),
    "rows": (SteepestDescent(LargestRow(), SMALL), 10_000),
    "columns": (SteepestDescent(LargestColumn(), SMALL), 10_000),
    "sign": (SteepestDescent(MaxEntry(), SMALL), 10_000),
    "Lion, as sign": (Lion(SMALL), 10_000),
    "Adam, as sign": (Adam(SMALL), 10_000),
}
"""Optimizers, and how many steps they take."""
TAUS = (100.0, 1000.0, 10_000.0)

DECAY: dict[str, tuple[Callable[..., Optimizer], Norm, float]] = {
    "Muon": (lambda *a, **k: SteepestDescent(Spectral(), *a, **k), Spectral(), 1.0),
    "gradient, each factor": (lambda *a, **k: SteepestDescent(Frobenius(), *a, **k), Nuclear(), 1.0),
    "gradient, jointly": (lambda *a, **k: JointSteepestDescent(Frobenius(), *a, **k), Nuclear(), 0.5),
    "sign": (lambda *a, **k: SteepestDescent(MaxEntry(), *a, **k), Projective(), 5.0),
}
"""How to make each optimizer, the norm of its ball, and the radius times the square of the decay."""
STAGES = (
    (Geometric(0.3, 0.999), 6_000),
    (Geometric(0.3, 0.9997), 20_000),
    (Geometric(0.3, 0.9999), 60_000),
    (Geometric(0.03, 0.999), 20_000),
)


def drawn(count: int) -> TokenDataset:
    """The data sets of this benchmark."""
    return random_sphere(n=3, T=4, d=5, batch=count, seed=0)


def grow(name: str, count: int, shorten: int) -> list[dict[str, Any]]:
    """One optimizer against the law."""
    began = time.process_time()
    optimizer, steps = GROWTH[name]
    steps //= shorten
    data, kind = drawn(count), attsvm.KeyQuery()
    law = SteepestDescent(MaxEntry(), SMALL) if name.endswith("as sign") else optimizer
    settings: dict[str, Any] = {"parameterization": kind, "optimizer": optimizer, "seed": 0, "keep": ("weights",)}
    run = attsvm.fit(data, steps=steps, record=spread_steps(10, steps, 400), **settings)
    check = attsvm.verify_growth(data, run, optimizer=law)
    ratio, step = check.ratio, check.predicted.step
    late = ratio[10 * step >= step[-1]]
    solved = check.predicted.solution.solved
    row = {
        "optimizer": name,
        "steps": steps,
        "data_sets": count,
        "not_solved": int((~solved).sum()),
        "within_5_percent_over_last_decade": int(check.holds.sum()),
        "in_the_end_median": float(ratio[-1].nanmedian()),
        "in_the_end_least": float(ratio[-1][solved].min()),
        "farthest_over_last_decade": float((late[:, solved] - 1).abs().max()),
        "above_a_bound": int((~check.within_bounds).sum()),
    }
    for tau in TAUS:
        passed = check.logit > tau
        real = torch.where(passed.any(0), step[passed.int().argmax(0)].double(), torch.nan)
        found = attsvm.growth(
            data, parameterization=kind, optimizer=law, selected=run.selected, threshold=tau, steps=[1]
        )
        assert found.passes is not None
        off = (found.passes / real - 1).abs()[~real.isnan()]
        row |= {f"tau_{tau:g}_passed": len(off), f"tau_{tau:g}_within_10_percent": int((off <= 0.1).sum())}
        if len(off):
            row |= {f"tau_{tau:g}_step_median": float(real.nanmedian()), f"tau_{tau:g}_off_median": float(off.median())}
            row |= {f"tau_{tau:g}_off_most": float(off.max())}
    return [row | {"cpu_seconds": round(time.process_time() - began, 1)}]


def stationary(data: TokenDataset, weights: Tensor, norm: Norm, radius: float) -> tuple[Tensor, Tensor]:
    """|N(W) / R - 1|, and the Frank-Wolfe gap over the ball, (<G, W> + R N°(G)) / (R N°(G))."""
    slope = gradient(data, weights)["weights"].mantissa
    most = radius * norm.dual_value(slope)
    return (norm.value(weights) / radius - 1).abs(), (slope * weights).sum((-1, -2)) / most + 1


def decay(name: str, count: int, shorten: int) -> list[dict[str, Any]]:
    """One optimizer under the decay of one radius, "NAME; R = 4"."""
    rule, _, told = name.partition("; R = ")
    make, norm, factor = DECAY[rule]
    radius = float(told)
    began = time.process_time()
    data, strength = drawn(count), (factor / radius) ** 0.5
    off, gap = torch.full((count,), torch.nan).double(), torch.full((count,), torch.nan).double()
    left, start, seeds = torch.arange(count), None, [(0, number) for number in range(count)]
    row: dict[str, Any] = {"optimizer": name, "radius": radius, "decay": strength, "data_sets": count}
    for number, (schedule, steps) in enumerate(STAGES[:1] if rule == "sign" else STAGES):
        part, taken = data[left], steps // shorten
        run = attsvm.fit(
            part, parameterization=attsvm.KeyQuery(), optimizer=make(schedule, weight_decay=strength), steps=taken,
            record=[taken], keep=(), seed=[seeds[each] for each in left.tolist()], initial=start,
        )  # fmt: skip
        off[left], gap[left] = stationary(part, run.weights, norm, radius)
        bad = (off[left] > 1e-6) | (gap[left] > 1e-6)
        row |= {f"there_after_stage_{number + 1}": count - int(bad.sum())}
        start, left = {key: value[bad] for key, value in run.parameters.items()}, left[bad]
        if not len(left):
            break
    row |= {
        "there": int(((off <= 1e-6) & (gap <= 1e-6)).sum()),
        "norm_is_radius": int((off <= 1e-6).sum()),
        "norm_off_median": float(off.median()),
        "norm_off_most": float(off.max()),
        "gap_median": float(gap.median()),
        "gap_most": float(gap.max()),
        "cpu_seconds": round(time.process_time() - began, 1),
    }
    return [row]


PARTS: dict[str, tuple[Callable[[str, int, int], list[dict[str, Any]]], dict[str, Any]]] = {
    "growth": (grow, GROWTH),
    "decay": (decay, {f"{name}; R = {radius}": None for name in DECAY for radius in (1, 4, 16)}),
}


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, required=True)
    parser.add_argument("--only", action="append", help="an optimizer of the part; all by default")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--datasets", type=int, default=200)
    parser.add_argument("--shorten", type=int, default=1, help="divide all numbers of steps by this")
    options = parser.parse_args()
    compute, cases = PARTS[options.part]
    name = f"factor_{options.part}"
    whole = options.datasets == 200 and options.shorten == 1
    file = RESULTS / f"{name}.json"
    rows: list[dict[str, Any]] = (
        json.loads(file.read_text())["rows"] if whole and options.only and file.exists() else []
    )
    asked = options.only or list(cases)
    with ProcessPoolExecutor(options.jobs) as pool:
        waiting = {pool.submit(compute, each, options.datasets, options.shorten): each for each in asked}
        for done in as_completed(waiting):
            each, found = waiting[done], done.result()
            print(*found, sep="\n", flush=True)
            rows = [*(row for row in rows if row["optimizer"] != each), *found]
            rows.sort(key=lambda row: list(cases).index(row["optimizer"]))
            if whole:
                publish(name, rows, f"python -m benchmarks.factor_laws --part {options.part}")


if __name__ == "__main__":
    main()
