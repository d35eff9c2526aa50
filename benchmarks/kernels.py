"""Variants of the CUDA kernel side by side, at (6, 8, 10): ``python -m benchmarks.kernels [--jobs N] [--out FILE]``.

Each line is one kernel: seconds to compile, thousands of 2000-step runs a second, registers of a thread and bytes that
did not fit into them. With several jobs kernels are compiled side by side; they are timed one after the other.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
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
    with (Path(tempfile.gettempdir()) / "attsvm-kernels.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
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


def variants() -> dict[str, tuple[Task, dict[str, Any]]]:
    """What is compared, by name."""
    data = random_sphere(6, 8, 10, batch=RUNS, seed=Counter(1), device="cuda")
    width = random_sphere(1, 10, 10, batch=RUNS, seed=Counter(2), device="cuda").tokens[:, 0].mT
    parts = (data, attsvm.LinearHead(data.head), attsvm.Logistic(), attsvm.Weights())
    linear = Task(*parts, attsvm.NormalizedGradientDescent(0.1))
    relu = Task(data, attsvm.ReluHead(width), *parts[2:], attsvm.NormalizedGradientDescent(0.1))
    factors = Task(*parts[:3], attsvm.KeyQuery(), attsvm.NormalizedGradientDescent(0.1))
    quadratic = Task(data, attsvm.QuadraticHead(data.head, 0.3), *parts[2:], attsvm.NormalizedGradientDescent(0.1))
    single = attsvm.TokenDataset(data.tokens, torch.ones_like(data.queries[..., :1]), data.labels, head=data.head)
    return {
        "linear": (linear, {}),
        "relu": (relu, {}),
        "factors": (factors, {}),
        "adam": (Task(*parts, attsvm.Adam(0.1)), {}),
        "spectral": (Task(*parts, attsvm.SteepestDescent(attsvm.Spectral(), 0.1)), {}),
        "quadratic": (quadratic, {}),
        "prompts": (Task(single, *parts[1:], attsvm.NormalizedGradientDescent(0.1)), {}),
        "linear, loops": (linear, {"unrolled": False}),
        "relu, 40 in registers": (relu, {"tokens": 40}),
        "factors, 128 registers": (factors, {"most": 128}),
    }


NAMES = (
    "linear", "relu", "factors", "adam", "spectral", "quadratic", "prompts", "linear, loops", "relu, 40 in registers",
    "factors, 128 registers",
)  # fmt: skip


def row(name: str) -> dict[str, Any]:
    """What is found of one variant."""
    if not numba_sees_gpu():  # and loads what Numba needs for it
        raise SystemExit("Numba finds no CUDA device")
    try:
        task, variant = variants()[name]
        return measured(task, **variant)
    except Exception as error:
        return {"error": repr(error)[:600]}


def main() -> None:
    """Measure, print and write as each is done."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    rows = {}
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        working = {pool.submit(row, name): name for name in NAMES if options.only in name}
        for done in as_completed(working):
            rows[working[done]] = done.result()
            print(working[done], json.dumps(done.result()), flush=True)
            if options.out is not None:
                ordered = {name: rows[name] for name in NAMES if name in rows}
                found = {"command": f"python -m benchmarks.kernels --jobs {options.jobs}", "machine": machine()}
                options.out.write_text(json.dumps(found | {"rows": ordered}, indent=1) + "\n")


if __name__ == "__main__":
    main()
