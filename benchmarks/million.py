"""What a million data sets say: the law behind `attsvm sweep benchmarks/studies/million.toml`.

    python -m benchmarks.million FOLDER [--fresh FOLDER] [--out benchmarks/results/million.json] [--picture FILE.png]
    python -m benchmarks.million --times cuda [--runs 250000] [--out FILE.json]

The second form measures what a sweep is made of at n = 6, T = 8, d = 10, in seconds per million, compiled before.

Failures add up: the share p of runs that reach the optimum is fitted by maximum likelihood as

    power        -log p = C n^a (T - 1)^b d^c
    ratio        -log p = C n^a exp(-k d / (T - 1))
    quadratic    log(-log p) = a quadratic polynomial in log n, log(T - 1), log d

The first two are laws, the third interpolates. Intervals of the parameters are 95 %, widened by the square root of the
dispersion (deviance over degrees of freedom), since no such law is exact for so many runs; the largest and the median
miss of a cell stand beside them. Each is fitted without the cells of the largest d too, and then predicts them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

from benchmarks.record import machine


def power(n: np.ndarray, T: np.ndarray, d: np.ndarray) -> np.ndarray:
    """1, log n, log(T - 1), log d."""
    return np.stack([np.ones_like(n), np.log(n), np.log(T - 1), np.log(d)], 1)


def ratio(n: np.ndarray, T: np.ndarray, d: np.ndarray) -> np.ndarray:
    """1, log n, -d / (T - 1)."""
    return np.stack([np.ones_like(n), np.log(n), -d / (T - 1)], 1)


def quadratic(n: np.ndarray, T: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Products of at most two logarithms."""
    linear = power(n, T, d)
    return np.stack([linear[:, i] * linear[:, j] for i in range(4) for j in range(i, 4)], 1)


LAWS = {
    power: ("log C", "n", "T - 1", "d"),
    ratio: ("log C", "n", "d / (T - 1)"),
    quadratic: tuple(f"{a} {b}" for k, a in enumerate("1nTd") for b in "1nTd"[k:]),
}


def share(features: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """p of a law."""
    return np.exp(-np.exp(np.clip(features @ theta, -30.0, 6.0)))


def fitted(features: np.ndarray, hits: np.ndarray, counts: np.ndarray) -> dict[str, Any]:
    """Maximum likelihood, with the covariance from the Fisher information."""

    def shares(theta: np.ndarray) -> np.ndarray:
        return np.clip(share(features, theta), 1e-12, 1 - 1e-12)

    def loss(theta: np.ndarray) -> float:
        p = shares(theta)
        return -float((hits * np.log(p) + (counts - hits) * np.log1p(-p)).sum()) / counts.sum()

    start = np.zeros(features.shape[1])
    found = minimize(loss, start, method="BFGS", options={"gtol": 1e-10}).x
    for _ in range(3):  # BFGS stops at the noise of its differences
        found = minimize(loss, found, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-16, "maxiter": 20000}).x
    p, step = shares(found), 1e-6
    slopes = np.stack(
        [(shares(found + step * e) - shares(found - step * e)) / (2 * step) for e in np.eye(len(found))], 1
    )
    information = (slopes * (counts / (p * (1 - p)))[:, None]).T @ slopes
    observed = np.clip(hits / counts, 1e-12, 1 - 1e-12)
    saturated = hits * np.log(observed / p) + (counts - hits) * np.log((1 - observed) / (1 - p))
    deviance = 2 * float(saturated.sum())
    dispersion = max(1.0, deviance / max(1, len(hits) - len(found)))
    width = 1.96 * np.sqrt(np.diag(np.linalg.inv(information)) * dispersion)
    return {
        "theta": found.tolist(),
        "interval": np.stack([found - width, found + width], 1).tolist(),
        "deviance": deviance,
        "dispersion": dispersion,
        "median_miss": float(np.median(np.abs(p - hits / counts))),
        "largest_miss": float(np.abs(p - hits / counts).max()),
    }


def study(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """Every law, and what it predicts of the largest d from the others."""
    n, T, d, counts = (np.array([cell[name] for cell in cells], dtype=float) for name in ("n", "T", "d", "runs"))
    hits = np.round(np.array([cell["optimal"] for cell in cells]) * counts)
    seen = d < d.max()
    found = {}
    for law in LAWS:
        features = law(n, T, d)
        part = fitted(features[seen], hits[seen], counts[seen])
        misses = np.abs(share(features[~seen], np.array(part["theta"])) - (hits / counts)[~seen])
        ahead = {"median_miss": float(np.median(misses)), "largest_miss": float(misses.max())}
        found[law.__name__] = {**fitted(features, hits, counts), "largest_d_predicted": ahead}
    return found


def judged(laws: dict[str, Any], cells: list[dict[str, Any]]) -> dict[str, Any]:
    """How far each fitted law is from cells it has not seen."""
    n, T, d, measured = (np.array([cell[name] for cell in cells], dtype=float) for name in ("n", "T", "d", "optimal"))
    found = {}
    for law in LAWS:
        misses = np.abs(share(law(n, T, d), np.array(laws[law.__name__]["theta"])) - measured)
        found[law.__name__] = {
            "cells": len(cells),
            "median_miss": float(np.median(misses)),
            "largest_miss": float(misses.max()),
        }
    return found


def picture(cells: list[dict[str, Any]], found: dict[str, Any], path: Path) -> None:
    """Share of runs at the optimum against d, one panel for each T, one colour for each n; dashed: the ratio law."""
    import matplotlib.pyplot as plt

    from attsvm.plots import house_style

    tokens, inputs = (sorted({cell[name] for cell in cells}) for name in ("T", "n"))
    theta = np.array(found["ratio"]["theta"])
    with house_style():
        figure, panels = plt.subplots(
            1, len(tokens), figsize=(2.2 * len(tokens), 2.8), sharey=True, layout="constrained"
        )
        for axes, T in zip(panels, tokens, strict=True):
            for k, n in enumerate(inputs):
                own = sorted((cell for cell in cells if cell["T"] == T and cell["n"] == n), key=lambda cell: cell["d"])
                d = np.array([cell["d"] for cell in own])
                fine = np.geomspace(d.min(), d.max(), 50)
                rows = ratio(np.full(50, float(n)), np.full(50, float(T)), fine)
                axes.plot(fine, share(rows, theta), "--", color=f"C{k}", lw=0.8)
                axes.plot(d, [cell["optimal"] for cell in own], "o", color=f"C{k}", ms=3.5, label=f"n = {n}")
            axes.set_xscale("log")
            axes.set_xticks(
                sorted({cell["d"] for cell in cells}), labels=map(str, sorted({cell["d"] for cell in cells}))
            )
            axes.minorticks_off()
            axes.set_title(f"T = {T}")
            axes.set_xlabel("dimension d")
        panels[0].set_ylabel("share at the optimum")
        panels[0].set_ylim(0, 1.02)
        figure.legend(
            *panels[0].get_legend_handles_labels(),
            loc="outside lower center",
            ncols=len(inputs),
            frameon=False,
            handletextpad=0.2,
        )
        figure.savefig(path, dpi=200)


def times(device: str, runs: int) -> dict[str, Any]:
    """Seconds per million data sets of every part of a sweep, each done once before it is timed."""
    import torch

    import attsvm
    from attsvm.data import Counter, random_sphere

    def clock() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    few, found = max(1, runs // 10), {}
    data = random_sphere(6, 8, 10, batch=runs, seed=Counter(1), device=device)
    run = attsvm.fit(data, initial="zeros", steps=2000, record=2000, keep=())
    problem = attsvm.svm.AttentionSVM(data, run.selected)
    solution = attsvm.solve(problem)
    stop = attsvm.descent.Saturated(1e-3, 50)
    relu = attsvm.ReluHead(random_sphere(1, 10, 10, batch=runs, seed=Counter(2), device=device).tokens[:, 0].mT)
    parts: dict[str, tuple[int, Callable[[], Any]]] = {
        "draw, streams of NumPy on one core": (runs, lambda: random_sphere(6, 8, 10, batch=runs, seed=1)),
        "draw, counter on the device": (
            runs, lambda: random_sphere(6, 8, 10, batch=runs, seed=Counter(1), device=device)),
        "train, 2000 steps": (
            runs, lambda: attsvm.fit(data, initial="zeros", steps=2000, record=2000, keep=())),
        "train, 2000 steps, ReLU head": (
            runs, lambda: attsvm.fit(data, relu, initial="zeros", steps=2000, record=2000, keep=())),
        "train until saturated": (
            runs, lambda: attsvm.fit(data, initial="zeros", steps=2000, record=2000, keep=(), stop=stop)),
        "solve and certify, Frobenius": (runs, lambda: attsvm.solve(problem)),
        "solve and certify, nuclear": (few, lambda: attsvm.solve(problem[:few], attsvm.Nuclear())),
        "locally optimal": (
            runs, lambda: attsvm.theory.is_locally_optimal(data, None, run.selected, None, solution)),
    }  # fmt: skip
    for _ in range(2):
        for name, (count, part) in parts.items():
            began = clock()
            part()
            found[name] = (clock() - began) * 1e6 / count
    for name, seconds in found.items():
        print(f"{name:<36} {seconds:10.2f} s per million")
    name = machine()["gpu" if device == "cuda" else "processor"]
    return {"device": name, "runs": runs, "seconds": found}


def main() -> None:
    """Read the cells of a sweep, fit, print, write; or measure the parts of one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--times", choices=["cpu", "cuda"])
    parser.add_argument("--runs", type=int, default=250_000)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/million.json"))
    parser.add_argument("--fresh", type=Path, help="a sweep of other sizes, on which the fitted laws are judged")
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    if options.times is not None:
        options.out.write_text(json.dumps(times(options.times, options.runs), indent=1) + "\n")
        return
    if options.folder is None:
        parser.error("give the folder of a sweep, or --times")
    stored = json.loads((options.folder / "cells.json").read_text())
    manifest = json.loads((options.folder / "manifest.json").read_text())
    laws = study(stored["cells"])
    for law, names in LAWS.items():
        one = laws[law.__name__]
        print(f"{law.__name__}: dispersion {one['dispersion']:.1f}")
        for name, value, (low, high) in zip(names, one["theta"], one["interval"], strict=True):
            print(f"  {name:>12} {value:8.4f}   [{low:.4f}, {high:.4f}]")
        print(f"  a cell is missed by {one['median_miss']:.4f} in the median, {one['largest_miss']:.4f} at most;")
        ahead = one["largest_d_predicted"]
        print(f"  fitted without the largest d, by {ahead['median_miss']:.4f} and {ahead['largest_miss']:.4f} there")
    if options.fresh is not None:
        fresh = json.loads((options.fresh / "cells.json").read_text())
        for name, one in judged(laws, fresh["cells"]).items():
            print(f"{name} on {len(fresh['cells'])} other sizes: missed by {one['median_miss']:.4f} in the median,"
                  f" {one['largest_miss']:.4f} at most")  # fmt: skip
            laws[name]["fresh"] = one
    content = {
        "configuration": manifest["configuration"], "device": manifest["device"], "versions": manifest["versions"],
        "wall_seconds": manifest["wall_seconds"], "files": manifest["files"], "counts": stored["counts"],
        "laws": laws,
    }  # fmt: skip
    rows = ",\n".join(f"  {json.dumps(cell)}" for cell in stored["cells"])
    options.out.write_text(f'{json.dumps(content, indent=1)[:-2]},\n "cells": [\n{rows}\n ]\n}}\n')
    if options.picture is not None:
        picture(stored["cells"], laws, options.picture)


if __name__ == "__main__":
    main()
