"""The playground's mathematics in a real browser: its parts, served as they are, called from Python."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route

ORIGIN = "http://playground.test"

# Numbers travel as JSON text: they arrive with every bit, and a NaN or an infinity is seen as what it is.
CALLS = """
async ([text]) => {
  const { maths } = await import("/maths/index.js");
  const plain = (key, value) => {
    if (typeof value === "number" && !Number.isFinite(value)) return `not finite: ${value}`;
    return ArrayBuffer.isView(value) ? Array.from(value) : value;
  };
  const answers = JSON.parse(text).map(([name, given]) => maths[name](...given));
  return JSON.stringify(answers, plain);
}
"""


class MathsPage:
    """A page that has loaded nothing but the parts under playground/maths."""

    def __init__(self, browser: Browser) -> None:
        self._context = browser.new_context()
        self.page = self._context.new_page()
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.route("**/*", _serve)
        self.page.goto(f"{ORIGIN}/")

    def close(self) -> None:
        """Close the page and its context."""
        self._context.close()

    def call(self, name: str, *given: Any) -> Any:
        """The answer of one function of `maths`."""
        return self.calls([(name, list(given))])[0]

    def calls(self, wanted: list[tuple[str, list[Any]]]) -> list[Any]:
        """The answers of many calls, in one journey."""
        return list(json.loads(self.page.evaluate(CALLS, [json.dumps(wanted)])))


def _serve(route: Route) -> None:
    path = urlsplit(route.request.url).path
    if path == "/":
        route.fulfill(body="<!doctype html><title>maths</title>", content_type="text/html")
        return
    part = files("attsvm.app").joinpath("playground", *path.strip("/").split("/"))
    if not part.is_file():
        route.fulfill(status=404)
        return
    route.fulfill(body=part.read_text(encoding="utf-8"), content_type="text/javascript")
