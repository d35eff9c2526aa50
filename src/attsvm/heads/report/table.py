"""The table of heads: plain rows, and how they print."""

from __future__ import annotations

import math
from typing import Any

from attsvm.heads.analysis.comparison import Fit
from attsvm.heads.report.records import HeadReport

COLUMNS: dict[str, str] = {
    "head": "head",
    "selects": "selects",
    "selects_share": "share",
    "confident": "confident",
    "top_mass": "top mass",
    "entropy": "entropy",
    "queries": "queries",
    "efficiency": "efficiency",
    "efficiency_random": "random",
    "efficiency_untrained": "untrained",
    "efficiency_quantile": "quantile",
    "quantile_random": "random",
    "quantile_untrained": "untrained",
    "cosine": "cosine",
    "cosine_random": "random",
    "cosine_shuffled": "shuffled",
    "cosine_untrained": "untrained",
    "margin_shuffled": "shuffled margin",
    "effective_rank": "rank W",
    "effective_rank_svm": "rank W_mm",
    "support_rows": "support",
    "agreement": "agrees",
    "agreement_rule": "rule",
    "gap": "gap",
    "outcome": "outcome",
}
"""Keys of a row, and what they are called where it prints."""


class HeadTable(list[dict[str, Any]]):
    """Rows with the keys of `COLUMNS`; NaN where a number does not exist."""

    def __str__(self) -> str:
        head = [name for key, name in COLUMNS.items() if key != "outcome"]
        body = [[shown(row[key]) for key in COLUMNS if key != "outcome"] for row in self]
        widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
        lines = [
            "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in [head, *body]
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)


def head_row(head: HeadReport) -> dict[str, Any]:
    """One head as a plain row; numbers of the first norm, W projected on the spans of the data."""
    first = head.comparisons[0] if head.comparisons else None
    own, random = (first.head, first.random_weights) if first else (None, None)
    mixed, untrained = (first.shuffled, first.untrained) if first else (None, None)
    kind = head.main_kind
    return {
        "head": head.name,
        "selects": "" if kind is None else kind.value,
        "selects_share": math.nan if kind is None else head.kinds[kind],
        "confident": head.selectivity.confident,
        "top_mass": head.selectivity.top_mass,
        "entropy": head.selectivity.entropy,
        "queries": own.queries if own else 0,
        "efficiency": _smallest(own),
        "efficiency_random": _smallest(random),
        "efficiency_untrained": _smallest(untrained),
        "efficiency_quantile": _quantile(own),
        "quantile_random": _quantile(random),
        "quantile_untrained": _quantile(untrained),
        "cosine": _cosine(own),
        "cosine_random": _cosine(random),
        "cosine_shuffled": _cosine(mixed),
        "cosine_untrained": _cosine(untrained),
        "margin_shuffled": mixed.max_margin / own.max_margin if own and mixed else math.nan,
        "effective_rank": head.spectrum.effective_rank,
        "effective_rank_svm": own.spectrum.effective_rank if own else math.nan,
        "support_rows": own.support_rows if own else 0,
        "agreement": own.agreement if own else math.nan,
        "agreement_rule": head.rule_agreement,
        "gap": own.gap if own else math.nan,
        "outcome": head.outcome,
    }


def shown(value: Any) -> str:
    """A cell.

    >>> shown(0.123456), shown(float("nan")), shown(12), shown("first")
    ('0.123', '-', '12', 'first')
    """
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:.3g}"
    return str(value)


def _smallest(fit: Fit | None) -> float:
    return fit.efficiency_projected.smallest if fit else math.nan


def _quantile(fit: Fit | None) -> float:
    return fit.efficiency_projected.quantile if fit else math.nan


def _cosine(fit: Fit | None) -> float:
    return fit.cosine_projected if fit else math.nan
