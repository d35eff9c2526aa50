"""`attsvm why`: why a head attends where it does on one text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, echo

import attsvm
from attsvm.cli.common.files import checked_file
from attsvm.cli.common.options import Json, option
from attsvm.cli.common.report import number, print_json, print_table
from attsvm.cli.heads import Model, ModelType, Tokenizer, _texts

Text = Annotated[str, Argument(metavar="TEXT", help="What the model reads.")]
Head = Annotated[str, option("--head", "NAME", "Such as L3H7: layer and head, counted from 0.")]
Query = Annotated[str | None, option("--query", "WORD", "A word that occurs once, or a token's number; else the last.")]
Over = Annotated[str | None, option("--over", "WORD", "The token to compare with; the runner-up by default.")]
Examples = Annotated[str | None, option("--examples", "FILE", "Texts, or sample: which of them carry the head's W_mm.")]
Html = Annotated[Path | None, option("--html", "FILE", "Write a page with all tokens of TEXT to click at.")]
Shown = Annotated[int, option("--parts", "N", "Print the N largest parts of each sum.")]


def why(
    model: Model, text: Text, head: Head, query: Query = None, over: Over = None, examples: Examples = None,
    html: Html = None, tokenizer: Tokenizer = None, model_type: ModelType = None, parts: Shown = 6, json: Json = False,
) -> None:  # fmt: skip
    """Explain one choice of an attention head of MODEL on TEXT.

    Prints which token wins, by how much over whom, and the parts of this gap: content and position, earlier parts of
    the model, support examples of the max-margin solution. Then the smallest changes that flip the choice.
    """
    from attsvm.heads.explain.why import Reading, largest, str_flip

    page = None if html is None else checked_file(html, "--html")
    if parts < 1:
        raise ValueError(f"--parts must be at least 1; got {parts}")
    given = None if examples is None else _texts(examples, 1000, "--examples")
    loaded = attsvm.heads.load(model, tokenizer=tokenizer, model_type=model_type)
    support = None if given is None else attsvm.heads.max_margin(loaded, head, given.lines)
    reading = Reading(loaded, text, head, support=support)
    found = reading.why(query, over)
    if page is not None:
        reading.save_html(page, query, over)
    if json:
        print_json({**found.to_json(), "files": [] if page is None else [str(page)]})
        return
    echo(found.sentence)
    for title, shares in found.sums.items():
        total = found.support_gap if title.startswith("Under") else found.gap
        rows = [[share.name, number(share.value, 4), f"{share.value / total:.0%}" if total else ""]
                for share in largest(shares, parts)]  # fmt: skip
        echo(title)  # which a narrow table would break into lines
        columns = [("part", "left"), ("adds", "right"), ("share", "right")]
        print_table("", columns, [*rows, [], ["sum", number(total, 4), ""]])
    said = [*(str_flip(found, flip) for flip in found.flips), f"Parts add up to the gap to {found.error:.1e} of it"]
    for line in (*said, *(f"Note: {note}" for note in (*found.notes, *loaded.notes))):
        echo(f"- {line}.")
    if page is not None:
        echo(f"Written: {page}")
