"""Sharing: the address, pictures, data that attsvm reads, and Python that gives the same run."""

from __future__ import annotations

import base64
import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import attsvm
from attsvm.cli.app import app

from .playground import Playground, exported_python, share, write_page

_SET = """(changes) => { const state = handle.getState();
Object.assign(state.settings, changes); handle.setState(state); }"""


def _saved(playground: Playground, action: str, folder: Path) -> Path:
    with playground.page.expect_download() as download:
        share(playground, action)
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


def _page_run(playground: Playground) -> dict[str, Any]:
    run: dict[str, Any] = playground.page.evaluate(
        """() => { const { problem, settings } = handle.getState();
        const run = maths.train(problem, settings, []);
        return { weights: run.weights.at(-1), selected: run.selected, head: run.parameters.at(-1).head,
                 solution: maths.predict(problem, settings, run.selected).weights }; }"""
    )
    return run


@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        ("two-inputs", {}),
        ("two-inputs", {"trained": "KQ", "steps": 150}),  # later this run is chaotic: 1e-15 at the start becomes 1e-3
        ("two-inputs", {"optimizer": "sign", "stepSize": 0.05, "steps": 600}),
        ("two-inputs", {"optimizer": "spectral", "steps": 600}),
        ("hyperplanes", {"optimizer": "gradient", "loss": "exponential", "stepSize": 0.5, "steps": 700}),
        ("single-input-local", {}),
        ("multi-input", {}),
        ("joint-training-tight", {"steps": 300}),
        ("joint-training-relaxed", {"steps": 300}),
        ("loss-comparison", {"loss": "linear"}),
    ],
)
def test_the_snippet_reproduces_the_screen(playground: Playground, preset: str, changes: dict[str, Any]) -> None:
    playground.load(preset)
    if changes:
        playground.page.evaluate(_SET, changes)
        playground.settle()
    names, page = exported_python(playground), _page_run(playground)
    run, solution = names["run"], names["solution"]
    assert run.selected.tolist() == page["selected"] == playground.selected
    expected = np.array(page["weights"])
    assert np.abs(run.weights.flatten().numpy() - expected).max() < 1e-9 * np.abs(expected).max()
    if playground.state["settings"]["trainHead"]:
        assert np.abs(run.parameters["head"].numpy() - page["head"]).max() < 1e-9 * np.abs(page["head"]).max()
    unique = changes.get("optimizer") not in ("sign", "spectral")  # in those norms several solutions are best
    if unique:
        assert np.abs(solution.weights.flatten().numpy() - page["solution"]).max() < 1e-6
        cosine = float(attsvm.direction_cosine(run.weights, solution.weights))
        assert cosine == pytest.approx(float(playground.find(".cosine").inner_text()), abs=1e-4)
    margin = re.search(r"margin: ([\d.]+) of the best", playground.find(".readout").inner_text())
    if margin is not None:
        efficiency = float(
            attsvm.margin_efficiency(run.weights, names["problem"], solution=solution, norm=_norm(changes))
        )
        assert efficiency == pytest.approx(float(margin[1]), abs=2e-3 if efficiency < 0.99 else 1e-3)
    assert unique or margin is not None


def test_the_snippet_repeats_the_naive_gradient(playground: Playground) -> None:
    playground.load("single-input-local")
    playground.page.evaluate(_SET, {"optimizer": "naive", "steps": 100})
    playground.settle()
    names, page = exported_python(playground), _page_run(playground)
    assert names["run"].selected.tolist() == page["selected"]
    assert names["run"].weights.flatten().tolist() == pytest.approx(page["weights"], abs=1e-3)
    trained = {"trained": "W", "optimizer": "naive"}
    sentence = playground.page.evaluate(
        "(settings) => { const { problem } = handle.getState();"
        " return handle.setState({ problem: { ...problem, kind: 'matrix' }, settings }); }",
        trained,
    )
    assert sentence == "settings.optimizer: the naive gradient is computed for a prompt p only"


def _norm(changes: dict[str, Any]) -> attsvm.norms.Norm:
    if changes.get("trained") == "KQ":
        return attsvm.Nuclear()
    by_optimizer: dict[str, attsvm.norms.Norm] = {"sign": attsvm.MaxEntry(), "spectral": attsvm.Spectral()}
    return by_optimizer.get(changes.get("optimizer", ""), attsvm.Frobenius())


def test_the_snippet_knows_ragged_inputs_labels_pinned_selections_and_time(playground: Playground) -> None:
    playground.load("single-input-local")
    playground.button("Add an input").click()
    playground.button("remove token 1 of input 0").click()
    playground.find(".input-block .label").first.click()
    playground.find('input[aria-label="step of the run"]').fill("12")
    playground.settle()
    playground.page.evaluate("() => { const state = handle.getState(); state.shown = [1, 2]; handle.setState(state); }")
    playground.settle()
    names, page = exported_python(playground), _page_run(playground)
    assert names["data"].mask.tolist() == [[True, True, False], [True, True, True]]
    assert names["data"].labels.tolist() == [-1.0, 1.0]
    assert names["run"].selected.tolist() == page["selected"]
    assert names["problem"].reference.tolist() == [1, 2]
    assert playground.state["time"] in names["run"].history.step.tolist()


@pytest.mark.parametrize("preset", ["two-inputs", "multi-input", "joint-training-tight"])
def test_the_data_file_is_read_by_attsvm(playground: Playground, preset: str, tmp_path: Path) -> None:
    playground.load(preset)
    path = _saved(playground, "npz", tmp_path)
    data = attsvm.TokenDataset.load(path)
    expected = attsvm.data.example(preset)
    assert torch.equal(data.tokens, expected.tokens)
    assert torch.equal(data.values, expected.values)
    assert torch.equal(data.queries, expected.queries)
    assert torch.equal(data.labels, expected.labels)
    ran = CliRunner().invoke(app, ["solve", str(path), "--out", str(tmp_path / "out"), "--json"])
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["status"]["solved"] == 1


def test_a_ragged_data_file_has_a_mask(playground: Playground, tmp_path: Path) -> None:
    playground.button("remove token 3 of input 1").click()
    playground.settle()
    data = attsvm.TokenDataset.load(_saved(playground, "npz", tmp_path))
    assert data.mask is not None
    assert data.mask.tolist() == [[True] * 4, [True, True, True, False]]


def test_the_svg_stands_alone(playground: Playground, tmp_path: Path) -> None:
    playground.load("optimal-not-reached")
    image = playground.find(".plane image")
    playground.until(lambda: (image.get_attribute("href") or "").startswith("data:image/png"))
    text = _saved(playground, "svg", tmp_path).read_text()
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "var(--" not in text
    assert "class=" not in text
    assert "tabindex" not in text
    outside = [value for each in root.iter() for name, value in each.attrib.items() if name.endswith("href")]
    assert all(value.startswith("data:") for value in outside)
    assert "cosine" in text
    fills = {each.get("fill") for each in root.iter() if each.get("fill")}
    assert len(fills) > 4


def test_the_png_shows_something(playground: Playground, tmp_path: Path) -> None:
    with Image.open(_saved(playground, "png", tmp_path)) as picture:
        pixels = np.asarray(picture.convert("RGB"))
        colours = picture.convert("RGB").getcolors(1 << 24)
    assert pixels.shape[0] > 600
    assert pixels.std() > 10
    assert colours is not None
    assert len(colours) > 50


def test_the_address_holds_the_whole_state(playground: Playground) -> None:
    playground.load("hyperplanes")
    playground.drag("token-0-1", (20, 30))
    playground.find('input[aria-label="step of the run"]').fill("25")
    playground.settle()
    state = playground.state
    playground.until(lambda: "#s=" in playground.page.url)
    playground.page.wait_for_timeout(400)
    again = Playground(playground.page.context.new_page(), playground.page.url)
    assert again.state == state
    assert again.words != ""
    again.page.close()


def test_back_and_forth_with_another_address(playground: Playground) -> None:
    first = playground.state
    code = playground.page.evaluate("JSON.stringify(handle.getState())")
    playground.load("multi-input")
    encoded = base64.urlsafe_b64encode(code.encode()).decode().rstrip("=")
    playground.page.evaluate("(code) => { location.hash = `s=${code}`; }", encoded)
    playground.until(lambda: playground.state == first)


HOSTILE = [
    "#s=",
    "#s=%00%00",
    "#s=!!!!",
    "#s=" + "A" * 70000,
    "#s=" + base64.urlsafe_b64encode(b"[1, 2").decode().rstrip("="),
    "null",
    '{"version": 2}',
    '{"problem": {"inputs": []}}',
    '{"problem": {"inputs": [{"tokens": []}]}}',
    '{"problem": {"inputs": [{"tokens": [{"x": [1e999, 0]}]}]}}',
    '{"problem": {"inputs": [{"tokens": [{"x": ["<img src=x onerror=alert(1)>", 0]}]}]}}',
    '{"problem": {"kind": "prompt", "inputs": [{"tokens": [{"x": [0, 0]}]}]}, "settings": {"trained": "W"}}',
    '{"problem": {"inputs": [{"tokens": [{"x": [0, 0]}]}]}, "settings": {"steps": 1e9}}',
    '{"problem": {"inputs": [{"tokens": [{"x": [0, 0]}]}]}, "shown": [7]}',
    '{"problem": {"inputs": [{"tokens": [{"x": [0, 0]}]}]}, "companions": [{"loss": "__proto__"}]}',
    '{"__proto__": {"polluted": true}, "problem": 3}',
    "[" * 5000,
]


def test_hostile_states_are_answered_with_a_sentence(playground: Playground) -> None:
    before = playground.state
    for text in HOSTILE:
        sentence = playground.page.evaluate("(text) => handle.setState(text)", text)
        assert isinstance(sentence, str), text[:40]
        assert len(sentence) < 300
        assert playground.find(".toast").inner_text() == sentence
    others: tuple[Any, ...] = (None, 3, [], {"problem": None})
    for value in others:
        assert isinstance(playground.page.evaluate("(value) => handle.setState(value)", value), str)
    playground.settle()
    assert playground.state == before
    assert playground.page.evaluate("({}).polluted === undefined")
    assert playground.find(".toast img").count() == 0


def test_a_damaged_address_opens_the_first_preset_and_says_so(playground: Playground, tmp_path: Path) -> None:
    address = write_page(tmp_path) + "#s=damaged"
    page = playground.page.context.new_page()
    opened = Playground(page, address)
    assert opened.state["preset"] == "two-inputs"
    assert "damaged" in opened.find(".toast").inner_text()
    page.close()


def test_a_short_state_is_filled_up_and_told(playground: Playground) -> None:
    short = {"problem": {"inputs": [{"tokens": [{"x": [1, 0]}, {"x": [0, 1]}]}]}}
    assert playground.page.evaluate("(state) => handle.setState(state)", short) is None
    playground.settle()
    state = playground.state
    assert state["settings"]["optimizer"] == "normalized"
    assert state["problem"]["kind"] == "matrix"
    playground.until(lambda: playground.page.evaluate("changes.length") > 0)
    told = playground.page.evaluate("changes.at(-1)")
    assert told["state"] == state
    assert told["selected"] == playground.selected


def test_the_link_is_offered(playground: Playground) -> None:
    playground.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    playground.drag("token-0-1", (10, 10))
    share(playground, "link")
    dialog = playground.find("dialog.code")
    playground.until(lambda: dialog.is_visible() or "clipboard" in playground.find(".toast").inner_text())
    text = (
        dialog.locator("textarea").input_value()
        if dialog.is_visible()
        else playground.page.evaluate("navigator.clipboard.readText()")
    )
    assert "#s=" in text
    assert text.startswith("file:")
