"""The page that explains the choices of one head on one text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from attsvm.heads.report.html.page import _read, _templates


def why_page(title: str, data: Mapping[str, Any], notes: Sequence[str]) -> str:
    """One HTML file with everything in it; `data` is what its script draws, ``queries`` by position."""
    content = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return (
        _templates()
        .get_template("why.html")
        .render(title=title, data=Markup(content), style=_read("style.css"), script=_read("why.js"), notes=notes)
    )
