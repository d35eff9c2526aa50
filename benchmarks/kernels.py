"""Variants of the CUDA kernel side by side, at (6, 8, 10): ``python -m benchmarks.kernels [--jobs N] [--out FILE]``.

Each line is one kernel: seconds to compile, thousands of 2000-step runs a second, registers of a thread and bytes that
did not fit into them. With several jobs kernels are compiled side by side; they are timed one after the other.

``--compile`` needs no GPU: it compiles for an H100 or H200 all that would run there, the nuclear kernels too, and lets
``ptxas`` say how many registers each takes and how many bytes it spills, where it is on the PATH and no older than the
compiler (package nvidia-cuda-nvcc).
"""

from __future__ import annotations

import argparse
import fcntl
import json
import re
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

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


def launched(task: Task, starts: int = 1, **variant: Any) -> tuple[Any, tuple[np.ndarray, ...]]:
    """The kernel for a task on the CPU, and the arguments that it would be given; it is not run."""
    given: list[Any] = []
    start = {name: torch.full((starts, task.data.batch_shape[0], *shape), 0.01, dtype=torch.float64)
             for name, shape in task.parameterization.shapes(task.data).items()}  # fmt: skip
    launch = Launch(task, starts, None, **variant)
    kernel, launch._kernel = launch._kernel, mock.MagicMock()
    launch._kernel.__getitem__.return_value = lambda *arguments: given.extend(arguments)
    launch.advance(Progress.beginning(start, task.optimizer), 0, np.full(2, 0.1))
    return kernel, tuple(given)


def assembly(kernel: Any, arguments: tuple[Any, ...], optimized: bool = True) -> str:
    """PTX for compute capability 9.0, compiled without a GPU; for arguments like these."""
    numba_sees_gpu()  # loads what Numba needs
    from numba import cuda, typeof, types

    kinds = (typeof(each) for each in arguments)
    signature = tuple(types.Array(each.dtype, each.ndim, "C") if isinstance(each, types.Array) else each
                      for each in kinds)  # fmt: skip
    device = SimpleNamespace(compute_capability=(9, 0))  # functions that a kernel calls are compiled for that of here
    with mock.patch("numba.cuda.dispatcher.get_current_device", return_value=device):
        text, _ = cuda.compile_ptx(kernel.py_func, signature, cc=(9, 0), opt=optimized)
    return text


def nuclear_arguments() -> tuple[Any, ...]:
    """What a nuclear kernel is given for problems of (2, 3, 4)."""
    shapes = [(1, 4, 4), (1, 2, 2), (1, 4)]
    inputs = [*(np.zeros(shape) for shape in shapes), np.zeros((1, 4), dtype=np.int8)]
    outputs = [np.zeros(shape) for shape in ((1, 4, 2), (1, 4), (1, 4))]
    return (*inputs, 1e4, 16, *outputs, np.zeros(1, dtype=np.int64), np.zeros((1, 1)), np.zeros((1, 1), dtype=np.int64))


def compiled(name: str) -> dict[str, Any]:
    """How one kernel comes out of the compiler."""
    try:
        if name.startswith("nuclear"):
            from attsvm.svm.solvers.nuclear import device

            kernel, arguments = device._KERNELS[name.endswith("near")], nuclear_arguments()
        else:
            task, variant = variants("cpu", 8)[name]
            kernel, arguments = launched(task, **{"unrolled": True, **variant})
        began = time.perf_counter()
        text = assembly(kernel, arguments)
        found: dict[str, Any] = {"compile_s": round(time.perf_counter() - began, 1)}
        if shutil.which("ptxas"):
            most = f"-maxrregcount={kernel.targetoptions['max_registers']}"
            with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
                file.write(text)
                file.flush()
                command = ["ptxas", "-v", "-arch=sm_90", most, "-o", "/dev/null", file.name]
                said = subprocess.run(command, capture_output=True, text=True)
            if said.returncode:
                return found | {"error": said.stderr[:600]}
            for word, number in (("registers", "Used (.*?) registers"), ("bytes_spilled", "(.*?) bytes spill stores")):
                found[word] = int(re.findall(number, said.stderr)[-1].split()[-1])
        return found
    except Exception as error:
        return {"error": repr(error)[:600]}


def variants(device: str = "cuda", runs: int = RUNS) -> dict[str, tuple[Task, dict[str, Any]]]:
    """What is compared, by name."""
    data = random_sphere(6, 8, 10, batch=runs, seed=Counter(1), device=device)
    width = random_sphere(1, 10, 10, batch=runs, seed=Counter(2), device=device).tokens[:, 0].mT
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
    parser.add_argument("--compile", action="store_true", help="compile only, without a GPU")
    options = parser.parse_args()
    rows: dict[str, Any] = {}
    names, work = ((*NAMES, "nuclear, far", "nuclear, near"), compiled) if options.compile else (NAMES, row)
    said = f"python -m benchmarks.kernels{' --compile' if options.compile else ''} --jobs {options.jobs}"
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        working = {pool.submit(work, name): name for name in names if options.only in name}
        for done in as_completed(working):
            rows[working[done]] = done.result()
            print(working[done], json.dumps(done.result()), flush=True)
            if options.out is not None:
                ordered = {name: rows[name] for name in names if name in rows}
                found = {"command": said, "machine": machine()}
                options.out.write_text(json.dumps(found | {"rows": ordered}, indent=1) + "\n")


if __name__ == "__main__":
    main()
