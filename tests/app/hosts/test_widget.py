from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
import torch

import attsvm
from attsvm.app.page import module_text
from attsvm.data import TokenDataset, example

from .drive import drag, says
from .jupyter import TOKEN, jupyter, notebook
from .requests import QUESTION

pytest.importorskip("anywidget", reason="the widget needs anywidget: pip install 'attsvm[app]'")


def widget(*arguments: object, **options: object):
    from attsvm.app import Playground

    return Playground(*arguments, **options)


def test_the_widget_is_the_same_module():
    assert str(widget()._esm) == module_text()


def test_data_go_in_and_come_out():
    data = example("hyperplanes")
    shown = widget(data)
    assert torch.equal(shown.data.tokens, data.tokens)
    assert torch.equal(shown.data.queries, data.queries)
    assert torch.equal(attsvm.token_scores(shown.data), attsvm.token_scores(data))


def test_starting_points_go_in():
    shown = widget(example("multi-input"), attsvm.data.starting_points("multi-input"))
    assert shown.state["settings"]["start"] == {"p": [1.0, 0.0]}


def test_other_data_keep_the_settings_where_they_can():
    shown = widget(example("two-inputs"))
    shown.state = {**shown.state, "settings": {**shown.state["settings"], "trained": "KQ"}}
    shown.data = example("hyperplanes")
    assert shown.state["settings"]["trained"] == "KQ"
    assert shown.data.T == 5
    shown.data = example("multi-input")
    assert shown.state["settings"]["trained"] == "p"


def test_before_it_is_shown_there_are_no_data():
    with pytest.raises(ValueError, match="has not been shown yet"):
        _ = widget().data


def test_a_name_is_no_data_set():
    with pytest.raises(ValueError, match=r"data must be a TokenDataset, such as attsvm\.data\.example"):
        widget("two-inputs")


def test_examples_keep_their_name():
    shown = widget(example("single-input-local"))
    assert shown.state["preset"] == "single-input-local"
    shown.data = example("multi-input")  # with the settings of the other: no longer what the advice speaks of
    assert shown.state["preset"] is None


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="plane"):
        widget(attsvm.data.random_sphere(n=2, T=3, d=5, seed=0))
    shown = widget(example("two-inputs"))
    before = shown.state
    with pytest.raises(ValueError, match="kind"):
        shown.state = {"problem": {"kind": "cube"}}
    with pytest.raises(ValueError, match="problem must be an object"):
        shown.state = {"version": 1}
    with pytest.raises(ValueError, match="batch"):
        shown.data = TokenDataset(torch.ones(2, 1, 2, 2), torch.ones(2, 1, 2), torch.ones(2, 1))
    assert shown.state == before


@pytest.mark.parametrize(
    ("change", "key"), [({}, "certificate"), ({"selected": [9]}, "error"), ({"norm": None}, "error")]
)
def test_python_answers_the_page(monkeypatch, change, key):
    shown, sent = widget(), []
    monkeypatch.setattr(shown, "send", sent.append)
    shown._handle_custom_msg({"kind": "certify", "id": 7, **QUESTION, **change}, [])
    (reply,) = sent
    assert reply["kind"] == "certificate"
    assert reply["id"] == 7
    assert key in reply
    json.dumps(reply, allow_nan=False)


@pytest.mark.parametrize("content", [None, [], "certify", {"kind": "other"}])
def test_other_messages_are_left_alone(monkeypatch, content):
    shown, sent = widget(), []
    monkeypatch.setattr(shown, "send", sent.append)
    shown._handle_custom_msg(content, [])
    assert sent == []


@pytest.mark.slow
def test_without_anywidget_a_sentence_says_what_to_install():
    code = (
        "import sys; sys.modules['anywidget'] = None\nimport attsvm.app\nattsvm.app.write_page; attsvm.app.Playground"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last == "ImportError: attsvm.app.Playground needs the package anywidget: pip install 'attsvm[app]'"


CELLS = [
    "import attsvm, attsvm.app\nplayground = attsvm.app.Playground(attsvm.data.example('two-inputs'))\nplayground",
    "playground.data = attsvm.data.example('hyperplanes'); print('set', 'from Python')",
    "print('place', playground.data.tokens[0, 0].tolist(), 'selected', playground.selected)",
]


@pytest.mark.slow
def test_a_real_notebook(browser, tmp_path):
    pytest.importorskip("notebook", reason="needs the package notebook")
    notebook(tmp_path / "test.ipynb", CELLS)
    context = browser.new_context(viewport={"width": 1300, "height": 1400})
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(f"{error}\n{error.stack}"))
    with jupyter(tmp_path) as address, context:
        page.goto(f"{address}/notebooks/test.ipynb?token={TOKEN}")
        cells = page.locator(".jp-CodeCell")
        cells.first.locator(".cm-content").click()
        page.keyboard.press("Shift+Enter")
        page.locator('[data-item="token-0-0"]').wait_for(timeout=60_000)
        assert page.locator('[data-item^="token-0-"]').count() == 4

        # Python answers the request for a certificate.
        says(page.locator(".agreement"), "agree to")
        says(page.locator(".certificate"), "Batched Frobenius")

        # A value set from Python appears in the page.
        cells.nth(1).locator(".cm-content").click()
        page.keyboard.press("Shift+Enter")
        says(cells.nth(1), "set from Python")
        page.locator('[data-item="token-0-4"]').wait_for()
        assert page.locator('[data-item^="token-0-"]').count() == 5

        # What is dragged in the page is read back in Python.
        before = place(page, cells)
        drag(page, "token-0-0", -60, 80)
        after = moved_place(page, cells, before)
        assert after[0] < before[0] - 0.2
        assert after[1] < before[1] - 0.2

        # Keys move what has the focus, and do nothing to the notebook: there "a" would make a cell.
        page.locator('[data-item="token-0-0"]').focus()
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("a")
        page.locator('[data-item="token-0-5"]').wait_for()
        assert moved_place(page, cells, after)[0] < after[0]
        assert cells.count() == len(CELLS)
    # Jupyter has errors of its own; the widget's module comes from a blob.
    assert [error for error in errors if "blob:" in error] == []


def place(page, cells) -> list[float]:
    """Where Python thinks the first token is: runs the last cell."""
    last = cells.nth(len(CELLS) - 1)
    old = last.locator(".jp-InputPrompt").text_content()
    last.locator(".cm-content").click()
    page.keyboard.press("Control+Enter")
    for _ in range(200):
        page.wait_for_timeout(50)
        prompt = last.locator(".jp-InputPrompt").text_content()
        if prompt != old and re.search(r"\d", prompt):
            break
    said = last.locator(".jp-OutputArea-output").text_content()
    assert re.search(r"selected \[\d, \d\]", said), said
    return json.loads(re.search(r"place (\[.*?\])", said)[1])


def moved_place(page, cells, before: list[float]) -> list[float]:
    """As `place`, when it has changed: the page tells Python once nothing has moved for a moment."""
    for _ in range(20):
        now = place(page, cells)
        if now != before:
            return now
        page.wait_for_timeout(250)
    return before
