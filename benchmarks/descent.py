"""Descent speed against a plain PyTorch loop, in one run: ``python -m benchmarks.descent [--quick] [--device cuda]``.

``--spectral`` compares both CPU engines on spectral steps, 2000 of them on 1,000 data sets, instead; ``--one-set`` the
engine that `fit` chooses for one large data set with the plain loop, in turns.

The peer is what the papers' notebooks do for each data set: an nn.Module, autograd, an SGD step along the normalized
gradient, 2000 iterations. CPU time is process time on one thread; accuracy stands beside it: from the same start, the
largest 1 - cosine between both programs' weights after 50 steps, while autograd is sound, and the smallest cosine at
the end, when it walks along round-off (for (K,Q) from a few hundred steps on).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import torch

import attsvm
from benchmarks.record import peak_memory_mb, publish

STEPS = 2000
EARLY = 50
KINDS = {"W": attsvm.Weights(), "(K,Q)": attsvm.KeyQuery()}


class PlainAttention(torch.nn.Module):
    """One attention layer as anyone would write it."""

    def __init__(self, initial: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.factors = torch.nn.ParameterList([torch.nn.Parameter(value.clone()) for value in initial.values()])

    def combined(self) -> torch.Tensor:
        """W, or K Q^T."""
        return self.factors[0] if len(self.factors) == 1 else self.factors[0] @ self.factors[1].T

    def forward(self, tokens: torch.Tensor, queries: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
        """f_i = v^T X_i^T softmax(X_i W z_i)."""
        attention = torch.softmax(torch.einsum("ntd,de,ne->nt", tokens, self.combined(), queries), dim=-1)
        if head.ndim == 2:
            return torch.einsum("nt,ntd,dk->nk", attention, tokens, head).relu().sum(-1)
        return torch.einsum("nt,ntd,d->n", attention, tokens, head)


def plain_loop(
    data: attsvm.TokenDataset, initial: dict[str, torch.Tensor], steps: int, relu: torch.Tensor | None = None
) -> torch.Tensor:
    """Train one data set by autograd and normalized SGD steps; its own head, or a ReLU head."""
    head = data.head if relu is None else relu
    model = PlainAttention(initial)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        risk = torch.nn.functional.softplus(-data.labels * model(data.tokens, data.queries, head)).mean()
        risk.backward()
        for factor in model.parameters():
            norm = factor.grad.norm()
            if norm > 0:
                factor.grad /= norm
        optimizer.step()
    return model.combined().detach()


def cpu_seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """Process time of `work` and its result."""
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


def compare(name: str, data: attsvm.TokenDataset, peer_sets: int, steps: int) -> list[dict[str, Any]]:
    """Every parameterization and engine on `data`, against the plain loop on `peer_sets` of its data sets."""
    rows = []
    batch = data.batch_shape[0]
    for label, kind in KINDS.items():
        start = attsvm.initial_parameters(data, kind)
        plain_loop(data[0], {key: value[0] for key, value in start.items()}, 20)
        peer_time, peer = cpu_seconds(
            lambda start=start: [
                plain_loop(data[b], {key: value[b] for key, value in start.items()}, steps) for b in range(peer_sets)
            ]
        )
        each = peer_time / peer_sets
        early = torch.stack(
            [plain_loop(data[b], {key: value[b] for key, value in start.items()}, EARLY) for b in range(peer_sets)]
        )
        rows.append(
            {
                "size": name,
                "trained": label,
                "program": "plain PyTorch loop",
                "sets": peer_sets,
                "steps": steps,
                "cpu_ms_per_set": 1e3 * each,
                "times_faster": 1.0,
            }
        )
        for engine in (attsvm.descent.CompiledEngine(), attsvm.descent.TorchEngine()):
            attsvm.fit(data, parameterization=kind, steps=1, engine=engine)
            taken, run = cpu_seconds(
                lambda kind=kind, engine=engine: attsvm.fit(data, parameterization=kind, steps=steps, engine=engine)
            )
            sound = attsvm.fit(data[:peer_sets], parameterization=kind, steps=EARLY, engine=engine)
            rows.append(
                {
                    "size": name,
                    "trained": label,
                    "program": type(engine).__name__,
                    "sets": batch,
                    "steps": steps,
                    "cpu_ms_per_set": 1e3 * taken / batch,
                    "times_faster": each / (taken / batch),
                    "early_distance": float(attsvm.norms.direction_distance(sound.weights, early).max()),
                    "final_cosine": float(attsvm.direction_cosine(run.weights[:peer_sets], torch.stack(peer)).min()),
                    "peak_memory_mb": round(peak_memory_mb()),
                }
            )
    return rows


def on_cpu(quick: bool) -> None:
    """The CPU table, one thread for everybody."""
    torch.set_num_threads(1)
    peer, steps = (2, 400) if quick else (10, STEPS)
    small = attsvm.data.random_sphere(n=6, T=8, d=10, batch=100, seed=0)
    rows = compare("n=6 T=8 d=10", small, peer, steps)
    rows += compare("n=6 T=8 d=10, one set", small[:1], 1, steps)
    rows += compare(
        "n=50 T=64 d=64", attsvm.data.random_sphere(n=50, T=64, d=64, batch=8, seed=0), 1, 100 if quick else 400
    )
    rows += compare(
        "n=50 T=64 d=64, one set",
        attsvm.data.random_sphere(n=50, T=64, d=64, batch=1, seed=0),
        1,
        100 if quick else 400,
    )
    publish(
        "descent_cpu",
        rows,
        "python -m benchmarks.descent" + (" --quick" if quick else ""),
        [
            f"compilation, once a machine: {_compile_seconds():.1f} s; both programs record nothing the other does not,"
            " except that fit keeps 41 iterates",
        ],
    )


def spectral(quick: bool) -> None:
    """Spectral steps on both CPU engines, one thread; how far they are apart after 50 steps."""
    torch.set_num_threads(1)
    batch, steps = (50, 100) if quick else (1_000, STEPS)
    data = attsvm.data.random_sphere(n=6, T=8, d=10, batch=batch, seed=0)
    rows = []
    for label, kind in KINDS.items():
        options = {"parameterization": kind, "optimizer": attsvm.SteepestDescent(attsvm.Spectral(), 0.05)}
        taken, early = {}, {}
        for engine in (attsvm.descent.CompiledEngine(), attsvm.descent.TorchEngine()):
            train = partial(attsvm.fit, data, engine=engine, **options)
            early[engine] = train(steps=EARLY).weights
            taken[engine], _ = cpu_seconds(partial(train, steps=steps, record=steps))
        ours, theirs = taken
        rows.append(
            {
                "size": "n=6 T=8 d=10",
                "trained": label,
                "sets": batch,
                "steps": steps,
                "compiled_cpu_ms_per_set": 1e3 * taken[ours] / batch,
                "torch_cpu_ms_per_set": 1e3 * taken[theirs] / batch,
                "times_faster": taken[theirs] / taken[ours],
                "early_distance": float(attsvm.norms.direction_distance(early[ours], early[theirs]).max()),
            }
        )
    publish("descent_spectral", rows, "python -m benchmarks.descent --spectral" + (" --quick" if quick else ""))


def one_set(quick: bool) -> None:
    """One large data set on the engine that `fit` chooses and by the plain loop, in turns; least wall times."""
    data, rows = attsvm.data.random_sphere(n=50, T=64, d=64, seed=0), []
    columns = torch.randn(64, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    steps, turns = (20, 2) if quick else (200, 7)
    for threads, relu, (label, kind) in product((1, 2), (None, columns), KINDS.items()):
        torch.set_num_threads(threads)
        start, head = attsvm.initial_parameters(data, kind), None if relu is None else attsvm.ReluHead(relu)
        programs = {
            "plain": partial(plain_loop, data, start, relu=relu),
            "ours": partial(attsvm.fit, data, head, parameterization=kind, initial=start),
        }
        programs["ours"](steps=2)
        times: dict[str, list[float]] = {name: [] for name in programs}
        ends: dict[str, Any] = {}
        for _ in range(turns):
            for name, program in programs.items():
                began = time.perf_counter()
                ends[name] = program(steps=steps)
                times[name].append(1e3 * (time.perf_counter() - began) / steps)
        ours, plain = min(times["ours"]), min(times["plain"])
        slowest = max(o / p for o, p in zip(times["ours"], times["plain"], strict=True))
        rows.append({"size": "n=50 T=64 d=64, one set", "head": "linear" if relu is None else "ReLU", "trained": label,
                     "threads": threads, "engine": ends["ours"].engine.partition("(")[0], "turns": turns,
                     "milliseconds_a_step": ours, "plain_milliseconds_a_step": plain, "times_faster": plain / ours,
                     "least_times_faster_in_a_turn": 1 / slowest,
                     "cosine": float(attsvm.direction_cosine(ends["ours"].weights, ends["plain"]))})  # fmt: skip
    publish("descent_one_set", rows, "python -m benchmarks.descent --one-set" + (" --quick" if quick else ""))


def _compile_seconds() -> float:
    """Time of the first compiled fit in a fresh process with an empty cache."""
    code = (
        "import os, tempfile, time; os.environ['NUMBA_CACHE_DIR'] = tempfile.mkdtemp()\n"
        "import attsvm; data = attsvm.data.random_sphere(n=2, T=3, d=4, seed=0)\n"
        "t = time.perf_counter(); attsvm.fit(data, steps=1)\n"
        "attsvm.fit(data, steps=1, parameterization=attsvm.KeyQuery())\n"
        "print(time.perf_counter() - t)"
    )
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def one_large_set(steps: int) -> list[dict[str, Any]]:
    """One data set of n=50 T=64 d=64 on the GPU: the plain loop, and every engine that runs there."""
    data = attsvm.data.random_sphere(n=50, T=64, d=64, batch=1, seed=0).to("cuda")
    rows = []
    for label, kind in KINDS.items():
        start = attsvm.initial_parameters(data, kind)
        single = {key: value[0] for key, value in start.items()}
        programs: dict[str, Callable[[int], Any]] = {
            "plain PyTorch loop": lambda count, single=single: plain_loop(data[0], single, count),
            **{
                type(engine).__name__: lambda count, kind=kind, engine=engine: attsvm.fit(
                    data, parameterization=kind, steps=count, engine=engine, record=count
                )
                for engine in (attsvm.descent.CudaEngine(), attsvm.descent.TorchEngine())
            },
            "chosen by fit": lambda count, kind=kind: attsvm.fit(
                data, parameterization=kind, steps=count, record=count
            ),
        }
        for name, program in programs.items():
            program(10)
            torch.cuda.synchronize()
            began = time.perf_counter()
            program(steps)
            torch.cuda.synchronize()
            each = (time.perf_counter() - began) / steps
            rows.append({"size": "n=50 T=64 d=64, one set", "trained": label, "program": name, "steps": steps,
                         "microseconds_a_step": 1e6 * each})  # fmt: skip
            sys.stdout.write(json.dumps(rows[-1]) + "\n")
    return rows


def on_gpu(quick: bool) -> None:
    """Two-thousand-step runs a second on a GPU, and agreement with the CPU."""
    rows = []
    for batch in (1_000, 10_000) if quick else (1_000, 10_000, 100_000):
        data = attsvm.data.random_sphere(n=6, T=8, d=10, batch=batch, seed=0)
        moved = data.to("cuda")
        for label, kind in KINDS.items():
            began = time.perf_counter()
            start = attsvm.initial_parameters(moved, kind)
            drawing = time.perf_counter() - began
            for engine in (attsvm.descent.CudaEngine(), attsvm.descent.TorchEngine()):
                steps = STEPS if isinstance(engine, attsvm.descent.CudaEngine) else 200
                common = {
                    "parameterization": kind,
                    "engine": engine,
                    "keep": ("risk",),
                    "record": steps,
                    "initial": start,
                }
                attsvm.fit(moved, steps=2, **common)
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
                began = time.perf_counter()
                run = attsvm.fit(moved, steps=steps, **common)
                torch.cuda.synchronize()
                taken = (time.perf_counter() - began) * STEPS / steps
                check = slice(0, 200)
                host = attsvm.fit(data[check], parameterization=kind, steps=steps, record=steps)
                cosine = attsvm.direction_cosine(run.weights[check].cpu(), host.weights)
                rows.append(
                    {
                        "sets": batch,
                        "trained": label,
                        "program": type(engine).__name__,
                        "steps_timed": steps,
                        "runs_of_2000_a_second": batch / taken,
                        "microseconds_a_run": 1e6 * taken / batch,
                        "seconds_to_draw_starts": drawing,
                        "median_cosine_to_cpu": float(cosine.median()),
                        "smallest_cosine_to_cpu": float(cosine.min()),
                        "peak_gpu_memory_mb": round(torch.cuda.max_memory_allocated() / 2**20),
                    }
                )
                sys.stdout.write(json.dumps(rows[-1]) + "\n")
    rows += one_large_set(100 if quick else 400)
    publish("descent_gpu", rows, "python -m benchmarks.descent --device cuda" + (" --quick" if quick else ""))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few seconds instead of a few minutes")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--spectral", action="store_true", help="spectral steps on the CPU, instead of normalized ones")
    parser.add_argument("--one-set", action="store_true", help="one large data set on the CPU, with either head")
    options = parser.parse_args()
    on_host = spectral if options.spectral else one_set if options.one_set else on_cpu
    chosen = on_gpu if options.device == "cuda" else on_host
    chosen(options.quick)
