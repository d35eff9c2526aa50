"""Two thousand random drags and control changes in one session: no exception, nothing broken on screen, memory flat."""

from __future__ import annotations

import pytest

from .playground import Playground, broken_words

ACTIONS = 2000

# Synthetic events of the browser's own mouse pointer; four actions a frame, as when somebody is in a great hurry.
_SESSION = """async ([seed, count]) => {
  let state = seed;
  const random = () => { state = (1664525 * state + 1013904223) % 4294967296; return state / 4294967296; };
  const pick = (list) => list[Math.floor(random() * list.length)];
  const root = document.getElementById('playground').shadowRoot;
  const svg = root.querySelector('.plane');
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const pointer = (type, x, y) => svg.dispatchEvent(new PointerEvent(type, {
    bubbles: true, composed: true, cancelable: true, pointerId: 1, pointerType: 'mouse', buttons: 1,
    clientX: x, clientY: y }));
  const drag = () => {
    const item = pick([...svg.querySelectorAll('[data-item] .reach')]).getBoundingClientRect();
    const box = svg.getBoundingClientRect();
    const x = item.x + item.width / 2 + (random() < 0.3 ? 12 : 0);
    const y = item.y + item.height / 2;
    pointer('pointerdown', x, y);
    for (let k = 0; k < 3; k += 1) pointer('pointermove', box.x + random() * box.width, box.y + random() * box.height);
    if (random() < 0.3) { // onto another item, to the pixel
      const other = pick([...svg.querySelectorAll('[data-item] .reach')]).getBoundingClientRect();
      pointer('pointermove', other.x + other.width / 2, other.y + other.height / 2);
    }
    pointer('pointerup', x, y);
  };
  const press = () => {
    const open = [...root.querySelectorAll('button')].filter((each) => !each.disabled && each.offsetParent !== null
      && !each.closest('dialog, .menu') && !/help/.test(each.getAttribute('aria-label') ?? ''));
    pick(open).click();
  };
  const type = () => {
    const field = pick([...root.querySelectorAll('input[type="number"]')].filter((each) => each.offsetParent !== null));
    if (field === undefined) return; // a lecture shows none
    field.value = pick(['0', '1', '-1', '0.5', '1000', '-1000', '1e-9', '', '3', '150', String(random() * 4 - 2)]);
    field.dispatchEvent(new Event('change', { bubbles: true }));
  };
  const key = () => {
    const item = pick([...svg.querySelectorAll('[data-item]')]);
    item.focus();
    const name = pick(['ArrowUp', 'ArrowDown', 'ArrowLeft', 'ArrowRight', 'Delete', 'a', 'l', '+', '-', 'Home', 'End',
      '.', ',']);
    const far = random() < 0.3;
    item.dispatchEvent(new KeyboardEvent('keydown', { key: name, bubbles: true, composed: true, shiftKey: far }));
  };
  const slide = () => {
    const slider = root.querySelector('input[type="range"]');
    slider.value = String(Math.floor(random() * 200));
    slider.dispatchEvent(new Event('input', { bubbles: true }));
  };
  const check = () => {
    pick([...root.querySelectorAll('input[type="checkbox"]')].filter((each) => !each.disabled)).click();
  };
  const preset = () => {
    const select = root.querySelector('select');
    select.value = pick([...select.options].map((option) => option.value).filter(Boolean));
    select.dispatchEvent(new Event('change', { bubbles: true }));
  };
  const kinds = [drag, drag, drag, drag, drag, drag, press, press, type, key, key, slide, check, preset];
  for (let k = 0; k < count; k += 1) {
    pick(kinds)();
    if (k % 4 === 3) await frame();
    // Long runs would make this a test of patience.
    if (handle.getState().settings.steps > 400) {
      const state = handle.getState();
      state.settings.steps = 400;
      state.time = null;
      handle.setState(state);
    }
  }
  await frame();
  return root.querySelectorAll('*').length;
}"""


@pytest.mark.slow
def test_two_thousand_actions(playground: Playground) -> None:
    page = playground.page
    session = page.context.new_cdp_session(page)

    def megabytes() -> float:
        session.send("HeapProfiler.collectGarbage")
        return float(session.send("Runtime.getHeapUsage")["usedSize"]) / 2**20

    page.evaluate(_SESSION, [1, ACTIONS // 4])
    before = megabytes()
    for seed in (2, 3, 4):
        elements = page.evaluate(_SESSION, [seed, ACTIONS // 4])
        assert elements < 4000
        assert broken_words(playground.text) == []
        assert broken_words(playground.find(".plane").evaluate("svg => svg.outerHTML")) == []
    after = megabytes()
    print(f"{before:.1f} MiB after {ACTIONS // 4} actions, {after:.1f} MiB after {ACTIONS}")
    assert after < before + 12
    playground.button("next preset").click()
    playground.settle()
    assert "descent" in playground.words.lower()
