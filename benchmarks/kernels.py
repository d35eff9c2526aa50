"""Variants of the CUDA kernel side by side, at (6, 8, 10): ``python -m benchmarks.kernels [--out FILE.json]``.

Each line is one kernel: seconds to compile, thousands of 2000-step runs a second, registers of a thread and bytes that
did not fit into them.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import attsvm
from attsvm.data import Counter, random_sphere
from attsvm.data.machine import numba_sees_gpu
from attsvm.descent.engines.base import Progress
from attsvm.descent.engines.cuda.engine import Launch
from attsvm.descent.task import Task
from benchmarks.record import machine

RUNS, STEPS = 132 * 8 * 4 * 5 * 8, 2000


def measured(task: Task, **variant: Any) -> dict[str, Any]:
    """One kernel: compiled with two steps, then timed."""
    start = {name: torch.zeros(1, RUNS, *shape, dtype=torch.float64, device="cuda") + 0.01
             for name, shape in task.parameterization.shapes(task.data).items()}  # fmt: skip
    progress = Progress.beginning(start, task.optimizer)
    began = time.perf_counter()
    launch = Launch(task, 1, None, **variant)
    launch.advance(progress, 0, np.full(2, 0.1))
    torch.cuda.synchronize()
    compiled = time.perf_counter() - began
    times = []
    for _ in range(2):
        progress = Progress.beginning(start, task.optimizer)
        began = time.perf_counter()
        launch.advance(progress, 0, np.full(STEPS, 0.1))
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    kernel = launch._kernel
    found: dict[str, Any] = {"compile_s": round(compiled, 1), "thousand_runs_a_second": round(RUNS / min(times) / 1e3)}
    for name in ("get_regs_per_thread", "get_local_mem_per_thread", "get_shared_mem_per_block"):
        try:
            value = getattr(kernel, name)()
            found[name] = next(iter(value.values())) if isinstance(value, dict) else value
        except Exception as error:
            found[name] = repr(error)[:80]
    return found


def main() -> None:
    """Measure, print and write as each is done."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    if not numba_sees_gpu():  # and loads what Numba needs for it
        parser.error("Numba finds no CUDA device")
    data = random_sphere(6, 8, 10, batch=RUNS, seed=Counter(1), device="cuda")
    width = random_sphere(1, 10, 10, batch=RUNS, seed=Counter(2), device="cuda").tokens[:, 0].mT
    parts = (data, attsvm.LinearHead(data.head), attsvm.Logistic(), attsvm.Weights())
    linear = Task(*parts, attsvm.NormalizedGradientDescent(0.1))
    relu = Task(data, attsvm.ReluHead(width), *parts[2:], attsvm.NormalizedGradientDescent(0.1))
    factors = Task(*parts[:3], attsvm.KeyQuery(), attsvm.NormalizedGradientDescent(0.1))
    adam = Task(*parts, attsvm.Adam(0.1))
    spectral = Task(*parts, attsvm.SteepestDescent(attsvm.Spectral(), 0.1))
    quadratic = Task(data, attsvm.QuadraticHead(data.head, 0.3), *parts[2:], attsvm.NormalizedGradientDescent(0.1))
    single = attsvm.TokenDataset(data.tokens, torch.ones_like(data.queries[..., :1]), data.labels, head=data.head)
    prompts = Task(single, *parts[1:], attsvm.NormalizedGradientDescent(0.1))
    variants: dict[str, tuple[Task, dict[str, Any]]] = {
        "linear": (linear, {}),
        "relu": (relu, {}),
        "factors": (factors, {}),
        "adam": (adam, {}),
        "spectral": (spectral, {}),
        "quadratic": (quadratic, {}),
        "prompts": (prompts, {}),
        "relu, 40 in registers": (relu, {"tokens": 40}),
        "factors, 128 registers": (factors, {"most": 128}),
        "linear, loops": (linear, {"unrolled": False}),
    }
    rows = {}
    for name, (task, variant) in variants.items():
        if options.only in name:
            try:
                rows[name] = measured(task, **variant)
            except Exception as error:
                rows[name] = {"error": repr(error)[:600]}
            print(name, json.dumps(rows[name]), flush=True)
            if options.out is not None:
                found = {"command": "python -m benchmarks.kernels", "machine": machine(), "rows": rows}
                options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
