from __future__ import annotations

import json
import signal
import subprocess
import time

import pytest
import torch

import attsvm
from attsvm import Run
from attsvm.cli.train import in_stretches
from cli.runner import COMMAND, ENVIRONMENT, invoke, refused, shell

SHORT = ("--record", 10, "--optimizer", "adam")


@pytest.fixture
def file(tmp_path):
    return attsvm.data.random_sphere(n=3, T=4, d=5, batch=4, seed=1).save(tmp_path / "data.npz")


def same(first: Run, second: Run) -> None:
    for name in ("weights", "log_attention", "risk", "steps_taken"):
        assert torch.equal(getattr(first, name), getattr(second, name)), name
    for name in ("step", "risk", "norm", "attention", "weights"):
        assert torch.equal(getattr(first.history, name), getattr(second.history, name)), name
    for name, value in first.state.items():
        assert torch.equal(value, second.state[name]), name


def cut_short(monkeypatch, *arguments: object) -> None:
    """Run a command that is interrupted after its second checkpoint."""
    real, count = Run.save, []

    def save(self: Run, path: object) -> object:
        if len(count) == 2:
            raise KeyboardInterrupt
        count.append(1)
        return real(self, path)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "save", save)
        result = invoke(*arguments)
    assert result.exit_code == 130
    assert "--resume goes on" in result.stderr


@pytest.mark.parametrize("choice", ["adam", "muon", "ngd", "ngd --stop settled", "adam --batch-size 2 --starts 2"])
def test_an_interrupted_run_goes_on_to_the_same_end(monkeypatch, tmp_path, file, choice):
    options = ("--steps", 95, "--record", 10, "--checkpoint", 0, "--optimizer", *choice.split())
    cut_short(monkeypatch, "train", file, *options, "--out", tmp_path / "a")
    half = Run.load(tmp_path / "a" / "run.safetensors")
    assert 0 < half.step < 95
    assert json.loads((tmp_path / "a" / "manifest.json").read_text())["status"] == "running"
    assert invoke("train", file, *options, "--out", tmp_path / "a", "--resume").exit_code == 0
    assert invoke("train", file, *options, "--out", tmp_path / "b").exit_code == 0
    same(Run.load(tmp_path / "a" / "run.safetensors"), Run.load(tmp_path / "b" / "run.safetensors"))
    assert json.loads((tmp_path / "a" / "manifest.json").read_text())["status"] == "finished"


def started(folder, arguments):
    """A process at work that has written its first checkpoint."""
    process = subprocess.Popen(
        [*COMMAND, *arguments, "--out", str(folder)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not (folder / "manifest.json").exists():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    time.sleep(0.3)
    return process


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_end(tmp_path, file):
    options = ["train", str(file), "--steps", "2500", "--record", "20", "--optimizer", "adam", "--checkpoint", "0"]
    killed = tmp_path / "killed"
    process = started(killed, options)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL
    assert 0 < Run.load(killed / "run.safetensors").step < 2500
    resumed = shell(*options, "--out", killed, "--resume", "--json")
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["steps"] == 2500
    assert invoke(*options, "--out", tmp_path / "whole").exit_code == 0
    same(Run.load(killed / "run.safetensors"), Run.load(tmp_path / "whole" / "run.safetensors"))


@pytest.mark.slow
def test_control_c_is_a_sentence_and_exit_code_130(tmp_path, file):
    out = tmp_path / "out"
    process = started(
        out, ["train", str(file), "--steps", "100000", "--record", "20", "--optimizer", "adam", "--checkpoint", "0"]
    )
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said == f"attsvm: interrupted; --resume goes on from the last checkpoint in {out}\n"


def test_more_steps_for_a_finished_run(tmp_path, file):
    invoke("train", file, *SHORT, "--steps", 30, "--out", tmp_path / "a")
    assert invoke("train", file, *SHORT, "--steps", 70, "--out", tmp_path / "a", "--resume").exit_code == 0
    invoke("train", file, *SHORT, "--steps", 70, "--out", tmp_path / "b")
    same(Run.load(tmp_path / "a" / "run.safetensors"), Run.load(tmp_path / "b" / "run.safetensors"))


def test_resuming_a_finished_run_changes_nothing(tmp_path, file):
    invoke("train", file, *SHORT, "--steps", 30, "--out", tmp_path)
    before = (tmp_path / "run.safetensors").read_bytes()
    result = invoke("train", file, *SHORT, "--steps", 30, "--out", tmp_path, "--resume")
    assert result.exit_code == 0
    assert (tmp_path / "run.safetensors").read_bytes() == before


def test_nothing_to_resume_is_said(tmp_path, file):
    result = invoke("train", file, *SHORT, "--steps", 20, "--out", tmp_path / "new", "--resume")
    assert result.exit_code == 0
    assert "starting from the beginning" in result.stderr


def test_an_unfinished_run_is_not_thrown_away(monkeypatch, tmp_path, file):
    options = ("train", file, *SHORT, "--steps", 95, "--checkpoint", 0, "--out", tmp_path)
    cut_short(monkeypatch, *options)
    refused(invoke(*options), "unfinished run", "--resume", "--overwrite")
    assert invoke(*options, "--overwrite").exit_code == 0
    assert Run.load(tmp_path / "run.safetensors").step == 95


def test_a_finished_run_is_not_thrown_away(tmp_path, file):
    options = ("train", file, *SHORT, "--out", tmp_path, "--steps")
    assert invoke(*options, 20).exit_code == 0
    before = (tmp_path / "run.safetensors").read_bytes()
    refused(invoke(*options, 30), "finished run", "--resume", "with more --steps than 20", "--overwrite", "--out")
    assert (tmp_path / "run.safetensors").read_bytes() == before
    assert invoke(*options, 30, "--overwrite").exit_code == 0
    assert Run.load(tmp_path / "run.safetensors").step == 30


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (("--optimizer", "ngd"), "optimizer"),
        (("--loss", "linear"), "loss"),
        (("--seed", 5), "seed"),
        (("--record", 5), "record"),
        (("--starts", 2), "starts"),
        (("--parameterization", "kq"), "parameterization"),
    ],
)
def test_resuming_something_else_is_refused(tmp_path, file, change, word):
    invoke("train", file, *SHORT, "--steps", 20, "--out", tmp_path)
    refused(invoke("train", file, *SHORT, "--steps", 40, "--out", tmp_path, *change, "--resume"), f"the same {word}")


def test_resuming_on_other_data_is_refused(tmp_path, file):
    invoke("train", file, *SHORT, "--steps", 20, "--out", tmp_path)
    other = attsvm.data.random_sphere(n=3, T=4, d=5, batch=4, seed=2).save(tmp_path / "other.npz")
    refused(invoke("train", other, *SHORT, "--steps", 40, "--out", tmp_path, "--resume"), "the same data")


def test_fewer_steps_than_were_made(tmp_path, file):
    invoke("train", file, *SHORT, "--steps", 20, "--out", tmp_path)
    refused(invoke("train", file, *SHORT, "--steps", 10, "--out", tmp_path, "--resume"), "stands at 20")


def test_damaged_checkpoint_and_manifest(tmp_path, file):
    options = ("train", file, *SHORT, "--steps", 40, "--out", tmp_path, "--resume")
    invoke(*options)
    whole = (tmp_path / "run.safetensors").read_bytes()
    (tmp_path / "run.safetensors").write_bytes(whole[:100])
    refused(invoke(*options), "run.safetensors", "truncated")
    (tmp_path / "manifest.json").write_text("{")
    refused(invoke(*options), "manifest.json")


class Walk:
    """Stands in for a run: knows only where it is."""

    def __init__(self, step: int) -> None:
        self.step = step


@pytest.mark.parametrize(
    ("steps", "record", "begun"), [(0, 10, 0), (7, 10, 0), (100, 10, 0), (95, 10, 0), (95, 10, 33), (10, 10, 5)]
)
def test_stretches_end_at_records_and_at_the_end(steps, record, begun):
    targets: list[int] = []

    def advance(target: int, run: object) -> Walk:
        targets.append(target)
        return Walk(target)

    saved: list[int] = []
    first = Walk(begun) if begun else None
    end = in_stretches(advance, first, lambda run: saved.append(run.step), steps=steps, record=record, seconds=0.0)
    assert end.step == steps
    assert targets == sorted(set(targets))
    assert all(target % record == 0 for target in targets[:-1])
    assert saved == targets


def test_stretches_end_early_where_every_element_stopped():
    end = in_stretches(lambda target, run: Walk(7), None, lambda run: None, steps=100, record=10, seconds=0.0)
    assert end.step == 7
