"""Variants of the CUDA kernel side by side, at (6, 8, 10): ``python -m benchmarks.kernels [--jobs N] [--out FILE]``.

Each line is one kernel: seconds to compile, thousands of 2000-step runs a second, registers of a thread and bytes that
did not fit into them. With several jobs kernels are compiled side by side; they are timed one after the other.

``--compile`` needs no GPU: it compiles for an H100 or H200 all that would run there, the nuclear kernels too, and
counts in `benchmarks.emulator` the instructions that warps are given: for a step of a run, those of a block shared
among its runs, or for a nuclear problem. ``ptxas`` says how many registers each takes and how many bytes it spills,
where it is on the PATH and no older than the compiler (package nvidia-cuda-nvcc).
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
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch

import attsvm
from attsvm.data import random_sphere
from attsvm.data.machine import numba_sees_gpu
from attsvm.descent.engines.base import Progress
from attsvm.descent.engines.cuda.engine import Launch
from attsvm.descent.task import Task
from attsvm.svm.solvers.base import row_kinds
from attsvm.svm.solvers.nuclear.rows import normalise
from benchmarks.emulator import Counts, emulate
from benchmarks.ptx import Program
from benchmarks.record import machine

RUNS, STEPS, PROBLEMS = 132 * 8 * 4 * 5 * 8, 2000, 8


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


def assembly(kernel: Any, arguments: Sequence[Any], optimized: bool = True) -> str:
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


class Emulated:
    """In place of a CUDA kernel: compiled as for a GPU, and run in NumPy.

    Arguments:
        kernel: of Numba; its last argument but one is scratch that nobody has written on.
        optimized: whether the compiler may optimize, which takes it twice as long.
        most_blocks: how many blocks are run at most.
    """

    def __init__(self, kernel: Any, optimized: bool = True, most_blocks: int | None = None) -> None:
        self.kernel, self._optimized, self._most = kernel, optimized, most_blocks
        self.text, self.counts = "", Counts()

    def __getitem__(self, sizes: tuple[Any, ...]) -> Callable[..., None]:
        def run(*arguments: Any) -> None:
            if not self.text:
                self.text = assembly(self.kernel, arguments, self._optimized)
                self._program = Program(self.text)
            blocks, threads, _, shared = sizes
            blocks = min(blocks, self._most or blocks)
            fresh = {len(arguments) - 2}
            self.counts = emulate(self._program, arguments, threads, shared=shared, blocks=blocks, fresh=fresh)

        return run


def steps_of(task: Task, **variant: Any) -> tuple[Emulated, Counts]:
    """The kernel for a task on the CPU, and what its warps are given for a step of the runs of one block."""
    launch, runs = Launch(task, 1, None, **variant), task.data.batch_shape[0]
    launch._kernel = emulated = Emulated(launch._kernel, most_blocks=1)
    start = {name: torch.full((1, runs, *shape), 0.01, dtype=torch.float64)
             for name, shape in task.parameterization.shapes(task.data).items()}  # fmt: skip
    found = []
    for steps in (2, 6):
        launch.advance(Progress.beginning(start, task.optimizer), 0, np.full(steps, 0.1))
        found.append(emulated.counts.instructions)
    share = 4 * min(runs, launch._plan.runs)
    return emulated, Counts(Counter({name: count / share for name, count in (found[1] - found[0]).items()}))


def solved(problem: attsvm.AttentionSVM, solve: Callable[..., None]) -> tuple[np.ndarray, ...]:
    """Weights, duals, report of normalised problems; `solve` is given inputs, limits, outputs, (m, n, rx, rz)."""
    _, _, rows, _ = normalise(problem)
    assert rows is not None
    queries = rows.queries if rows.input_queries is None else rows.input_queries
    inputs = [x.contiguous().numpy() for x in (rows.differences, queries, rows.right_hand_side, row_kinds(rows))]
    (batch, m, rx), (n, rz) = inputs[0].shape, inputs[1].shape[1:]
    outputs = tuple(np.full(shape, np.nan) for shape in ((batch, rx, rz), (batch, m), (batch, 4)))
    solve(inputs, (1e4, 16), outputs, (m, n, rx, rz))
    return outputs


def nuclear_launch(kernel: Any, near: bool, inputs: Any, limits: Any, outputs: Any, sizes: tuple[int, ...]) -> None:
    """One block of the nuclear kernel, called as by `device.launch`."""
    from attsvm.svm.solvers.nuclear import device

    count = device._BOARD + sum(rows * (columns | 1) for rows, columns in device._sizes(*sizes))
    far, turn = np.full((1, 1 if near else count), np.nan), np.zeros(1, dtype=np.int64)
    launch = kernel[1, device._LANES, 0, 8 * (count if near else device._BOARD)]
    launch(*inputs, *limits, *outputs, turn, far, far.view(np.int64))


def compiled(name: str) -> dict[str, Any]:
    """How one kernel comes out of the compiler, and what it then gives the warps of a GPU to do."""
    try:
        began = time.perf_counter()
        if name.startswith("nuclear"):
            from attsvm.svm.solvers.nuclear import device

            near = name.endswith("near")
            data = random_sphere(6, 8, 10, batch=PROBLEMS, seed=1)
            emulated = Emulated(device._KERNELS[near])
            problem = attsvm.AttentionSVM(data, attsvm.optimal_tokens(data))
            _, _, report = solved(problem, partial(nuclear_launch, emulated, near))
            counts = Counts(Counter({name: n / PROBLEMS for name, n in emulated.counts.instructions.items()}))
            found: dict[str, Any] = {"of": "a problem", "largest_error": float(report[:, 0].max())}
        else:
            task, variant = variants("cpu", 20)[name]
            emulated, counts = steps_of(task, **{"unrolled": True, **variant})
            found = {"of": "a step of a run"}
        found |= {"seconds": round(time.perf_counter() - began, 1), "instructions_of_a_warp": round(counts.total)}
        found |= {kind: round(number) for kind, number in counts.by_kind().items()}
        if shutil.which("ptxas"):
            most = f"-maxrregcount={emulated.kernel.targetoptions['max_registers']}"
            with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
                file.write(emulated.text)
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
    data = random_sphere(6, 8, 10, batch=runs, seed=attsvm.data.Counter(1), device=device)
    width = random_sphere(1, 10, 10, batch=runs, seed=attsvm.data.Counter(2), device=device).tokens[:, 0].mT
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
