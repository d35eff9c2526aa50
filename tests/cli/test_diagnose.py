from __future__ import annotations

import json

import attsvm
from cli.runner import invoke, refused


def test_the_tables_and_the_file(tmp_path):
    file = attsvm.data.random_sphere(n=3, T=4, d=6, seed=1).save(tmp_path / "data.npz")
    result = invoke("diagnose", file, "--enumerate", 100, "--verify", 500, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    for words in ("unique optimum", "Predicted limits", "Locally optimal selections", "Predicted against reached"):
        assert words in result.output
    written = json.loads((tmp_path / "out" / "diagnosis.json").read_text())
    assert written["local"][0]["exhaustive"]
    assert sum(written["verification"]["outcomes"].values()) == 1
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["kind"] == "diagnose"


def test_json_is_all_that_is_printed(tmp_path):
    result = invoke("diagnose", "two-inputs", "--json", "--parameterization", "kq", "--out", tmp_path)
    assert json.loads(result.stdout)["norm"] == "nuclear"


def test_the_start_is_that_of_train(tmp_path):
    """What diagnose predicts from is where train starts with the same seed."""
    data = attsvm.data.random_sphere(n=6, T=8, d=10, seed=0)
    file = data.save(tmp_path / "data.npz")
    invoke("diagnose", file, "--seed", 3, "--out", tmp_path / "d")
    said = json.loads((tmp_path / "d" / "diagnosis.json").read_text())["predicted"]
    start = attsvm.fit(data, steps=0, seed=3).weights
    assert said == attsvm.predict_selection(data, initial=start).selected.tolist()


def test_bad_input(tmp_path):
    refused(invoke("diagnose", "no-such-thing", "--out", tmp_path), "DATA must be")
    refused(invoke("diagnose", "two-inputs", "--verify", -1, "--out", tmp_path), "--verify must not be negative")
    refused(invoke("diagnose", "two-inputs", "--optimizer", "adm", "--out", tmp_path), "adam")
    refused(
        invoke("diagnose", "two-inputs", "--optimizer", "adam", "--parameterization", "kq", "--out", tmp_path),
        "no limit",
    )
    refused(invoke("diagnose", "joint-training-tight", "--out", tmp_path), "DATA has no head")
