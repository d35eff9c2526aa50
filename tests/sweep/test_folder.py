from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from attsvm.data.files import PARTIAL
from attsvm.sweep import run
from sweep.files import chunk_files, left_over, place, stored
from sweep.tiny import TINY, environment


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run(TINY, folder=tmp_path_factory.mktemp("whole")).folder


WRITES = 10  # a manifest, six chunks, a table, the arrays, the manifest again


@pytest.mark.parametrize("failing", range(WRITES))
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_disk_that_fills_loses_nothing(tmp_path, monkeypatch, whole, failing, number):
    count = 0

    def full(_: int) -> None:
        nonlocal count
        count += 1
        if count > failing:
            raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"finished chunks are kept, .* and go on with --resume") as caught:
            run(TINY, folder=tmp_path)
    assert os.strerror(number).lower() in str(caught.value).lower()
    assert str(tmp_path) in str(caught.value)
    assert len(chunk_files(tmp_path)) == min(max(failing - 1, 0), 6)
    assert left_over(tmp_path) == []
    run(TINY, folder=tmp_path, resume=True)
    assert stored(tmp_path) == stored(whole)


def mounted(folder, *options):
    """A small tmpfs, or a reason why there is none."""
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", *options, "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip("mounting a tmpfs needs root")


@pytest.mark.skipif(sys.platform != "linux", reason="mounts are Linux's")
@pytest.mark.parametrize("size", [20, 40])
def test_a_disk_that_really_is_full(tmp_path, whole, size):
    disk = tmp_path / "disk"
    mounted(disk, "-o", f"size={size}k")
    try:
        with pytest.raises(OSError, match="no space left on device; finished chunks are kept, free some space"):
            run(TINY, folder=disk / "tiny")
        kept = len(chunk_files(disk))
        assert 0 < kept < 6 if size == 20 else kept == 6
        assert left_over(disk) == []
        subprocess.run(["mount", "-o", "remount,size=2m", disk], check=True)
        run(TINY, folder=disk / "tiny", resume=True)
        assert stored(disk / "tiny") == stored(whole)
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="mounts are Linux's")
def test_a_read_only_disk(tmp_path):
    disk = tmp_path / "disk"
    mounted(disk)
    try:
        run(TINY, folder=disk / "old")
        chunk_files(disk)[0].unlink()
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        for folder in ("old", "new"):
            with pytest.raises(OSError, match="cannot be written: read-only file system"):
                run(TINY, folder=disk / folder, resume=True)
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_no_permission(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(OSError, match="permission denied"):
            run(TINY, folder=tmp_path / "tiny")
    finally:
        tmp_path.chmod(0o700)


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "file").write_text("here")
    with pytest.raises(OSError, match=r"cannot be written: .*(file exists|not a directory)"):
        run(TINY, folder=tmp_path / "file")


def test_what_a_killed_process_left_is_cleared(tmp_path):
    store = place(tmp_path)
    store.chunks.mkdir(parents=True)
    (tmp_path / f".manifest.json.ab{PARTIAL}").write_text("half")
    (store.chunks / f".draws-000.chunk.cd{PARTIAL}").write_text("half")
    (tmp_path / "mine.partial").write_text("the user's own")
    run(TINY, folder=tmp_path)
    assert [path.name for path in tmp_path.rglob("*.partial")] == ["mine.partial"]


HOLD = """
import sys, time
from pathlib import Path
from sweep.files import place
with place(Path(sys.argv[1])).open():
    print("open", flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no locks there")
def test_two_processes_do_not_share_a_folder(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE, text=True, env=environment()
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        with pytest.raises(ValueError, match="another process is computing into"):
            run(TINY, folder=tmp_path)
        other.kill()
    assert run(TINY, folder=tmp_path).manifest["complete"]  # the lock went with the process
