"""`attsvm next-token`: what it prints and writes, and bad input in one sentence."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cli.runner import invoke, refused

TEXT = "The cat sat on the mat. The dog sat on the cat. The cat saw the dog. The dog saw the mat. " * 2


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_graph_prediction_training_and_answers(file, tmp_path):
    out = tmp_path / "out"
    result = invoke(
        "next-token", file, "--window", 6, "--steps", 60, "--ask", "the dog sat on", "--out", out, "--seed", 1
    )
    assert result.exit_code == 0, result.output
    for words in ("Priorities", "Conditions", "Limit: W tends to", "After 60 steps", "outside S_fin", "the dog sat on"):
        assert words in result.output
    written = json.loads((out / "prediction.json").read_text())
    assert written["answers"]["the dog sat on"]["predicted"] == {"the": 1.0}
    assert sum(written["answers"]["the dog sat on"]["trained"].values()) == pytest.approx(1.0)
    assert written["comparison"]["cosine"] > 0.5
    assert (out / "graph.png").stat().st_size > 5000
    with np.load(out / "weights.npz") as arrays:
        assert arrays["trained"].shape == arrays["svm_component"].shape
    assert json.loads((out / "manifest.json").read_text())["kind"] == "next-token"


def test_shares_that_are_not_decided_are_not_numbers(tmp_path):
    """After "z", "a" beats "b", "c" and "z" itself, which nothing compares with each other."""
    (tmp_path / "text").write_text("a b z a c z " * 3)
    asked = ("next-token", tmp_path / "text", "--window", 3, "--steps", 3, "--ask", "b c z", "--ask", "a b z")
    result = invoke(*asked, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    told = json.loads((tmp_path / "out/prediction.json").read_text())["answers"]["b c z"]
    assert told["predicted"] == {"b": None, "c": None, "z": None}
    assert told["decided_by"] == "level under W_svm; how they share is not decided"
    rows = [line.split() for line in result.output.splitlines()]
    shown = {row[0]: row[1] for row in rows if len(row) == 3 and row[0] in "abcz"}
    assert shown == {"a": "1.0000", "b": "0.0000", "z": "0.0000", "c": "-"}


def test_json_is_all_that_is_printed_and_a_clash_is_told(file, tmp_path):
    size = ("--window", 6, "--dimension", 2)
    result = invoke("next-token", file, *size, "--steps", 3, "--ask", "the dog", "--json", "--out", tmp_path)
    told = json.loads(result.stdout)
    assert told["clash"]
    assert "relations clash" in told["verdict"]
    assert told["comparison"] is None
    assert told["answers"]["the dog"]["predicted"] is None


def test_characters_and_one_line(file, tmp_path):
    result = invoke("next-token", file, "--characters", "--steps", 0, "--window", 8, "--quiet", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert result.output.count("\n") == 1
    assert result.output.startswith("W tends to")


def test_bad_input(file, tmp_path):
    def attempt(*arguments):
        return invoke("next-token", *arguments, "--out", tmp_path / "out")

    refused(attempt(tmp_path / "none.txt"), "none.txt cannot be read: no such file")
    bad = tmp_path / "latin.txt"
    bad.write_bytes("caf\xe9 au lait".encode("latin-1"))
    refused(attempt(bad), "must be UTF-8 text; byte 0xe9 at 3 is not: save it as UTF-8")
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    refused(attempt(empty), "the text is empty")
    refused(attempt(file, "--window", 500), "a window of 500 and the token that comes next need 501 tokens")
    refused(attempt(file, "--window", 0), "--window")
    refused(attempt(file, "--window", 6, "--ask", "the horse"), "'horse' is not among the 8 tokens of the data")
    refused(attempt(tmp_path), "cannot be read")
    assert not (tmp_path / "out" / "prediction.json").exists()
