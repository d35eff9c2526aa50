"""Trained heads against their controls, as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from attsvm.heads.analysis.comparison import Fit
from attsvm.heads.report.records import HeadReport

_SIZE, _LEFT, _BOTTOM, _TOP = 340, 58, 48, 30


@dataclass(frozen=True)
class _Axis:
    """From numbers to pixels; logarithmic where all numbers are positive and span more than a decade."""

    low: float
    high: float
    logarithmic: bool

    @classmethod
    def of(cls, values: Sequence[float]) -> _Axis:
        low, high = min(values), max(values)
        if low > 0 and high > 10 * low:
            return cls(10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high)), True)
        pad = 0.05 * ((high - low) or 1.0)
        return cls(low - pad, high + pad, False)

    def place(self, value: float) -> float:
        """Between 0 and 1."""
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        if self.logarithmic:
            first, last = round(math.log10(self.low)), round(math.log10(self.high))
            return [10.0**power for power in range(first, last + 1)]
        raw = (self.high - self.low) / 4
        step = 10 ** math.floor(math.log10(raw))
        step *= next(factor for factor in (1, 2, 5, 10) if factor * step >= raw)
        first = math.ceil(self.low / step)
        return [round(step * k, 12) for k in range(first, math.floor(self.high / step) + 1)]


def overview(heads: Sequence[HeadReport]) -> str:
    """Two panels: margin efficiency and direction cosine of each head against those of its controls."""
    panels = (
        ("Margin efficiency, smallest", lambda fit: fit.efficiency_projected.smallest),
        ("Margin efficiency, quantile", lambda fit: fit.efficiency_projected.quantile),
        ("Direction cosine to W_mm", lambda fit: fit.cosine_projected),
    )
    drawn = "".join(_panel(name, heads, number) for name, number in panels)
    legend = (
        '<p class="legend"><span class="key random">random weights, same spectrum</span>'
        '<span class="key untrained">untrained model</span></p>'
    )
    return f'<div class="overview">{drawn}</div>{legend}' if drawn else ""


def _panel(name: str, heads: Sequence[HeadReport], number: Callable[[Fit], float]) -> str:
    points = []
    for head in heads:
        if not head.comparisons:
            continue
        found = head.comparisons[0]
        for kind, control in (("random", found.random_weights), ("untrained", found.untrained)):
            if control is not None:
                pair = number(control), number(found.head)
                if not any(math.isnan(value) for value in pair):
                    points.append((head.name, kind, *pair))
    if not points:
        return ""
    axis = _Axis.of([value for point in points for value in point[2:]])
    side = _SIZE

    def x(value: float) -> float:
        return _LEFT + side * axis.place(value)

    def y(value: float) -> float:
        return _TOP + side * (1 - axis.place(value))

    parts = [f'<text class="name" x="{_LEFT}" y="18">{name}</text>']
    for tick in axis.ticks():
        parts.append(
            f'<line class="grid" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{_TOP}" y2="{_TOP + side}"/>'
            f'<line class="grid" x1="{_LEFT}" x2="{_LEFT + side}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>'
            f'<text class="tick" x="{x(tick):.1f}" y="{_TOP + side + 16}" text-anchor="middle">{tick:g}</text>'
            f'<text class="tick" x="{_LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>'
        )
    parts.append(
        f'<line class="same" x1="{_LEFT}" y1="{_TOP + side}" x2="{_LEFT + side}" y2="{_TOP}"/>'
        f'<text class="axis" x="{_LEFT + side / 2}" y="{_TOP + side + 38}" text-anchor="middle">control</text>'
        f'<text class="axis" transform="translate(14 {_TOP + side / 2}) rotate(-90)" text-anchor="middle">'
        "trained</text>"
    )
    for head_name, kind, control_value, own in points:
        label = f"<title>{head_name}: {own:.3g}, {kind} {control_value:.3g}</title>"
        cx, cy = x(control_value), y(own)
        mark = (
            f'<circle cx="{cx:.1f}" cy="{cy:.1f}" r="4">'
            if kind == "random"
            else f'<rect x="{cx - 3.5:.1f}" y="{cy - 3.5:.1f}" width="7" height="7">'
        )
        end = "</circle>" if kind == "random" else "</rect>"
        parts.append(f'<g class="mark {kind}" data-head="{head_name}">{mark}{label}{end}</g>')
    width, height = _LEFT + side + 14, _TOP + side + _BOTTOM
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{name}: trained heads against controls">'
        f"{''.join(parts)}</svg>"
    )
