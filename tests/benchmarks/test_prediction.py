"""The benchmark of prediction as a command, at a small size."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks import prediction


@pytest.fixture
def small(monkeypatch):
    """One kind of training that every rule is measured in, and one that only the shipped rule is."""
    monkeypatch.setattr(prediction, "CASES", prediction.CASES[:1])
    monkeypatch.setattr(prediction, "MORE", prediction.MORE[3:4])
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_the_shipped_rule_alone(tmp_path, small):
    """Rows of other rules stay, those of the shipped one are replaced, and the package's own file is not touched."""
    before = json.loads((prediction.RESULTS / "prediction.json").read_text())["rows"]
    own = prediction.MEASURED.read_bytes()
    prediction.main(["--shipped", "--sets", "3", "--steps", "40", "--out", str(tmp_path)])
    written = json.loads((tmp_path / "prediction.json").read_text())
    name = prediction.GrowingSteps().name
    others = [row for row in written["rows"] if row["rule"] != name]
    assert others == [row for row in before if row["rule"] != name]
    fresh = [row for row in written["rows"] if row["rule"] == name]
    assert [row["sets"] for row in fresh] == [3, 3]
    measured = json.loads((tmp_path / "measured.json").read_text())
    assert [set(row) for row in measured] == [set(row) for row in json.loads(own)[:2]]
    assert [row["accuracy"] for row in measured] == [row["accuracy"] for row in fresh]
    assert len(json.loads((tmp_path / "prediction_step_size.json").read_text())["rows"]) == 1
    assert prediction.MEASURED.read_bytes() == own


def test_another_size_does_not_spoil_the_published_numbers(capsys):
    with pytest.raises(SystemExit):
        prediction.main(["--shipped", "--sets", "3"])
    assert "give --out FOLDER too" in capsys.readouterr().err
