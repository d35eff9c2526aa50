"""Data in and out, random data and fresh inputs on the page: the same arrays, seeds and shares as in Python."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attsvm
from attsvm.app.problem import data_to_state, problem_to_data
from attsvm.attention import evaluate, token_scores

from .playground import Playground, share

FIELDS = ("tokens", "queries", "labels", "mask", "values", "head")


def _saved(playground: Playground, folder: Path) -> attsvm.TokenDataset:
    with playground.page.expect_download() as download:
        share(playground, "npz")
    path = folder / "saved.npz"
    download.value.save_as(path)
    return attsvm.TokenDataset.load(path)


def _open(playground: Playground, path: Path) -> str:
    """Open a file on the page; what the page says if it does not like it."""
    playground.page.evaluate(
        "document.getElementById('playground').shadowRoot.querySelector('.toast').textContent = ''"
    )
    before = playground.state
    playground.find('input[type="file"]').set_input_files(path)
    toast = playground.find(".toast")
    playground.until(lambda: playground.state != before or (toast.text_content() or "") != "")
    playground.settle()
    return toast.text_content() or ""


def _same(first: attsvm.TokenDataset, second: attsvm.TokenDataset) -> None:
    for name in FIELDS:
        one, other = getattr(first, name), getattr(second, name)
        assert (one is None) == (other is None), name
        assert one is None or torch.equal(one.to(torch.float64), other.to(torch.float64)), name


def _ragged() -> attsvm.TokenDataset:
    data = attsvm.data.random_sphere(n=3, T=4, d=2, seed=11)
    mask = torch.ones(3, 4, dtype=torch.bool)
    mask[1, 3] = False
    tokens = data.tokens.masked_fill(~mask[..., None], 0.0)
    return attsvm.TokenDataset(tokens, data.queries, data.labels, mask, None, data.head)


@pytest.mark.parametrize("name", ["two-inputs", "multi-input", "loss-comparison", "random", "ragged", "causal"])
def test_from_python_to_the_page_and_back(playground: Playground, tmp_path: Path, name: str) -> None:
    if name == "random":
        data = attsvm.data.random_sphere(n=4, T=3, d=2, seed=3)
    elif name == "ragged":
        data = _ragged()
    elif name == "causal":
        tokens = attsvm.data.random_sphere(n=1, T=4, d=2, seed=3).tokens
        data = attsvm.TokenDataset.causal(tokens, torch.ones(1, 4), head=torch.tensor([0.0, 1.0]).double())
    else:
        data = attsvm.data.example(name)
    assert _open(playground, data.save(tmp_path / "data.npz")) == ""
    shown = playground.state
    assert shown["preset"] is None
    assert shown["problem"] == {**shown["problem"], **_as_read(data_to_state(data)["problem"], shown["problem"])}
    back = _saved(playground, tmp_path)
    if name == "causal":  # the page draws every position as an input of its own
        _same(back, problem_to_data(shown["problem"]))
        unit = torch.eye(2, dtype=torch.float64)
        assert torch.equal(evaluate(back, unit).attention, evaluate(data, unit).attention)
    else:
        _same(back, data)


def _as_read(problem: dict[str, Any], shown: dict[str, Any]) -> dict[str, Any]:
    """Python's problem of the data, with the queries that the page gives to a prompt's inputs."""
    inputs = [
        {**each, "query": own["query"]} if each["query"] is None else each
        for each, own in zip(problem["inputs"], shown["inputs"], strict=True)
    ]
    return {"kind": problem["kind"], "head": [float(x) for x in problem["head"]], "inputs": inputs}


def test_files_of_numpy_itself_in_other_types_and_orders(playground: Playground, tmp_path: Path) -> None:
    data = attsvm.data.example("two-inputs")
    path = tmp_path / "numpy.npz"
    np.savez_compressed(
        path,
        tokens=np.asfortranarray(data.tokens.numpy()),
        queries=data.queries.numpy().astype(">f8"),
        labels=data.labels.numpy().astype(np.int64),
        head=data.head.numpy().astype(np.float32),
    )
    assert _open(playground, path) == ""
    _same(problem_to_data(playground.state["problem"]), data)


def test_files_that_cannot_be_shown_say_why(playground: Playground, tmp_path: Path) -> None:
    good = attsvm.data.example("two-inputs").save(tmp_path / "good.npz").read_bytes()
    arrays = {"tokens": np.ones((1, 2, 2)), "queries": np.ones((1, 2)), "labels": np.ones(1)}
    bad: dict[str, tuple[Any, str]] = {
        "no archive": (b"not a zip archive at all", "not a zip archive"),
        "empty": (b"", "not a zip archive"),
        "cut off": (good[: len(good) // 2], "not a zip archive, or was cut off"),
        "damaged": (good[:400] + bytes([good[400] ^ 8]) + good[401:], "does not match its checksum"),
        "no labels": ({k: v for k, v in arrays.items() if k != "labels"}, 'must hold an array "labels"'),
        "stray": ({**arrays, "token": np.ones(1)}, 'no token data set has an array "token"'),
        "space": ({**arrays, "tokens": np.ones((1, 2, 3))}, "tokens must have shape [any, any, 2]; got [1, 2, 3]"),
        "batch": ({**arrays, "tokens": np.ones((5, 1, 2, 2))}, "a batch of data sets"),
        "many": (
            {"tokens": np.ones((9, 2, 2)), "queries": np.ones((9, 2)), "labels": np.ones(9)},
            "at most 8 inputs of 12 tokens can be drawn; the file has 9 of 2",
        ),
        "labels": ({**arrays, "labels": np.array([0.5])}, "labels must be 1 or -1; got 0.5"),
        "nan": ({**arrays, "tokens": np.full((1, 2, 2), np.nan)}, "tokens must be finite"),
        "complex": ({**arrays, "head": np.ones(2) * 1j}, "head is stored as c16"),
    }
    before = playground.state
    for name, (content, words) in bad.items():
        path = tmp_path / f"{name}.npz"
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            np.savez(path, **content)
        said = _open(playground, path)
        assert said.startswith(f"{name}.npz cannot be shown: "), said
        assert words in said
    assert playground.state == before


def test_random_data_have_their_seed_in_the_link(playground: Playground) -> None:
    page = playground.page
    playground.find(".random > summary").click()
    playground.button("Draw random data").click()
    playground.until(lambda: page.url.endswith("#random=1"))
    first = playground.state
    assert first["problem"] == page.evaluate("maths.randomData({ seed: 1, inputs: 3, tokens: 4, labels: 'told' })")
    playground.button("Draw random data").click()
    playground.until(lambda: page.url.endswith("#random=2"))
    assert playground.state["problem"] != first["problem"]
    page.evaluate("location.hash = 'random=1&inputs=5&labels=free&step=3'")
    playground.settle()
    state = playground.state
    assert (len(state["problem"]["inputs"]), state["time"]) == (5, 3)
    playground.drag("token-0-0", (0, 30))
    assert playground.find(".edited").is_visible()
    playground.until(lambda: "#s=" in page.url)
    playground.button("Back to the scene").click()
    playground.settle()
    assert playground.state["problem"] == state["problem"]
    page.evaluate("location.hash = 'random=1&inputs=50'")
    playground.settle()
    assert "random.inputs must be a whole number from 1 to 8" in playground.find(".toast").inner_text()


@pytest.mark.parametrize("link", ["scene=multi-input", "random=3&step=20", "scene=joint-training-tight&step=30"])
def test_the_share_on_the_page_is_that_of_attsvm(playground: Playground, link: str) -> None:
    page = playground.page
    page.evaluate("(text) => { location.hash = text; }", link)
    playground.settle()
    state = playground.state
    run = page.evaluate(
        """() => { const { problem, settings, time } = handle.getState();
        const run = maths.train(problem, settings, time === null ? [] : [time]);
        return { weights: run.weights[0], head: run.parameters[0].head }; }"""
    )
    drawn = state["random"] if link.startswith("random") else None
    plan = {**state["view"]["fresh"], "count": 400, "drawn": drawn}
    fresh = page.evaluate("(plan) => maths.freshInputs(handle.getState().problem, plan)", plan)
    head = run["head"] if state["settings"]["trainHead"] else state["problem"]["head"]
    parts = [problem_to_data({**state["problem"], "head": head, "inputs": fresh[k : k + 8]}) for k in range(0, 400, 8)]
    weights = torch.tensor(run["weights"], dtype=torch.float64).reshape(2, -1)
    right = sum(int((evaluate(each, weights).selected == token_scores(each).argmax(-1)).sum()) for each in parts)
    shown = playground.find(".fresh .rest").text_content() or ""
    found = re.search(r"(\d+) of 400", shown)
    assert found is not None
    assert int(found[1]) == right
    percent = (playground.find(".fresh .share").text_content() or "").removesuffix(" %")
    assert float(percent) == pytest.approx(right / 4, abs=0.051)


def test_fresh_inputs_are_drawn_and_drawn_again(playground: Playground) -> None:
    assert playground.find(".fresh .share").text_content() != ""
    playground.find('[data-layer="fresh"]').check()
    playground.settle()
    marks = playground.find('.plane path[stroke-opacity="0.4"]')
    assert marks.count() == 2
    before = marks.first.get_attribute("d")
    playground.button("Draw others").click()
    playground.settle()
    assert marks.first.get_attribute("d") != before
    assert playground.state["view"]["fresh"]["seed"] == 2
    playground.drag("token-0-1", (20, 10))
    playground.button("undo").click()
    playground.settle()
    assert playground.state["view"]["fresh"]["seed"] == 2, "undo leaves what is only looked at"
