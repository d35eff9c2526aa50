from __future__ import annotations

import json
import os
import struct

import pytest

from cli.runner import invoke, refused


def png_size(path):
    header = path.read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", header[16:24])


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The folder that one run of the demo wrote to, and what it printed."""
    folder = tmp_path_factory.mktemp("demo")
    return folder, invoke("demo", "--out", folder)


def test_demo_prints_the_table_and_draws_the_picture(shown):
    folder, result = shown
    assert result.exit_code == 0, result.output
    for heading in ("Run", "Risk", "Norm", "Input", "Selected", "Attention on it", "Optimal"):
        assert heading in result.stdout
    rows = [line for line in result.stdout.splitlines() if "token" in line and "yes" in line]
    assert len(rows) == 4  # two runs, two inputs, all optimal
    width, height = png_size(folder / "demo.png")
    assert width > 1000
    assert height > 800
    assert str(folder / "demo.png") in result.stdout


def test_the_table_shows_that_each_run_tends_to_its_own_svm(shown):
    lines = shown[1].stdout.splitlines()
    table = lines[next(place for place, line in enumerate(lines) if "Cosine with the max-margin solutions" in line) :]
    assert all(word in table[2] for word in ("Frobenius SVM", "Nuclear SVM", "Expected"))
    words = [line.split() for line in table[3:]]
    rows = {line[0]: line[-3:] for line in words if line and line[-1] in ("Frobenius", "nuclear")}
    (frobenius, nuclear, expected), other = rows["W"], rows["K"]
    assert (expected, other[2]) == ("Frobenius", "nuclear")
    assert float(frobenius) > 0.99 > 0.9 > float(nuclear)
    assert float(other[1]) > 0.99 > 0.9 > float(other[0])
    assert any("Each solution is proved optimal" in line for line in table)


def test_demo_as_json(tmp_path):
    result = invoke("demo", "--out", tmp_path / "new" / "folder", "--json", "--seed", 3)
    found = json.loads(result.stdout)
    assert [run["run"] for run in found["runs"]] == ["W", "K Q^T"]
    for run in found["runs"]:
        assert run["risk"] == pytest.approx(found["best_risk"], rel=1e-9)
        assert run["norm"] > 100
        assert all(one["is_optimal"] and one["attention"] > 1 - 1e-9 for one in run["inputs"])
        assert all(one["log_remaining"] < -100 for one in run["inputs"])
        assert run["svm"][run["expected"]]["cosine"] > 0.99
        assert all(one["relative_gap"] < 1e-8 and one["min_margin"] > 1 - 1e-10 for one in run["svm"].values())
    assert [run["expected"] for run in found["runs"]] == ["frobenius", "nuclear"]
    assert (tmp_path / "new" / "folder" / "demo.png").is_file()


def test_demo_is_reproducible_and_quiet_where_asked(monkeypatch, tmp_path):
    monkeypatch.setattr("attsvm.cli.demo._STEPS", 60)  # what is drawn does not matter here
    monkeypatch.setattr("attsvm.cli.demo._RECORD", range(61))
    assert invoke("demo", "--out", tmp_path / "once").exit_code == 0
    again = invoke("demo", "--out", tmp_path, "--quiet")
    assert again.stdout.strip() == f"The picture is in {tmp_path / 'demo.png'}"
    assert again.stderr == ""
    assert (tmp_path / "demo.png").read_bytes() == (tmp_path / "once" / "demo.png").read_bytes()


def test_out_that_is_a_file(tmp_path):
    (tmp_path / "taken").write_text("")
    refused(invoke("demo", "--out", tmp_path / "taken"), "--out must be a folder")
    refused(invoke("demo", "--out", tmp_path / "taken" / "deeper"), "--out must be a folder")


def test_out_that_cannot_be_made():
    refused(invoke("demo", "--out", "/proc/nowhere"), "--out /proc/nowhere")


def test_out_that_cannot_be_written(monkeypatch, tmp_path):
    monkeypatch.setattr(
        "os.access", lambda _, mode: not mode & os.W_OK
    )  # root may write anywhere, so permissions alone prove nothing
    refused(invoke("demo", "--out", tmp_path), "cannot be written")


@pytest.mark.parametrize("name", ["gpu", "cuda:99", "meta", ""])
def test_devices_that_are_not_there(tmp_path, name):
    refused(invoke("demo", "--out", tmp_path, "--device", name), "--device")


def test_negative_seed(tmp_path):
    refused(invoke("demo", "--out", tmp_path, "--seed", -1), "seed")
