from __future__ import annotations

import json
import os
import shutil
import sys

import numpy as np
import pytest

from attsvm.heads.loading.folder import quiet
from cli.runner import invoke, refused
from heads.loading.small import vit


def test_the_table_the_page_and_the_numbers(folder, texts, tmp_path):
    asked = ("heads", folder, "--texts", texts, "--layers", "0-1", "--heads", "1", "--queries", 30, "--out", tmp_path)
    result = invoke(*asked, "--html", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    assert "L0H1" in result.output
    assert "2 heads, 2 solved to a certified gap of 0.001, by selectivity" in result.output
    assert result.output.count("sign test") == 1, "two heads cannot pass one"
    assert "a sign test needs 8 heads to find a difference (p < 0.01), and these have 2 at most" in result.output
    assert "MiB" in result.output
    assert "<table" in (tmp_path / "page.html").read_text()
    written = json.loads((tmp_path / "heads.json").read_text())
    assert [head["name"] for head in written["heads"]] == [row["head"] for row in written["table"]]
    assert {head["name"] for head in written["heads"]} == {"L0H1", "L1H1"}
    assert json.loads((tmp_path / "manifest.json").read_text())["kind"] == "heads"
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "cache").rglob("*.chunk")}
    assert len(before) == 2
    assert invoke(*asked, "--quiet", "--jobs", 2).exit_code == 0
    after = {file: file.stat().st_mtime_ns for file in (tmp_path / "cache").rglob("*.chunk")}
    assert after == before  # nothing computed again


def test_json_is_all_that_is_printed(folder, texts, tmp_path):
    result = invoke(
        "heads", folder, "--texts", texts, "--heads", "L1H0", "--queries", 10, "--most-texts", 8, "--leave-out-sinks",
        "--json", "--out", tmp_path,
    )  # fmt: skip
    said = json.loads(result.stdout)
    written = json.loads((tmp_path / "heads.json").read_text())
    assert said == written | {"files": [str(tmp_path / "heads.html"), str(tmp_path / "heads.json")]}
    assert said["sentences"] == 8
    assert said["settings"]["leave_out"] == ["first", "delimiter"]
    assert said["heads"][0]["kinds"]["first"] == 0
    assert "only the first 8 texts" in (tmp_path / "manifest.json").read_text()


def test_a_vision_model_looks_at_a_folder_of_images(folder, texts, tmp_path):
    image = pytest.importorskip("PIL.Image", reason="needs Pillow")
    (tmp_path / "images").mkdir()
    for index in range(3):
        pixels = np.random.default_rng(index).integers(0, 256, (12, 12), dtype=np.uint8)
        image.fromarray(pixels).save(tmp_path / "images" / f"{index}.png")
    with quiet():
        vit().save_pretrained(tmp_path / "vit")
    asked = ("heads", tmp_path / "vit", "--heads", "L0H0", "--queries", 5, "--out", tmp_path / "out")
    result = invoke(*asked, "--images", tmp_path / "images", "--confidence", 0.2, "--held-out", 0)
    assert result.exit_code == 0, result.output
    assert "L0H0" in result.output
    assert "1 head," in result.output
    assert "less than 1 MiB of states" in result.output
    assert json.loads((tmp_path / "out" / "heads.json").read_text())["sentences"] == 3
    refused(invoke(*asked), "looks at images", "--images")
    refused(invoke(*asked, "--images", tmp_path / "none"), "does not exist", "PNG or JPEG")
    refused(invoke(*asked, "--images", tmp_path / "images", "--texts", texts), "exclude each other")
    refused(invoke("heads", folder, "--images", tmp_path / "images", "--out", tmp_path / "b"), "images are for vision")


def test_heads_without_confident_queries_share_one_line(folder, texts, tmp_path):
    result = invoke("heads", folder, "--texts", texts, "--layers", 0, "--confidence", 0.9999999, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    lines = [line for line in result.output.splitlines() if "nothing to separate" in line]
    assert len(lines) == 1
    assert lines[0].startswith(("- L0H0, L0H1: ", "- L0H1, L0H0: "))
    assert "--confidence" in lines[0]


def test_a_model_without_a_tokenizer_and_strange_texts(folder, tmp_path):
    """What is missing is named by an option that there is; unknown words are told before everything else."""
    bare = tmp_path / "bare"
    shutil.copytree(folder, bare)
    (bare / "vocab.txt").rename(tmp_path / "vocab.txt")
    (tmp_path / "texts").write_text("the zebra\na quagga saw the okapi\n")
    asked = ("heads", bare, "--texts", tmp_path / "texts", "--heads", "L0H0", "--queries", 5, "--draws", 1)
    asked = (*asked, "--confidence", 0.2, "--held-out", 0, "--out", tmp_path / "out")
    refused(invoke(*asked), "has no tokenizer", "--tokenizer")
    (tmp_path / "words").mkdir()
    (tmp_path / "vocab.txt").rename(tmp_path / "words" / "vocab.txt")
    result = invoke(*asked, "--tokenizer", tmp_path / "words", "--quiet")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("WARNING: 27% of the tokens are unknown ones")


def test_an_interrupt_keeps_finished_heads(folder, texts, tmp_path, monkeypatch):
    asked = ("heads", folder, "--texts", texts, "--layers", 0, "--queries", 9, "--draws", 1, "--out", tmp_path)
    module = sys.modules["attsvm.heads.analysis.analyze"]
    really = module.analyze_head

    def first_only(task):
        if task.place == (0, 1):
            raise KeyboardInterrupt
        return really(task)

    with monkeypatch.context() as patched:
        patched.setattr(module, "analyze_head", first_only)
        result = invoke(*asked)
    assert result.exit_code == 130
    assert result.stderr == "attsvm: interrupted; finished heads are kept, the same command goes on from them\n"
    (kept,) = tmp_path.rglob("*.chunk")
    before = kept.stat().st_mtime_ns
    result = invoke(*asked)
    assert result.exit_code == 0, result.output
    assert "2 heads" in result.stdout
    assert kept.stat().st_mtime_ns == before
    assert len(list(tmp_path.rglob("*.chunk"))) == 2


def test_bad_input(folder, texts, tmp_path):
    def asked(*more: object) -> object:
        return invoke("heads", folder, "--texts", texts, "--out", tmp_path / "out", *more)

    refused(asked("--layers", "7"), "layers must lie in 0..1", "7")
    refused(asked("--layers", "two"), "--layers", "2-5")
    refused(asked("--layers", "1-0"), "--layers must count upwards")
    refused(asked("--heads", "9"), "heads must lie in 0..1")
    refused(asked("--heads", "LxH1"), "a name such as")
    refused(asked("--norm", "nucleer"), "nuclear")
    refused(asked("--queries", 0), "queries must be")
    refused(asked("--confidence", 2), "confidence must lie")
    refused(invoke("heads", folder, "--texts", "nowhere.txt", "--out", tmp_path / "out"), "--texts must be a file")
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    refused(invoke("heads", folder, "--texts", empty, "--out", tmp_path / "out"), "is empty")
    refused(invoke("heads", tmp_path, "--texts", texts, "--out", tmp_path / "out"))


def test_paths_that_cannot_be_written(folder, texts, tmp_path):
    (tmp_path / "file").write_text("")
    asked = ("heads", folder, "--texts", texts)
    refused(invoke(*asked, "--out", tmp_path / "file"), "--out must be a folder")
    refused(invoke(*asked, "--out", tmp_path, "--html", tmp_path / "no" / "x.html"), "--html", "does not exist")
    refused(invoke(*asked, "--out", tmp_path, "--html", tmp_path), "--html must be a file")
    if os.geteuid():  # root may write anywhere
        (tmp_path / "file").chmod(0o400)
        refused(invoke(*asked, "--out", tmp_path, "--html", tmp_path / "file"), "permission denied")


def test_heads_are_swapped(folder, texts, tmp_path):
    asked = ("heads", folder, "--texts", texts, "--heads", "L0H1,L1H0", "--queries", 20, "--confidence", 0.3, "--swap")
    asked = (*asked, "--out", tmp_path)
    result = invoke(*asked)
    assert result.exit_code == 0, result.output
    for words in ("L0H1", "layer 1", "all", "W_mm", "random", "removed", "same choice", " ± "):
        assert words in result.output
    written = json.loads((tmp_path / "swaps.json").read_text())
    assert written["command"].startswith("attsvm heads ")
    assert written["settings"] == {"queries": 20, "confidence": 0.3, "seed": 0}
    assert [path.name for path in tmp_path.iterdir()] == ["swaps.json"]
    told = json.loads(invoke(*asked, "--json").stdout)
    assert told["swaps"] == written["swaps"]
    assert told["files"] == [str(tmp_path / "swaps.json")]
    assert len(told["swaps"]) == 5 * 3
    assert invoke(*asked, "--quiet").output == f"written: {tmp_path / 'swaps.json'}\n"
    assert "does not exist" in refused(invoke(*asked[:4], "--heads", "L9H0", "--swap", "--out", tmp_path))
    message = refused(invoke(*asked, "--draws", 3, "--html", tmp_path / "page.html", "--leave-out-sinks"))
    assert "--swap compares in this process" in message
    assert message.strip().endswith("leave out --leave-out-sinks, --draws, --html")


def test_an_interrupt_keeps_measured_swaps(folder, texts, tmp_path, monkeypatch):
    asked = ("heads", folder, "--texts", texts, "--heads", "L0H1", "--confidence", 0.3, "--swap", "--out", tmp_path)
    module = sys.modules["attsvm.heads.explain.swap"]
    really, kinds = module.differences, []

    def counted(model, places, before, after):
        kinds.append(len(kinds))
        if kinds == [0, 1]:
            raise KeyboardInterrupt
        return really(model, places, before, after)

    monkeypatch.setattr(module, "differences", counted)
    result = invoke(*asked)
    assert result.exit_code == 130
    assert result.stderr == "attsvm: interrupted; what was measured is kept, the same command goes on from it\n"
    assert len(json.loads((tmp_path / "swaps.partial.json").read_text())["swaps"]) == 1
    assert invoke(*asked).exit_code == 0
    assert len(kinds) == 2 + 2  # the first row is not measured again
    written = json.loads((tmp_path / "swaps.json").read_text())["swaps"]
    assert [path.name for path in tmp_path.iterdir()] == ["swaps.json"]
    invoke(*asked, "--seed", 1)
    kinds.clear()
    monkeypatch.setattr(module, "differences", really)
    assert invoke(*asked).exit_code == 0
    assert json.loads((tmp_path / "swaps.json").read_text())["swaps"] == written
