"""A playground in a page of its own, driven as a person would."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attsvm.app.page import module_text

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

_HTML = """<!doctype html><html lang="en"><meta charset="utf-8"><title>test</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<body style="margin: 0"><div id="playground"></div><script type="module">
{module}
globalThis.maths = maths;
globalThis.changes = [];
globalThis.asked = [];
const options = {options};
if (options.certified) {{
  options.certify = async (...question) => {{
    asked.push(question);
    if (options.certified.error) throw new Error(options.certified.error);
    return options.certified;
  }};
}}
options.onChange = (state, selected) => changes.push({{ state, selected }});
options.address = location.hash;
if (!options.opening) options.state ??= {{ preset: "two-inputs" }};
globalThis.handle = mount(document.getElementById("playground"), options);
</script></body></html>
"""


def write_page(folder: Path, **options: object) -> str:
    """The address of a page that mounts the playground with these options and keeps its handle in `handle`.

    Without a state it shows the first preset, at its end; with ``opening=True`` it begins as a fresh page does.
    """
    module = module_text().removesuffix("export { maths, mount };\nexport default { render };\n")
    path = folder / "playground.html"
    text = _HTML.format(module=module, options=json.dumps({"host": "static", **options}).replace("<", "\\u003c"))
    path.write_text(text, encoding="utf-8")
    return path.as_uri()


class Playground:
    """What tests do with a page that holds a playground."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        page.goto(address)
        self.settle()

    def settle(self) -> None:
        """Wait until the page has drawn what it was told, companions included."""
        self.page.evaluate(
            "handle.ready.then(() => new Promise((done) => { let left = 3;"
            " const tick = () => (left -= 1) ? requestAnimationFrame(tick) : done(); tick(); }))"
        )

    @property
    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = self.page.evaluate("handle.getState()")
        return state

    @property
    def selected(self) -> list[int]:
        selected: list[int] = self.page.evaluate("handle.getSelected()")
        return selected

    @property
    def words(self) -> str:
        """The explanatory line."""
        return self.find(".explanation").inner_text()

    @property
    def text(self) -> str:
        """Everything written on the page, pictures included."""
        text: str = self.page.evaluate("document.getElementById('playground').shadowRoot.textContent")
        return text

    def find(self, selector: str) -> Locator:
        return self.page.locator(selector)

    def item(self, key: str) -> Locator:
        """Something that can be dragged: token-0-1, query-0, head, start-0, companion-0."""
        return self.page.locator(f'[data-item="{key}"]')

    def load(self, preset: str) -> None:
        self.find('select[aria-label="preset"]').select_option(preset)
        self.settle()

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def centre(self, key: str) -> tuple[float, float]:
        """Where an item is on the screen."""
        box = self.item(key).locator(".reach").bounding_box()
        assert box is not None
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def drag(self, key: str, by: tuple[float, float], *, grip: tuple[float, float] = (0.0, 0.0)) -> None:
        """Drag an item with the mouse, in a few moves."""
        x, y = self.centre(key)
        mouse = self.page.mouse
        mouse.move(x + grip[0], y + grip[1])
        mouse.down()
        for step in range(1, 5):
            mouse.move(x + grip[0] + by[0] * step / 4, y + grip[1] + by[1] * step / 4)
        mouse.up()
        self.settle()

    def until(self, condition: Callable[[], bool], *, tries: int = 100) -> None:
        """Wait for what the page computes in its own time."""
        for _ in range(tries):
            if condition():
                return
            self.page.wait_for_timeout(50)
        raise AssertionError("the page never came to what was waited for")


def broken_words(text: str) -> list[str]:
    """What must never stand on the page."""
    return [word for word in ("NaN", "undefined", "Infinity", "[object") if word in text]


def share(playground: Playground, action: str) -> None:
    """Choose an entry of the menu that shares and saves."""
    playground.find(".menu > summary").click()
    playground.find(f'.menu [data-action="{action}"]').click()


def exported_python(playground: Playground) -> dict[str, Any]:
    """Run the Python that the page offers, and give back its names."""
    share(playground, "python")
    code = playground.find("dialog.code textarea").input_value()
    playground.find("dialog.code").get_by_role("button", name="Close").click()
    assert code.startswith("# What the attsvm playground shows.")
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(code, "snippet", "exec"), names)
    return names
