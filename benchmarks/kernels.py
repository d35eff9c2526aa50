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
from attsvm.descent.engines.base import Progress
from attsvm.descent.engines.cuda.engine import Launch
from attsvm.descent.engines.cuda.kernel import registers_of
from attsvm.descent.engines.kernel_task import KernelData
from attsvm.descent.task import Task

RUNS, STEPS = 132 * 8 * 4 * 5 * 8, 2000


def measured(task: Task, threads: int | None, **variant: Any) -> dict[str, Any]:
    """One kernel: compiled with two steps, then timed."""
    start = {name: torch.zeros(1, RUNS, *shape, dtype=torch.float64, device="cuda") + 0.01
             for name, shape in task.parameterization.shapes(task.data).items()}  # fmt: skip
    progress = Progress.beginning(start, task.optimizer)
    began = time.perf_counter()
    launch = Launch(task, 1, threads, **variant)
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
    data = random_sphere(6, 8, 10, batch=RUNS, seed=Counter(1), device="cuda")
    width = random_sphere(1, 10, 10, batch=RUNS, seed=Counter(2), device="cuda").tokens[:, 0].mT
    parts = (data, attsvm.LinearHead(data.head), attsvm.Logistic(), attsvm.Weights())
    linear = Task(*parts, attsvm.NormalizedGradientDescent(0.1))
    relu = Task(data, attsvm.ReluHead(width), *parts[2:], attsvm.NormalizedGradientDescent(0.1))
    factors = Task(*parts[:3], attsvm.KeyQuery(), attsvm.NormalizedGradientDescent(0.1))
    adam = Task(*parts, attsvm.Adam(0.1))
    own = registers_of(KernelData.of(linear).shape(linear))
    variants: dict[str, tuple[Task, int | None, dict[str, Any]]] = {
        "linear": (linear, None, {}),
        "linear, 96 threads": (linear, 96, {}),
        "linear, 192 threads": (linear, 192, {}),
        "linear, scores in registers": (linear, None, {"registers": own | {"data_scores"}}),
        "linear, moved in memory": (linear, None, {"registers": own - {"moved"}}),
        "linear, 168 registers": (linear, None, {"most": 168}),
        "linear, tokens in memory": (linear, None, {"registers": own - {"data_tokens"}}),
        "linear, tokens in memory, 128 registers": (linear, None, {"registers": own - {"data_tokens"}, "most": 128}),
        "linear, nothing in registers": (linear, None, {"registers": frozenset()}),
        "relu": (relu, None, {}),
        "relu, tokens in memory": (relu, None, {"registers": own - {"data_tokens"}}),
        "relu, tokens in memory, 128 registers": (relu, None, {"registers": own - {"data_tokens"}, "most": 128}),
        "factors": (factors, None, {}),
        "adam": (adam, None, {}),
    }
    rows = {}
    for name, (task, threads, variant) in variants.items():
        if options.only in name:
            try:
                rows[name] = measured(task, threads, **variant)
            except Exception as error:
                rows[name] = {"error": repr(error)[:600]}
            print(name, json.dumps(rows[name]), flush=True)
            if options.out is not None:
                options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
