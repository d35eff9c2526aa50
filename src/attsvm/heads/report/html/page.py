"""The page and the notebook view of a report, from the templates beside this file; only the page has a script."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from attsvm.heads.model import counted
from attsvm.heads.report import table
from attsvm.heads.report.records import HeadReport, Interval
from attsvm.sweep.manifest import to_plain

if TYPE_CHECKING:
    from attsvm.heads.report.report import HeadsReport


MOST_BYTES = 9_500_000  # of a page, so that it opens quickly and can be sent


def page(report: HeadsReport) -> str:
    """One HTML file with everything in it; it asks no server for anything."""
    for examples in (None, 1, 0):  # sentences with attention are what takes room
        made = rendered("page.html", report, data=_embedded(_detail(report, examples)), script=_read("page.js"))
        if len(made.encode()) <= MOST_BYTES:
            break
    return made


def why_page(title: str, data: Mapping[str, Any], notes: Sequence[str]) -> str:
    """The page that explains the choices of one head on one text; `data` is what its script draws."""
    given = {"data": _embedded(data), "style": _read("style.css"), "script": _read("why.js"), "notes": notes}
    return _templates().get_template("why.html").render(title=title, **given)


def _embedded(data: Mapping[str, Any]) -> Markup:
    """JSON inside a page."""
    return Markup(json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"))


def rendered(template: str, report: HeadsReport, **more: Any) -> str:
    """Verdicts, overview and table in a template: ``fragment.html`` is what a notebook shows, without a script."""
    compared = [found for found in report.verdicts if found.control != table.RULE]
    verdicts = {(found.norm, found.measure, found.control): found for found in compared}
    controls = list(dict.fromkeys(found.control for found in compared))
    lines = [
        (norm, measure, [verdicts.get((norm, measure, control)) for control in controls])
        for norm, measure in dict.fromkeys((found.norm, found.measure) for found in compared)
    ]
    return _templates().get_template(template).render(
        report=report, title=f"Heads of {report.model}", panels=panels(report.heads), compared=compared, lines=lines,
        rules=[found for found in report.verdicts if found.control == table.RULE], controls=controls,
        columns=table.COLUMNS, style=_read("style.css"), **more,
    )  # fmt: skip


@cache
def _templates() -> Environment:
    loader = PackageLoader("attsvm.heads.report", "html")
    found = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    found.filters |= {"sortable": _sortable, "counted": counted, "in_mebibytes": table.in_mebibytes}
    return found


def _sortable(value: float | Interval) -> str:
    number = value.median if isinstance(value, Interval) else float(value)
    return "" if math.isnan(number) else repr(number)


def _read(name: str) -> Markup:
    """A file beside this one that goes into the page as it is."""
    return Markup(files("attsvm.heads.report.html").joinpath(name).read_text(encoding="utf-8"))


def _detail(report: HeadsReport, examples: int | None) -> dict[str, Any]:
    """What the script draws: four digits, each text once, at most so many `examples` of a head.

    Margins of the controls that no plot shows stay in the JSON file.
    """
    heads, texts = {}, {}
    for head in report.heads:
        rounded = json.loads(json.dumps(to_plain(head)), parse_float=lambda digits: float(f"{float(digits):.4g}"))
        plain = {"name": head.name, **rounded}
        plain["examples"] = plain["examples"][:examples]
        for token in plain["support_tokens"]:
            texts[token["sentence"]] = token.pop("text")
        for found in plain["comparisons"]:
            for control in (*found["shuffled"], *found["untrained"]):
                control["margins"] = []
        heads[head.name] = plain
    # What `attsvm why` is asked about; it reads texts with models of the transformers library.
    asked = None if report.architecture in ("arrays", "TransformerLens", "vit") else report.model
    return {"quantile": report.settings.quantile, "heads": heads, "texts": texts, "asked": asked}


def panels(heads: Sequence[HeadReport]) -> list[dict[str, Any]]:
    """A panel for each measure for which some head and control have a number, in the first norm.

    It has a title, ticks (label, place) and marks: a head against the draws of one of its controls, at the median draw.
    """
    found = (_panel(name[0].upper() + name[1:], measure, heads) for name, measure in table.MEASURES.items())
    return list(filter(None, found))


def _panel(title: str, measure: table.Measure, heads: Sequence[HeadReport]) -> dict[str, Any] | None:
    points = [
        (head.name, name, pair[0], Interval.of(pair[1]))
        for head in heads
        if head.comparisons
        for name, control in (("random", table.RANDOM), ("untrained", table.UNTRAINED))
        if (pair := table.number_pair(head.comparisons[0], measure, control)) is not None
    ]
    if not points:
        return None
    place, ticks = _axis([value for _, _, own, other in points for value in (own, other.low, other.high)])
    marks = [
        {"head": head, "control": control, "x": place(other.median), "low": place(other.low), "high": place(other.high),
         "y": place(own), "text": f"{head}: {own:.3g}, {control} {table.shown(other)}"}
        for head, control, own, other in points
    ]  # fmt: skip
    return {"title": title, "ticks": [(f"{tick:g}", place(tick)) for tick in ticks], "marks": marks}


def _axis(values: Sequence[float]) -> tuple[Callable[[float], float], list[float]]:
    """From numbers to places between 0 and 1 on an axis that holds `values`, and its ticks.

    It is logarithmic where all numbers are positive and span more than a decade.
    """
    low, high = min(values), max(values)
    if low > 0 and high > 10 * low:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        low, high = 10.0 ** powers[0], 10.0 ** powers[-1]
        return lambda value: math.log(value / low) / math.log(high / low), [10.0**power for power in powers]
    pad = 0.05 * ((high - low) or 1.0)
    low, high = low - pad, high + pad
    raw = (high - low) / 4
    step = 10 ** math.floor(math.log10(raw))
    step *= next(factor for factor in (1, 2, 5, 10) if factor * step >= raw)
    ticks = [round(step * k, 12) for k in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return lambda value: (value - low) / (high - low), ticks
