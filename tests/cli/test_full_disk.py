"""A disk that fills while a command writes: the older result stays whole, and the sentence names the user's file."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import attsvm
from attsvm import Run
from attsvm.data.files import replacing_together, write_atomically
from cli.runner import invoke, refused

SOLVE = ("solution.safetensors", "manifest.json")
DIAGNOSE = ("diagnosis.json", "manifest.json")
TRAIN = ("run.safetensors", "manifest.json", "history.csv", "manifest.json")


@pytest.fixture
def file(tmp_path):
    return attsvm.data.random_sphere(n=3, T=4, d=5, seed=2).save(tmp_path / "data.npz")


def content(folder: Path) -> dict[str, bytes]:
    """Every file, the hidden ones too."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def fill(patch: pytest.MonkeyPatch, after: int, what: str = "fsync") -> None:
    """From now on the disk takes `after` files; as for any write to an open file, the error names none."""
    real, taken = getattr(os, what), []

    def full(*arguments: object) -> object:
        if len(taken) == after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken.append(1)
        return real(*arguments)

    patch.setattr(os, what, full)


@pytest.mark.parametrize("what", ["fsync", "replace"])
@pytest.mark.parametrize(
    ("command", "names"), [("solve", SOLVE), ("diagnose", DIAGNOSE), ("train", TRAIN[:2]), ("demo", ("demo.png",))]
)
def test_an_older_result_stays_whole(tmp_path, file, monkeypatch, command, names, what):
    out = tmp_path / "out"
    monkeypatch.setattr("attsvm.cli.demo._STEPS", 100)  # the demo's numbers say nothing here
    monkeypatch.setattr("attsvm.cli.demo._RECORD", range(101))
    first = (command, "--out", out) if command == "demo" else (command, file, "--out", out)
    again = {
        "solve": ("--norm", "nuclear"), "diagnose": ("--loss", "exponential"), "train": ("--seed", 1),
        "demo": ("--seed", 1),
    }[command]  # fmt: skip
    steps = ("--steps", 30) if command == "train" else ()
    assert invoke(*first, *steps).exit_code == 0
    before = content(out)
    overwrite = ("--overwrite",) if command == "train" else ()
    for failing, name in enumerate(names):
        with monkeypatch.context() as patch:
            fill(patch, failing, what)
            sentence = refused(invoke(*first, *again, *steps, *overwrite), "no space left on device")
        assert f"{out / name} cannot be read or written" in sentence
        assert ".partial" not in sentence
        assert content(out) == before
        assert sorted(path.name for path in out.iterdir()) == sorted(before)


def test_a_run_whose_history_finds_no_room_is_finished_later(tmp_path, file, monkeypatch):
    out = tmp_path / "out"
    train = ("train", file, "--out", out, "--steps", 30)
    for failing in (2, 3):
        with monkeypatch.context() as patch:
            fill(patch, failing)
            refused(invoke(*train, "--overwrite"), f"{out / TRAIN[failing]} cannot be read or written")
        assert Run.load(out / "run.safetensors").step == 30
        assert not (out / "history.csv").exists()
        assert json.loads((out / "manifest.json").read_text())["status"] == "running"
    assert invoke(*train, "--resume").exit_code == 0
    assert sorted(path.name for path in out.iterdir()) == ["history.csv", "manifest.json", "run.safetensors"]
    assert json.loads((out / "manifest.json").read_text())["status"] == "finished"


def test_what_described_an_older_result_goes_with_it(tmp_path):
    (tmp_path / "manifest").write_text("old")
    (tmp_path / "data").write_text("old")
    (tmp_path / "more").write_text("old")
    with replacing_together(tmp_path, "manifest", outdated=("manifest", "more")) as staging:
        write_atomically(staging / "manifest", b"new")
        write_atomically(staging / "data", b"new")
        assert all((tmp_path / name).read_text() == "old" for name in ("manifest", "data", "more"))
    assert content(tmp_path) == {"manifest": b"new", "data": b"new"}


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounting a small disk needs root on Linux")
@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_a_disk_that_really_is_full(tmp_path, suffix):
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(disk)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no small disk can be mounted here")
    try:
        large = attsvm.data.random_sphere(n=20, T=20, d=20, seed=0)
        with pytest.raises(OSError, match="No space left on device") as caught:
            large.save(disk / f"data{suffix}")
        assert caught.value.errno == errno.ENOSPC
        assert caught.value.filename == str(disk / f"data{suffix}")
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)
