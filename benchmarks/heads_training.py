"""Does training move heads towards max-margin? ``python -m benchmarks.heads_training``.

Follows the heads of the small vision transformer of `attention-sparsity` through training: at each recorded epoch the
margin efficiency of every head on its own selections, its cosine to their max-margin solution, and the same of random
weights with the same spectrum. Writes results/heads_training.json and docs/images/heads_training.png.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

from attsvm.experiments import SweepResult, experiment, run
from attsvm.heads import HeadModel, analyze, from_arrays
from attsvm.heads.report.records import Interval
from attsvm.heads.report.table import COSINE, QUANTILE, SMALLEST
from attsvm.plots import PALETTE, house_style
from attsvm.plots.curves import Curves
from attsvm.plots.style import FAINT, new_figure
from attsvm.sweep.manifest import to_plain
from benchmarks.record import RESULTS, machine

MEASURES = {"efficiency": SMALLEST, "efficiency_quantile": QUANTILE, "cosine": COSINE}
EPOCHS = (0, 1, 3, 10, 30, 100)
QUERIES = 300
PICTURE = Path("docs/images/heads_training.png")


def checkpoint(result: SweepResult, moment: int) -> HeadModel:
    """The model at one recorded epoch: its states on the stored test images, and its key-query weights."""
    states, attention = (torch.from_numpy(result.arrays[name][moment]) for name in ("states", "attention"))
    keys, queries = (torch.from_numpy(result.arrays[name][moment]) for name in ("key", "query"))
    images, tokens = states.shape[1], states.shape[2]
    names = ["[CLS]", *(f"patch {number}" for number in range(tokens - 1))]
    special = torch.tensor([True] + [False] * (tokens - 1))
    return from_arrays(
        [states[:, image] for image in range(images)],
        keys[:, :, :-1],
        queries[:, :, :-1],
        key_bias=keys[:, :, -1],
        query_bias=queries[:, :, -1],
        scale=1.0,
        attention=[attention[:, image] for image in range(images)],
        tokens=[names] * images,
        special=[special] * images,
        name=f"digits ViT, epoch {result.configuration['recorded'][moment]}",
    )


def measured(result: SweepResult, epoch: int) -> list[dict[str, object]]:
    """A row for each head at this epoch; every query counts, confident or not, so that epochs can be compared."""
    recorded = list(result.configuration["recorded"])
    report = analyze(checkpoint(result, recorded.index(epoch)), queries=QUERIES, confidence=0.0)
    rows = []
    for head in report:
        drawn = head.comparisons[0].random_weights if head.comparisons else ()
        control = {name: Interval.of(map(read, drawn)) for name, read in MEASURES.items()}
        rows.append({
            "epoch": epoch,
            "head": head.name,
            "outcome": head.outcome,
            "efficiency": head.efficiency.smallest,
            "efficiency_quantile": head.efficiency.quantile,
            "cosine": head.cosine,
            **{f"random_{name}": to_plain(found.median) for name, found in control.items()},
            **{f"random_{name}_range": to_plain([found.low, found.high]) for name, found in control.items()},
        })  # fmt: skip
    return rows


def draw(rows: list[dict[str, object]], epochs: list[int]) -> None:
    """Quantile efficiency and cosine against epochs, trained heads and random weights."""
    with house_style():
        figure = new_figure(7.6, 3.4, layout="constrained")
        panels = (("efficiency_quantile", "margin efficiency, 10 % quantile"), ("cosine", "cosine to max-margin"))
        for axes, (column, label) in zip(figure.subplots(1, 2), panels, strict=True):
            curves = Curves(axes)
            for name, colour, line in ((column, PALETTE[0], "-"), (f"random_{column}", FAINT, (0, (4.0, 1.6)))):
                values = np.array([
                    [np.nan if row[name] is None else row[name] for row in rows if row["epoch"] == epoch]
                    for epoch in epochs
                ], dtype=float).T  # fmt: skip
                label_of = "trained" if name == column else "random weights"
                curves.band(label_of, np.array(epochs) + 1, values, colour, line=line)
            curves.label(0.08, xscale="log", xlabel="epoch + 1", ylabel=label)
        figure.savefig(PICTURE, dpi=200, metadata={"Software": "attsvm"})


def main() -> None:
    """Train or load, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("out/figures/attention-sparsity"))
    folder = parser.parse_args().folder
    began = time.process_time()
    result = run(experiment("attention-sparsity"), folder=folder, resume=True)
    epochs = [epoch for epoch in EPOCHS if epoch in result.configuration["recorded"]]
    rows = []
    for epoch in epochs:
        rows += measured(result, epoch)
        print(f"epoch {epoch} done", flush=True)
    content = {
        "command": "python -m benchmarks.heads_training",
        "machine": machine(),
        "queries": QUERIES,
        "cpu_seconds": round(time.process_time() - began, 1),
        "rows": rows,
    }
    (RESULTS / "heads_training.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    draw(rows, epochs)
    for epoch in epochs:
        own = [row for row in rows if row["epoch"] == epoch]
        print(epoch, {
            column: round(float(np.nanmedian([np.nan if row[column] is None else row[column] for row in own])), 4)
            for column in ("efficiency", "efficiency_quantile", "cosine", "random_efficiency_quantile", "random_cosine")
        })  # fmt: skip


if __name__ == "__main__":
    main()
