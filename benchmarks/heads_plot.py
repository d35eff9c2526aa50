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


MODELS = {
    "smollm": "SmolLM2, 270 heads",
    "minilm": "MiniLM, 72 heads",
    "rxnmapper": "rxnmapper, 48 heads",
}
FAST = 32  # tokens; frequencies that turn once within so many can tell places in these texts


def draw() -> None:
    """One picture per model, each head against its controls; the gap by frequency; the head trained from scratch."""
    for name, title in MODELS.items():
        if (found := _results(f"heads_{name}")) is not None:
            _picture(found["rows"], title, IMAGES / f"heads_{name}.png")
            if "frequencies" in found:
                _frequencies(found, IMAGES / f"heads_{name}_frequencies.png")
    if (found := _results("heads_rotary")) is not None:
        _trained(found["settings"]["many frequencies"]["rows"], IMAGES / "heads_rotary.png")


def _results(name: str) -> dict[str, Any] | None:
    path = RESULTS / f"{name}.json"
    found: dict[str, Any] | None = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    return found


def _picture(rows: list[dict[str, Any]], title: str, path: Path) -> None:
    with house_style():
        figure = new_figure(11.0, 4.1, layout="constrained", dpi=160)
        for axes, (own, stem, label, logarithmic) in zip(figure.subplots(1, 3), PANELS, strict=True):
            for colour, (control, legend, marker) in zip(PALETTE[1:], CONTROLS, strict=False):
                found = [(row[f"{stem}_{control}"], row[own]) for row in rows]
                known = [
                    (other["median"], other["low"], other["high"], value)
                    for other, value in found
                    if None not in (other["median"], value) and (not logarithmic or min(other["low"], value) > 0)
                ]
                middle, low, high, values = zip(*known, strict=True)
                axes.hlines(values, low, high, color=colour, alpha=0.3, linewidth=1)
                axes.plot(
                    middle, values, marker, color=colour, alpha=0.75, markersize=4, markeredgewidth=0,
                    linestyle="none", label=legend,
                )  # fmt: skip
            _frame(axes, label, logarithmic)
        figure.axes[0].legend(loc="lower right", fontsize=8.5, handletextpad=0.2, borderaxespad=0.2)
        text = f"{title}: each head against its controls, median and range of five draws"
        figure.suptitle(text, x=0.01, ha="left", fontweight="bold")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)


def _frequencies(found: dict[str, Any], path: Path) -> None:
    """Choices by position and by content alone, and the gap by frequency, heads sorted by the share of position."""
    import numpy as np

    heads = found["frequencies"]
    kinds = {row["head"]: row["selects"] for row in found["rows"]}
    with house_style():
        figure = new_figure(11.0, 4.6, layout="constrained", dpi=160)
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.2))
        groups = (
            ("the first token", "o", {"first"}),
            ("the token before", "D", {"previous"}),
            ("themselves", "s", {"self"}),
            ("anything else", "^", {*kinds.values()} - {"first", "previous", "self"}),
        )
        for colour, (label, marker, names) in zip(PALETTE, groups, strict=False):
            members = [record for name, record in heads.items() if kinds[name] in names]
            points = [(100 * record["by_position"], 100 * record["by_content"]) for record in members]
            if points:
                left.plot(*zip(*points, strict=True), marker, color=colour, alpha=0.7, markersize=5,
                          markeredgewidth=0, linestyle="none", label=label)  # fmt: skip
        left.set_xlabel("choices that position alone makes, %")
        left.set_ylabel("choices that content alone makes, %")
        left.set_xlim(-3, 108)
        left.grid(color=HAIRLINE, linewidth=0.5)
        left.legend(title="heads that mostly select", fontsize=8.5, title_fontsize=8.5, loc="lower left")
        order = sorted(heads, key=lambda name: -heads[name]["position"])
        image = np.array([heads[name]["gap"] for name in order])
        shown = right.imshow(100 * image, aspect="auto", cmap="RdBu_r", vmin=-40, vmax=40, interpolation="nearest")
        right.set_xlabel("frequency, fastest first")
        right.set_ylabel("heads, largest share of position first")
        right.axvline(
            sum(period <= FAST for period in found["periods"]) - 0.5, color=FAINT, linewidth=1, linestyle="--"
        )
        figure.colorbar(shown, ax=right, label="share of the gap to the runner-up, %", extend="both")
        figure.suptitle("SmolLM2: by position or by content?", x=0.01, ha="left", fontweight="bold")
        figure.savefig(path)


def _trained(rows: list[dict[str, Any]], path: Path) -> None:
    """Efficiency and cosine in the group norm against those in the Frobenius norm, for both trainings."""
    with house_style():
        figure = new_figure(8.4, 4.1, layout="constrained", dpi=160)
        for axes, measure in zip(figure.subplots(1, 2), ("efficiency", "cosine"), strict=True):
            for colour, name, marker in zip(PALETTE, ("factors", "stack"), ("o", "s"), strict=False):
                points = [(row[name]["Frobenius"][measure], row[name]["group"][measure]) for row in rows if name in row]
                label = {"factors": "K and Q trained", "stack": "the stack trained"}[name]
                axes.plot(*zip(*points, strict=True), marker, color=colour, alpha=0.7, markersize=4.5,
                          markeredgewidth=0, linestyle="none", label=label)  # fmt: skip
            words = {"efficiency": "margin efficiency", "cosine": "cosine with the solution"}[measure]
            _frame(axes, words, False)
            axes.set_xlabel("in the Frobenius norm")
            axes.set_ylabel("in the group norm over frequencies")
        figure.axes[0].legend(loc="lower left", fontsize=8.5)
        text = "A rotary head trained from scratch, 100 data sets"
        figure.suptitle(text, x=0.01, ha="left", fontweight="bold")
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
