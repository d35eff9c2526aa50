"""`attsvm growth`: a law before training, and beside a saved run."""

from __future__ import annotations

import dataclasses
import json

import pytest

import attsvm

from .runner import invoke, refused


def test_a_configuration_and_its_numbers():
    told = json.loads(
        invoke("growth", "two-inputs", "--step-size", 0.01, "--steps", 500, "--threshold", 9, "--json").output
    )
    data = attsvm.data.example("two-inputs")
    optimizer = attsvm.SteepestDescent(attsvm.Spectral(), 0.01, 0.95)
    found = attsvm.growth(data, parameterization=attsvm.KeyQuery(), optimizer=optimizer, steps=500, threshold=9.0)
    assert told["gap"][-1] == pytest.approx(float(found.gap[-1]))
    assert told["passes"] == pytest.approx(float(found.passes))
    assert told["sentences"] == [found.sentence]
    assert told["training"].endswith("step_size=Constant(size=0.01), momentum=0.95) on KeyQuery(rank=None)")
    assert found.training == f"{optimizer!r} on {attsvm.KeyQuery()!r}"


def test_the_table_says_whose_steps_it_is_about():
    first = invoke("growth", "two-inputs").output.splitlines()[0]
    assert first.startswith(
        "Steps of muon: SteepestDescent(norm=Spectral(), step_size=Constant(size=0.1), momentum=0.95"
    )
    assert first.endswith("on KeyQuery(rank=None)")


def test_where_nothing_separates_no_number_is_shown(tmp_path):
    attsvm.data.random_sphere(n=6, T=8, d=2, seed=0).save(tmp_path / "data.npz")
    lines = invoke("growth", tmp_path / "data.npz").output.splitlines()
    assert lines[-1].startswith("Nothing is predicted")
    assert lines[-3].split()[:4] == ["10,000", "-", "-", "-"]


def test_a_saved_run_stands_beside_the_law(tmp_path):
    settings = ("--parameterization", "kq", "--optimizer", "spectral", "--schedule", "inverse-sqrt", "--step-size", 0.2)
    invoke("train", "two-inputs", *settings, "--steps", 300, "--out", tmp_path)
    file = tmp_path / "run.safetensors"
    result = invoke("growth", "two-inputs", "--run", file)
    assert result.exit_code == 0
    assert "gap of the run" in result.output
    training = "SteepestDescent(norm=Spectral(), step_size=InverseSqrt(size=0.2), momentum=0.0) on KeyQuery"
    assert result.output.startswith(f"Steps of {training}")
    assert "within its bounds on 1" in " ".join(result.output.split())
    assert (
        json.loads(invoke("growth", "two-inputs", "--run", file, "--json").output)["measured"]["within_bounds"] is True
    )
    one_line = invoke("growth", "two-inputs", "--run", file, "--quiet").output
    assert "The law of growth" not in one_line


def test_bad_input(tmp_path):
    refused(invoke("growth", "two-inputs", "--optimizer", "gd"), "normalized steps")
    refused(invoke("growth", "two-inputs", "--run", tmp_path / "none.npz"), "none.npz")
    refused(invoke("growth", "two-inputs", "--threshold", -1), "threshold")


def test_tokens_are_selected_as_for_solve(tmp_path):
    data = attsvm.data.random_sphere(n=2, T=3, d=4, seed=0)
    dataclasses.replace(data, head=None).save(tmp_path / "nohead.npz")
    refused(invoke("growth", tmp_path / "nohead.npz"), "DATA has no head", "--select")
    (tmp_path / "selected.json").write_text("[1, 2]")
    told = json.loads(
        invoke("growth", tmp_path / "nohead.npz", "--select", tmp_path / "selected.json", "--json").stdout
    )
    optimizer = attsvm.SteepestDescent(attsvm.Spectral(), 0.1, momentum=0.95)
    found = attsvm.growth(data, selected=[1, 2], parameterization=attsvm.KeyQuery(), optimizer=optimizer)
    assert told["gap"][-1] == pytest.approx(float(found.gap[-1]))
    (tmp_path / "mask.json").write_text('{"selected_set": [[1, 1, 0], [1, 0, 0]]}')
    refused(invoke("growth", tmp_path / "nohead.npz", "--select", tmp_path / "mask.json"), "one token for each input")
    attsvm.data.random_sphere(n=2, T=1, d=4, seed=0).save(tmp_path / "single.npz")
    assert "Nothing is predicted: every input has one token." in invoke("growth", tmp_path / "single.npz").output
