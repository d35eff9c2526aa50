"""The page and the notebook view: a table and verdicts that need no script, data and a script for the rest."""

from __future__ import annotations

import json
import math
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from attsvm.heads.report.html.overview import overview
from attsvm.heads.report.records import to_plain
from attsvm.heads.report.table import shown

if TYPE_CHECKING:
    from attsvm.heads.report.report import HeadsReport
    from attsvm.heads.report.verdict import Verdict

# Key of a row, heading, what it means. Empty headings continue the group before them.
_COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("head", "Head", "layer and head, counted from 0"),
    ("selects", "Selects", "the commonest kind of selected token among confident queries"),
    ("selects_share", "share", "share of that kind"),
    ("confident", "Confident", "share of queries with more attention on one token than the threshold"),
    ("top_mass", "Top mass", "mean attention on the selected token"),
    ("entropy", "Entropy", "mean entropy of the attention, in nats"),
    ("queries", "Queries", "confident queries in the problem"),
    ("efficiency", "Efficiency", "smallest normalized margin of W over the max margin; 1 is max-margin"),
    ("efficiency_random", "random", "the same for random weights with the same spectrum and their own selections"),
    ("efficiency_untrained", "untrained", "the same for the same head of an untrained model"),
    ("efficiency_quantile", "Quantile", "normalized margin at the quantile of the queries over the max margin"),
    ("quantile_random", "random", "the same for random weights"),
    ("quantile_untrained", "untrained", "the same for the untrained model"),
    ("cosine", "Cosine", "direction cosine of W and the max-margin solution"),
    ("cosine_random", "random", "the same for random weights"),
    ("cosine_shuffled", "shuffled", "of W and the max-margin solution of shuffled selections"),
    ("cosine_untrained", "untrained", "the same for the untrained model"),
    ("margin_shuffled", "Shuffled margin", "max margin of shuffled selections over that of the head's own"),
    ("effective_rank", "Rank of W", "effective rank of the head's weights"),
    ("effective_rank_svm", "of W_mm", "effective rank of the max-margin solution"),
    ("support_rows", "Support", "constraints with a positive multiplier"),
    ("agreement", "Agrees", "share of held-out queries on which the max-margin solution selects what the head selects"),
    ("agreement_rule", "rule", "the same for the best rule without weights"),
    ("gap", "Gap", "certified relative gap of the solution"),
)
_CONTROL_COLUMNS = frozenset(key for key, _, _ in _COLUMNS if key.endswith(("_random", "_untrained", "_shuffled")))
_TITLE = "Heads of {model}"


def page(report: HeadsReport) -> str:
    """One HTML file with everything in it; it asks no server for anything."""
    title = escape(_TITLE.format(model=report.model))
    data = json.dumps(_detail(report), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{_read("style.css")}</style>
</head>
<body class="heads">
<header>
<div><h1>{title}</h1><p class="quiet">{_subtitle(report)}</p></div>
<button id="theme" type="button" aria-label="Switch between light and dark">◐</button>
</header>
<main>
{_verdicts(report)}
<section aria-labelledby="overview"><h2 id="overview">Trained heads against their controls</h2>
<p class="quiet">One mark a head. Above the line the trained head is closer to max-margin than its control.</p>
{overview(report.heads)}</section>
<section aria-labelledby="heads"><h2 id="heads">All heads, by selectivity</h2>
<p class="quiet">Click a heading to sort, a row to look at the head. Small columns are controls.</p>
{_table(report)}</section>
<section id="detail" aria-live="polite"></section>
{_notes(report)}
</main>
<script id="data" type="application/json">{data}</script>
<script>{_read("page.js")}</script>
</body>
</html>
"""


def fragment(report: HeadsReport) -> str:
    """What a notebook shows: verdicts, overview and table, without a script."""
    title = escape(_TITLE.format(model=report.model))
    return (
        f'<div class="heads fragment"><style>{_read("style.css")}</style><h2>{title}</h2>'
        f'<p class="quiet">{_subtitle(report)}</p>{_verdicts(report)}{overview(report.heads)}{_table(report)}'
        f"{_notes(report)}</div>"
    )


def _subtitle(report: HeadsReport) -> str:
    asked = report.settings
    solved = len(report.heads) - len(report.unsolved)
    parts = (
        f"{report.architecture}, {report.layers} layers of {report.heads_per_layer} heads, width {report.width}",
        f"{report.sentences} texts, {report.tokens:,} tokens",
        f"{len(report.heads)} heads analysed, {solved} solved to a certified gap of {asked.accuracy:g}",
        f"norm: {', '.join(norm.name for norm in asked.norms)}",
        f"confident above {asked.confidence:g}, up to {asked.queries} queries a head",
        *([f"left out: {', '.join(map(str, asked.leave_out))}"] if asked.leave_out else []),
        f"seed {asked.seed}",
        f"{report.memory / 2**20:.0f} MiB of states and rows at once",
    )
    return escape(" · ".join(parts))


def _verdicts(report: HeadsReport) -> str:
    """A headline and a grid, one cell a comparison; the whole sentence is each cell's title."""
    if not report.verdicts:
        return '<section class="verdicts"><p>No head has confident queries; there is nothing to compare.</p></section>'
    tones = [verdict.tone for verdict in report.verdicts]
    headline = (
        f"Of {len(tones)} comparisons, trained heads are closer to max-margin in {tones.count('closer')}, further in"
        f" {tones.count('further')}, and not clearly different in {tones.count('unclear')}."
    )
    controls = list(dict.fromkeys(verdict.control for verdict in report.verdicts))
    lines = list(dict.fromkeys((verdict.norm, verdict.measure) for verdict in report.verdicts))
    found = {(verdict.norm, verdict.measure, verdict.control): verdict for verdict in report.verdicts}
    body = "".join(
        f'<tr><th scope="row">{escape(measure)}<small>{escape(norm)} norm</small></th>'
        + "".join(_verdict_cell(found.get((norm, measure, control))) for control in controls)
        + "</tr>"
        for norm, measure in lines
    )
    heads = "".join(f'<th scope="col">{escape(control)}</th>' for control in controls)
    return (
        '<section class="verdicts" aria-label="Verdicts"><h2>Are trained heads closer to max-margin?</h2>'
        f'<p class="headline">{headline}</p><div class="scroll"><table><thead><tr><th scope="col">against</th>{heads}'
        f"</tr></thead><tbody>{body}</tbody></table></div></section>"
    )


def _verdict_cell(verdict: Verdict | None) -> str:
    if verdict is None or verdict.heads == 0:
        return "<td>nothing to compare</td>"
    words = {"closer": "closer", "further": "further", "unclear": "not clearly closer"}[verdict.tone]
    same = f", equal in {verdict.equal}" if verdict.equal else ""
    return (
        f'<td class="{verdict.tone}" title="{escape(str(verdict))}"><b>{words}</b> {verdict.trained:.3g} against'
        f" {verdict.controlled:.3g}<small>larger in {verdict.larger} of {verdict.heads} heads{same}</small></td>"
    )


def _notes(report: HeadsReport) -> str:
    lines = [*report.notes, *(f"{head.name}: {head.outcome}" for head in report.unsolved)]
    if not lines:
        return ""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<section class="notes"><h2>Notes</h2><ul>{items}</ul></section>'


def _table(report: HeadsReport) -> str:
    headings = "".join(
        f'<th scope="col" title="{escape(meaning)}"{_control(key)}><button type="button">{escape(name)}</button></th>'
        for key, name, meaning in _COLUMNS
    )
    rows = "".join(
        f'<tr tabindex="0" data-head="{row["head"]}" title="{escape(row["outcome"])}">'
        + "".join(_cell(key, row[key]) for key, _, _ in _COLUMNS)
        + "</tr>"
        for row in report.table
    )
    return (
        f'<div class="scroll"><table class="all"><thead><tr>{headings}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _cell(key: str, value: Any) -> str:
    if isinstance(value, str):
        return f"<td{_control(key)}>{escape(value)}</td>" if key != "head" else f'<th scope="row">{escape(value)}</th>'
    order = "" if isinstance(value, float) and math.isnan(value) else repr(float(value))
    return f'<td data-value="{order}"{_control(key, "number")}>{_shown(key, value)}</td>'


def _shown(key: str, value: Any) -> str:
    if (
        isinstance(value, float)
        and not math.isnan(value)
        and key in ("selects_share", "confident", "agreement", "agreement_rule")
    ):
        return f"{value:.0%}"
    return shown(value)


def _control(key: str, more: str = "") -> str:
    names = " ".join(filter(None, (more, "control" if key in _CONTROL_COLUMNS else "")))
    return f' class="{names}"' if names else ""


def _detail(report: HeadsReport) -> dict[str, Any]:
    """What the script draws; margins of the controls that no plot shows stay in the JSON file."""
    heads = {head.name: {"name": head.name, **to_plain(head)} for head in report.heads}
    for head in heads.values():
        for found in head["comparisons"]:
            for control in filter(None, (found["shuffled"], found["untrained"])):
                control["margins"] = []
    return {"quantile": report.settings.quantile, "heads": heads}


def _read(name: str) -> str:
    return files("attsvm.heads.html").joinpath(name).read_text(encoding="utf-8")
