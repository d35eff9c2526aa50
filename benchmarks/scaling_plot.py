"""How time grows with n, T and d, drawn from results/svm_large.json: ``python -m benchmarks.scaling_plot``."""

from __future__ import annotations

import json
import re
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from attsvm.plots.style import FAINT, PALETTE, house_style
from benchmarks.record import RESULTS

PICTURE = Path(__file__).parent.parent / "docs" / "images" / "svm_scaling.png"
BASE = {"n": 2000, "T": 32, "d": 64}


def main() -> None:
    """Three panels: one size varies, the others stay."""
    rows = json.loads((RESULTS / "svm_large.json").read_text())["rows"]
    found = []
    for row in rows:
        sizes = {name: int(value) for name, value in re.findall(r"(n|T|d)=(\d+)", row["problem"])}
        if row["problem"].startswith("planted") and row["status"] == "SOLVED":
            found.append((sizes, row["cpu_s"], row["rows"]))
    with house_style():
        figure = Figure(figsize=(9.0, 3.1), layout="constrained", dpi=160)
        FigureCanvasAgg(figure)
        panels = figure.subplots(1, 3, sharey=True)
        labels = {"n": "inputs n", "T": "tokens T", "d": "dimension d"}
        for panel, (name, label), colour in zip(panels, labels.items(), PALETTE, strict=False):
            others = [key for key in BASE if key != name]
            line = sorted((s[name], t) for s, t, _ in found if all(s[key] == BASE[key] for key in others))
            panel.loglog(*zip(*line, strict=True), "o-", color=colour, markersize=5)
            panel.set_xlabel(label)
            panel.set_xticks([x for x, _ in line], [str(x) for x, _ in line], minor=False)
            panel.minorticks_off()
            fixed = ", ".join(f"{key} = {BASE[key]}" for key in others)
            panel.set_title(fixed, fontsize=9.5, fontweight="normal", color=FAINT)
        panels[0].set_ylabel("CPU seconds to gap 1e-8")
        title = "Large attention SVMs: one core, planted separable selections"
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
        PICTURE.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(PICTURE)


if __name__ == "__main__":
    main()
