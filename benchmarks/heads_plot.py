"""Pictures of the study of heads, from results/heads_*.json: ``python -m benchmarks.heads_plot``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from attsvm.plots.style import FAINT, HAIRLINE, PALETTE, house_style, new_figure
from benchmarks.record import RESULTS

IMAGES = Path(__file__).parent.parent / "docs" / "images"
PANELS = (
    ("efficiency", "efficiency", "smallest margin over the max margin", True),
    ("efficiency_quantile", "quantile", "10 % quantile of margins over the max margin", True),
    ("cosine", "cosine", "direction cosine of W and W_mm", False),
)
CONTROLS = (("random", "random weights, same spectrum", "o"), ("untrained", "untrained model", "s"))


def draw() -> None:
    """One picture per model: each head against its controls."""
    for name, title in (("minilm", "MiniLM, 72 heads"), ("rxnmapper", "rxnmapper, 96 heads")):
        path = RESULTS / f"heads_{name}.json"
        if path.exists():
            _picture(json.loads(path.read_text(encoding="utf-8"))["rows"], title, IMAGES / f"heads_{name}.png")


def _picture(rows: list[dict[str, Any]], title: str, path: Path) -> None:
    with house_style():
        figure = new_figure(11.0, 4.1, layout="constrained", dpi=160)
        for axes, (own, stem, label, logarithmic) in zip(figure.subplots(1, 3), PANELS, strict=True):
            for colour, (control, legend, marker) in zip(PALETTE[1:], CONTROLS, strict=False):
                pairs = [(row[f"{stem}_{control}"], row[own]) for row in rows]
                known = [pair for pair in pairs if None not in pair and (not logarithmic or min(pair) > 0)]
                axes.plot(
                    *zip(*known, strict=True), marker, color=colour, alpha=0.75, markersize=5, markeredgewidth=0,
                    linestyle="none", label=legend,
                )  # fmt: skip
            _frame(axes, label, logarithmic)
        figure.axes[0].legend(loc="lower right", fontsize=8.5, handletextpad=0.2, borderaxespad=0.2)
        figure.suptitle(f"{title}: each head against its controls", x=0.01, ha="left", fontweight="bold")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)


def _frame(axes: Axes, label: str, logarithmic: bool) -> None:
    if logarithmic:
        axes.set_xscale("log")
        axes.set_yscale("log")
    low = min(axes.get_xlim()[0], axes.get_ylim()[0])
    high = max(axes.get_xlim()[1], axes.get_ylim()[1])
    axes.plot([low, high], [low, high], color=FAINT, linewidth=1, linestyle="--", zorder=0)
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    axes.set_aspect("equal")
    axes.grid(color=HAIRLINE, linewidth=0.5)
    axes.set_title(label, fontsize=9.5, fontweight="normal")
    axes.set_xlabel("control")
    axes.set_ylabel("trained head")


if __name__ == "__main__":
    draw()
