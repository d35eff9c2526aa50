"""What a million data sets say: the law behind `attsvm sweep benchmarks/studies/million.toml`.

    python -m benchmarks.million FOLDER [--out benchmarks/results/million.json] [--picture FILE.png]

For each share of runs p (those that reach the optimum; those whose selection is locally optimal) two laws are fitted by
maximum likelihood, one for each way in which a share can depend on a number, and the better one by deviance is kept:

    failures add up:  -log p        = C n^a (T - 1)^b d^c
    odds:             p / (1 - p)   = C n^a (T - 1)^b d^c

Intervals of the exponents are 95 %, widened by the square root of the dispersion (deviance over degrees of freedom),
since no law of this kind is exact for so many runs; the largest and the median miss of a cell are printed beside them.
The law is fitted without the cells of the largest d too, and then predicts them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

LAWS = {
    "failures add up": lambda linear: np.exp(-np.exp(linear)),
    "odds": expit,
}


def fitted(name: str, features: np.ndarray, hits: np.ndarray, counts: np.ndarray) -> dict[str, Any]:
    """Maximum likelihood, with the covariance from the Fisher information."""
    law = LAWS[name]

    def shares(theta: np.ndarray) -> np.ndarray:
        return np.clip(law(features @ theta), 1e-12, 1 - 1e-12)

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
        "law": name,
        "theta": found.tolist(),
        "interval": np.stack([found - width, found + width], 1).tolist(),
        "deviance": deviance,
        "dispersion": dispersion,
        "median_miss": float(np.median(np.abs(p - hits / counts))),
        "largest_miss": float(np.abs(p - hits / counts).max()),
    }


def study(cells: list[dict[str, Any]], share: str) -> dict[str, Any]:
    """Both laws, and the better one's prediction of the largest d from the others."""
    sizes = np.array([[cell["n"], cell["T"] - 1, cell["d"]] for cell in cells], dtype=float)
    features = np.concatenate([np.ones((len(cells), 1)), np.log(sizes)], 1)
    counts = np.array([cell["runs"] for cell in cells], dtype=float)
    hits = np.round(np.array([cell[share] for cell in cells]) * counts)
    laws = [fitted(name, features, hits, counts) for name in LAWS]
    best = min(laws, key=lambda one: one["deviance"])
    seen = sizes[:, 2] < sizes[:, 2].max()
    part = fitted(best["law"], features[seen], hits[seen], counts[seen])
    ahead = LAWS[best["law"]](features[~seen] @ np.array(part["theta"]))
    misses = np.abs(ahead - (hits / counts)[~seen])
    return {
        "share": share,
        "best": best["law"],
        "laws": laws,
        "largest_d_predicted": {"median_miss": float(np.median(misses)), "largest_miss": float(misses.max())},
    }


def picture(cells: list[dict[str, Any]], found: dict[str, Any], path: Path) -> None:
    """Share of runs that reach the optimum against d, one panel for each T, one line for each n; the law is dashed."""
    import matplotlib.pyplot as plt

    from attsvm.plots import house_style

    tokens, inputs = (sorted({cell[name] for cell in cells}) for name in ("T", "n"))
    best = next(law for law in found["laws"] if law["law"] == found["best"])
    with house_style():
        figure, panels = plt.subplots(
            1, len(tokens), figsize=(2.2 * len(tokens), 2.6), sharey=True, layout="constrained"
        )
        for axes, T in zip(panels, tokens, strict=True):
            for k, n in enumerate(inputs):
                own = sorted((cell for cell in cells if cell["T"] == T and cell["n"] == n), key=lambda cell: cell["d"])
                d = np.array([cell["d"] for cell in own])
                fine = np.geomspace(d.min(), d.max(), 50)
                rows = np.stack([np.ones(50), np.full(50, np.log(n)), np.full(50, np.log(T - 1)), np.log(fine)], 1)
                axes.plot(fine, LAWS[best["law"]](rows @ np.array(best["theta"])), "--", color=f"C{k}", lw=0.8)
                axes.plot(d, [cell["optimal"] for cell in own], "o", color=f"C{k}", ms=3.5, label=f"n = {n}")
            axes.set_xscale("log")
            axes.set_xticks(
                sorted({cell["d"] for cell in cells}), labels=map(str, sorted({cell["d"] for cell in cells}))
            )
            axes.minorticks_off()
            axes.set_title(f"T = {T}")
            axes.set_xlabel("dimension d")
        panels[0].set_ylabel("share that reaches the optimum")
        panels[0].set_ylim(0, 1.02)
        panels[-1].legend(frameon=False, loc="upper right", handletextpad=0.2)
        figure.savefig(path, dpi=200)


def main() -> None:
    """Read the cells of a sweep, fit, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/million.json"))
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    stored = json.loads((options.folder / "cells.json").read_text())
    manifest = json.loads((options.folder / "manifest.json").read_text())
    laws = [study(stored["cells"], share) for share in ("optimal", "locally_optimal")]
    for one in laws:
        best = next(law for law in one["laws"] if law["law"] == one["best"])
        print(f"{one['share']}: {one['best']}, dispersion {best['dispersion']:.1f}")
        for name, value, (low, high) in zip(("log C", "n", "T - 1", "d"), best["theta"], best["interval"], strict=True):
            print(f"  {name:>6} {value:8.4f}   [{low:.4f}, {high:.4f}]")
        print(f"  a cell is missed by {best['median_miss']:.4f} in the median, {best['largest_miss']:.4f} at most;")
        ahead = one["largest_d_predicted"]
        print(f"  fitted without the largest d, by {ahead['median_miss']:.4f} and {ahead['largest_miss']:.4f} there")
    content = {
        "configuration": manifest["configuration"], "device": manifest["device"], "versions": manifest["versions"],
        "wall_seconds": manifest["wall_seconds"], "files": manifest["files"], "counts": stored["counts"],
        "laws": laws, "cells": stored["cells"],
    }  # fmt: skip
    options.out.write_text(json.dumps(content, indent=1) + "\n")
    if options.picture is not None:
        picture(stored["cells"], laws[0], options.picture)


if __name__ == "__main__":
    main()
