from __future__ import annotations

import json

from cli.runner import invoke, refused

FEW = ("--datasets", 2, "--steps", 40)


def test_the_norms_are_printed_and_kept(tmp_path):
    result = invoke("optimizer", "sign", "--factors", "--rank", 2, "--also", "l4", *FEW, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    kept = json.loads((tmp_path / "out/norms.json").read_text())
    assert kept["norms"][-1] == "l4"
    assert kept["steps"] == [10, 20, 40]
    assert kept["sentence"][:40] in " ".join(result.stdout.split())
    assert "InverseSqrt(size=0.03" in kept["optimizer"]


def test_an_optimizer_of_pytorch(tmp_path):
    result = invoke("optimizer", "torch.optim.Adam", "--setting", "eps=0", *FEW, "--json", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "eps=0" in json.loads(result.stdout)["optimizer"]


def test_options_that_do_not_belong(tmp_path):
    refused(invoke("optimizer", "adam", "--rank", 2, "--out", tmp_path / "out"), "--rank belongs to --factors")
    refused(invoke("optimizer", "adm", "--out", tmp_path / "out"), "did you mean adam")
