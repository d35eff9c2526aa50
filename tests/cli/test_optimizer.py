from __future__ import annotations

import json

import pytest

from cli.runner import invoke, refused, shell

FEW = ("--datasets", 2, "--steps", 40)


def test_the_norms_are_printed_and_kept(tmp_path):
    result = invoke("optimizer", "sign", "--factors", "--rank", 2, "--also", "l4", *FEW, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    kept = json.loads((tmp_path / "out/norms.json").read_text())
    assert kept["norms"][-1] == "l4"
    assert kept["steps"] == [10, 20, 40]
    assert kept["sentence"][:40] in " ".join(result.stdout.split())
    assert "InverseSqrt(size=0.03" in kept["optimizer"]


@pytest.mark.slow
def test_muon_settles_with_its_usual_steps(tmp_path):
    result = shell("optimizer", "muon", "--datasets", 8, "--json", "--out", tmp_path / "out")
    told = json.loads(result.stdout)
    assert told["winner"] == "spectral"
    assert "InverseSqrt(size=1.0)" in told["optimizer"]


def test_what_has_not_settled_is_said_with_the_options_to_change(tmp_path):
    result = invoke("optimizer", "muon", *FEW, "--step-size", 0.001, "--quiet", "--out", tmp_path / "out")
    assert result.stdout.startswith("After these steps no norm of the list fits")
    assert result.stdout.endswith("More --steps than 40 or another --step-size than 0.001 may settle it.\n")


def test_an_optimizer_of_pytorch(tmp_path):
    result = invoke("optimizer", "torch.optim.Adam", "--setting", "eps=0", *FEW, "--json", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "eps=0" in json.loads(result.stdout)["optimizer"]


def test_options_that_do_not_belong(tmp_path):
    refused(invoke("optimizer", "adam", "--rank", 2, "--out", tmp_path / "out"), "--rank belongs to --factors")
    refused(invoke("optimizer", "adm", "--out", tmp_path / "out"), "did you mean adam")
    refused(invoke("optimizer", "adam", "--steps", 2, "--out", tmp_path / "out"), "an integer of at least 4; got 2")
