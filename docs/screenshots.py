"""Pictures of the playground and of a report on heads, for README and guides: ``python docs/screenshots.py MODEL``.

MODEL is a folder that `attsvm heads` reads; ``tests/heads/weights.py`` fetches one to ``.weights/minilm``. Needs
playwright and a Chromium on the PATH, and writes to docs/images.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

import attsvm
from attsvm.app import write_page

IMAGES = Path(__file__).resolve().parent / "images"
HEADS = ["L0H2", "L2H3", "L3H11", "L4H5", "L5H7"]


def playground(browser: Browser, folder: Path) -> None:
    """The first scene at its end."""
    page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme="light")
    page.goto(f"{write_page(folder / 'playground.html').as_uri()}#scene=two-inputs&step=end")
    page.wait_for_timeout(1500)
    page.screenshot(path=IMAGES / "playground.png")
    page.close()


def report(browser: Browser, folder: Path, model: str) -> None:
    """Five heads, and the sentences of one of them."""
    found = attsvm.heads.analyze(attsvm.heads.load(model), attsvm.heads.sample_texts()[:120], heads=HEADS, queries=60)
    page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme="light")
    page.goto(found.save_html(folder / "heads.html").as_uri())
    page.wait_for_timeout(500)
    page.screenshot(path=IMAGES / "heads_report.png")
    page.close()


def why(browser: Browser, folder: Path, model: str) -> None:
    """One choice of a head, and the parts of its gap."""
    reading = attsvm.heads.Reading(attsvm.heads.load(model), "The quick brown fox jumps over the lazy dog.", "L3H7")
    page = browser.new_page(viewport={"width": 1280, "height": 720}, color_scheme="light")
    page.goto(reading.save_html(folder / "why.html", "fox").as_uri())
    page.wait_for_timeout(500)
    page.screenshot(path=IMAGES / "heads_why.png")
    page.close()


def main() -> None:
    """All pictures; without MODEL the playground alone."""
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        playground(browser, Path(folder))
        if len(sys.argv) > 1:
            report(browser, Path(folder), sys.argv[1])
            why(browser, Path(folder), sys.argv[1])
        browser.close()


if __name__ == "__main__":
    main()
