"""A long random session with the real mouse: 640 drags and control changes; and how fast a drag is drawn."""

from __future__ import annotations

import random

import pytest

from attsvm.app import write_page

from .drive import loaded

ACTIONS = 640
SEED = 6
DRAGS, CHANGES = 6, 14
VALUES = ("0", "-1", "1000", "-1000", "0.5", "2", "1e-9", "", "1e9", "-0.25", "17")

# Runs in the page: one random control change for each number, a frame after each, then what should not be on screen.
# Files and the clipboard are left out, and the number of iterations keeps its size.
ACT = """
async ([numbers, values]) => {
  const root = document.getElementById("playground").shadowRoot;
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  const done = [];
  for (const number of numbers) {
    root.querySelectorAll("dialog[open]").forEach((dialog) => dialog.close());
    const all = [...root.querySelectorAll("button, select, input")].filter((each) =>
      !each.disabled && !each.closest(".share, dialog") && each.getAttribute("aria-label") !== "iterations"
      && each.checkVisibility({ visibilityProperty: true }));
    const control = all[Math.floor(number * all.length)];
    const pick = Math.floor(number * 1e6);
    done.push(`${control.tagName} ${control.getAttribute("aria-label") ?? control.textContent}`);
    if (control.tagName === "BUTTON" || control.type === "checkbox") control.click();
    else if (control.tagName === "SELECT") {
      const options = [...control.options].filter((option) => !option.disabled);
      control.value = options[pick % options.length].value;
      control.dispatchEvent(new Event("change", { bubbles: true }));
    } else {
      control.value = control.type === "range" ? pick % (Number(control.max) + 1) : values[pick % values.length];
      control.dispatchEvent(new Event("input", { bubbles: true }));
      control.dispatchEvent(new Event("change", { bubbles: true }));
    }
    await frame();
  }
  return done;
}
"""
WRONG = """
() => {
  const root = document.getElementById("playground").shadowRoot;
  const found = root.innerHTML.match(/.{0,60}(NaN|undefined|Infinity|\\[object).{0,60}/);
  return found ? found[0] : null;
}
"""
ITEMS = """
() => [...document.getElementById("playground").shadowRoot.querySelectorAll("[data-item]")].map((item) => {
  const box = item.querySelector(".reach").getBoundingClientRect();
  return [item.dataset.item, box.x + box.width / 2, box.y + box.height / 2];
})
"""


class Memory:
    """What the page holds on to, after its garbage is collected, with the first preset on screen."""

    def __init__(self, page) -> None:
        self.page = page
        self.session = page.context.new_cdp_session(page)
        self.session.send("HeapProfiler.enable")

    def measured(self) -> tuple[float, int]:
        self.page.evaluate(
            "document.getElementById('playground').shadowRoot.querySelectorAll('.toast')[0].textContent = ''"
        )
        self.page.locator(".toolbar select").select_option(index=1)
        self.page.wait_for_timeout(400)
        for _ in range(2):
            self.session.send("HeapProfiler.collectGarbage")
        heap = self.session.send("Runtime.getHeapUsage")["usedSize"] / 2**20
        return heap, self.session.send("Memory.getDOMCounters")["nodes"]


def wild_drag(page, chance: random.Random) -> str:
    items = page.evaluate(ITEMS)
    name, x, y = chance.choice(items)
    page.mouse.move(x, y)
    page.mouse.down()
    for _ in range(2):
        # Mostly somewhere in the picture, at times far outside it, at times exactly onto something else.
        target = chance.random()
        if target < 0.2:
            _, to_x, to_y = chance.choice(items)
        else:
            reach = 160 if target < 0.8 else 900
            to_x, to_y = x + chance.uniform(-reach, reach), y + chance.uniform(-reach, reach)
        page.mouse.move(to_x, to_y)
    page.mouse.up()
    return name


@pytest.mark.slow
def test_hundreds_of_random_actions(page, tmp_path):
    chance = random.Random(SEED)
    page.set_viewport_size({"width": 1300, "height": 1000})
    page.goto(write_page(tmp_path / "page.html").as_uri())
    loaded(page)
    memory = Memory(page)
    measured = []
    for start in range(0, ACTIONS, DRAGS + CHANGES):
        if start % (ACTIONS // 4) == 0:
            measured.append(memory.measured())
        dragged = [wild_drag(page, chance) for _ in range(DRAGS)]
        changed = page.evaluate(ACT, [[chance.random() for _ in range(CHANGES)], VALUES])
        assert page.evaluate(WRONG) is None, (start, dragged, changed)
    measured.append(memory.measured())
    print("heap in MiB and nodes after each quarter:", [(round(heap, 2), nodes) for heap, nodes in measured])
    # What can be undone is bounded and full after the first quarters; then nothing more may pile up.
    (middle, middle_nodes), (end, end_nodes) = measured[2], measured[4]
    assert end < 1.25 * middle + 2
    assert end_nodes < 1.25 * middle_nodes + 500


def test_the_search_for_wrong_numbers_can_fail(page, tmp_path):
    page.goto(write_page(tmp_path / "page.html").as_uri())
    loaded(page)
    assert page.evaluate(WRONG) is None
    page.evaluate("document.getElementById('playground').shadowRoot.querySelector('.explanation').textContent = 'NaN'")
    assert "NaN" in page.evaluate(WRONG)


@pytest.mark.slow
def test_how_fast_a_drag_in_the_largest_preset_is_drawn(page, tmp_path):
    """Measures and prints; how fast a machine is, is no matter of right or wrong."""
    page.set_viewport_size({"width": 1300, "height": 1000})
    page.goto(write_page(tmp_path / "page.html").as_uri())
    loaded(page)
    names = page.locator(".toolbar select option:not([disabled])").evaluate_all("all => all.map((each) => each.value)")
    sizes = {}
    for name in names:
        page.locator(".toolbar select").select_option(name)
        state = page.evaluate("document.getElementById('playground').playground.getState()")
        tokens = sum(len(each["tokens"]) for each in state["problem"]["inputs"])
        sizes[name] = tokens * state["settings"]["steps"] * (1 + len(state["companions"]))
    largest = max(sizes, key=sizes.__getitem__)
    page.locator(".toolbar select").select_option(largest)
    page.wait_for_timeout(500)
    _, x, y = page.evaluate(ITEMS)[0]
    page.mouse.move(x, y)
    page.mouse.down()
    page.evaluate("document.getElementById('playground').playground.frames.start()")
    for step in range(120):
        page.mouse.move(x + step % 40, y - step % 30)
    seen = page.evaluate("document.getElementById('playground').playground.frames.stop()")
    page.mouse.up()
    rate = f"{seen['perSecond']:.0f} frames per second over {seen['seconds']:.1f} s"
    print(f"{largest}: {rate}, the longest {seen['longest']:.0f} ms")
    assert seen["count"] > 1
