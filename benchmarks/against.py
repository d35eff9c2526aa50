"""How much faster than an earlier version: the same work by two trees of sources, in turns.

    python -m benchmarks.against 5668487^              # a commit or a tag; this is the last of 0.1.0
    python -m benchmarks.against ../other-checkout

Every part runs in a process of its own tree, on one thread, kernels loaded: first here, then there, twice over; the
shorter CPU time of each counts. Accuracy stands beside time: the largest certified gap, or how far the two versions'
numbers lie apart.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def measure() -> dict[str, dict[str, Any]]:
    """Seconds and accuracy of every part, by the attsvm that is on the path."""
    import torch

    import attsvm
    from attsvm.descent import CompiledEngine, TorchEngine

    torch.set_num_threads(1)
    small = attsvm.data.random_sphere(n=6, T=8, d=10, batch=1000, seed=0)
    wide = attsvm.data.random_sphere(n=800, T=32, d=40, seed=0)
    matrix = torch.randn(40, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    large = attsvm.AttentionSVM(wide, attsvm.logits(wide, matrix).argmax(-1))
    problem = attsvm.AttentionSVM(small, attsvm.optimal_tokens(small))

    def draws() -> dict[str, Any]:
        data = attsvm.data.random_sphere(n=6, T=8, d=10, batch=20_000, seed=1)
        return {"same": hashlib.sha256(data.tokens.numpy().tobytes()).hexdigest()}

    def fit(count: int, steps: int, engine: Any, **options: Any) -> dict[str, Any]:
        run = attsvm.fit(small[:count], steps=steps, record=steps, engine=engine, **options)
        return {"near": run.weights[:3, :3, :3].flatten().tolist()}

    def solved(problem: Any, norm: Any, solver: Any = None) -> dict[str, Any]:
        found = attsvm.solve(problem, norm, solver=solver)
        gaps = found.certificate.relative_gap.reshape(-1)
        return {"largest_gap": float(gaps.max()), "not_solved": int((~found.solved).sum())}

    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "draw 20,000 data sets (6, 8, 10)": draws,
        "fit W, compiled, 200 x 1000 steps": lambda: fit(200, 1000, CompiledEngine()),
        "fit (K, Q), compiled, 400 x 200 steps": lambda: fit(
            400, 200, CompiledEngine(), parameterization=attsvm.KeyQuery()
        ),
        "fit W, PyTorch, 200 x 200 steps": lambda: fit(200, 200, TorchEngine()),
        "Frobenius, batch of 100": lambda: solved(problem[:100], attsvm.Frobenius()),
        "Frobenius, batch of 1,000": lambda: solved(problem, attsvm.Frobenius()),
        "nuclear, batch of 100": lambda: solved(problem[:100], attsvm.Nuclear()),
        "block descent, n=800 T=32 d=40": lambda: solved(large, attsvm.Frobenius(), attsvm.BlockDescent()),
    }
    found = {}
    for name, part in parts.items():
        part()  # kernels loaded
        seconds, spent = [], 0.0
        while len(seconds) < 20 and spent < 1.5:
            began = time.process_time()
            answer = part()
            seconds.append(time.process_time() - began)
            spent += seconds[-1]
        found[name] = {"seconds": min(seconds), **answer}
    return found


def _measured(source: Path) -> dict[str, dict[str, Any]]:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [sys.executable, str(Path(__file__).resolve()), "--measure"]
    environment = {**os.environ, **threads, "PYTHONPATH": str(source)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=source)
    if done.returncode:
        raise SystemExit(f"{source} could not be measured:\n{done.stderr[-2000:]}")
    found: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(other: Path, label: str) -> list[dict[str, Any]]:
    """One row for each part: seconds there and here, how many times faster, and accuracy."""
    turns = [(_measured(ROOT / "src"), _measured(other)) for _ in range(2)]
    rows = []
    for name, new in turns[0][0].items():
        old = turns[0][1][name]
        here, there = (min(turn[side][name]["seconds"] for turn in turns) for side in (0, 1))
        row: dict[str, Any] = {"part": name, "seconds_here": here, f"seconds_{label}": there}
        row["times_faster"] = there / here
        if "same" in new:
            row["same_numbers"] = new["same"] == old["same"]
        if "near" in new:
            row["largest_difference"] = max(abs(x - y) for x, y in zip(new["near"], old["near"], strict=True))
        for key in ("largest_gap", "not_solved"):
            if key in new:
                row |= {f"{key}_here": new[key], f"{key}_{label}": old[key]}
        rows.append(row)
    return rows


def main() -> None:
    """Measure both trees, print the table, write benchmarks/results/against.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("against", nargs="?", help="a commit, a tag, or the folder of another checkout")
    parser.add_argument("--measure", action="store_true", help="measure the attsvm on the path, and print JSON")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure()))
        return
    if options.against is None:
        parser.error("say what to compare with: a commit, a tag, or the folder of another checkout")
    from benchmarks.record import publish

    folder = Path(options.against)
    if (folder / "src" / "attsvm").is_dir():
        rows = compare((folder / "src").resolve(), "there")
    else:
        with tempfile.TemporaryDirectory() as place:
            archive = subprocess.run(["git", "archive", options.against, "src"], cwd=ROOT, capture_output=True)
            if archive.returncode:
                parser.error(f"{options.against} is neither a checkout nor a commit: {archive.stderr.decode().strip()}")
            subprocess.run(["tar", "-x", "-C", place], input=archive.stdout, check=True)
            rows = compare(Path(place) / "src", "there")
    publish("against", rows, f"python -m benchmarks.against {options.against}")


if __name__ == "__main__":
    main()
