"""Serious and critical violations that axe-core finds on a page, and the widths at which nothing scrolls sideways."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

WIDTHS = (360, 414, 768, 1072, 1440, 2560)


def violations(page: Page) -> list[str]:
    """One line for each: the rule, and the elements that break it."""
    import axe_playwright_python  # not everywhere where a report is tested

    page.evaluate((Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("() => axe.run(document, {resultTypes: ['violations'], preload: false})")["violations"]
    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    return [f"{one['id']}: {[node['html'][:120] for node in one['nodes'][:3]]}" for one in serious]
