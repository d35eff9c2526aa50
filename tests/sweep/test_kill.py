from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time

import pytest

from attsvm.sweep import run
from experiments.tiny import COMMAND
from sweep.files import chunk_files, left_over, stored
from sweep.tiny import TINY, environment

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="signals are those of POSIX"),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run(TINY, folder=tmp_path_factory.mktemp("whole")).folder


def started(folder, jobs: int) -> subprocess.Popen[str]:
    """The command at work on the tiny experiment, in a process group of its own."""
    process = subprocess.Popen(
        [*COMMAND, "figure", "run", "tiny", "--out", str(folder), "--jobs", str(jobs), "--resume", "--format", "png"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(0.15), start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not (folder / "tiny" / "manifest.json").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return process


def wait_for_chunks(folder, count: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while len(chunk_files(folder)) < count and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def empty_group(group: int) -> bool:
    """Whether nobody of the process group is left after a while."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    os.killpg(group, signal.SIGKILL)
    return False


def test_killed_in_the_middle_of_any_write(tmp_path, whole):
    done = subprocess.run(
        [sys.executable, "-c", "from sweep.kills import main; main()", whole, tmp_path, "12"],
        capture_output=True, text=True, env=environment(), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    killed, halves = map(int, re.findall(r"\d+", done.stdout))
    print(done.stdout)
    assert killed > 12
    assert halves > 3


@pytest.mark.parametrize(("jobs", "seed"), [(1, 0), (1, 1), (2, 0), (2, 1)])
def test_killed_at_any_moment_and_resumed(tmp_path, whole, jobs, seed):
    chooser = random.Random(seed)
    process = started(tmp_path, jobs)
    wait_for_chunks(tmp_path, chooser.randrange(0, 4), process)
    time.sleep(chooser.uniform(0, 0.15))
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert empty_group(process.pid)  # no orphans
    kept = len(chunk_files(tmp_path))
    print(f"{kept} chunks kept")
    run(TINY, folder=tmp_path / "tiny", resume=True)
    assert stored(tmp_path / "tiny") == stored(whole)
    assert left_over(tmp_path) == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_control_c_is_one_sentence(tmp_path, whole, jobs):
    process = started(tmp_path, jobs)
    wait_for_chunks(tmp_path, 1, process)
    os.killpg(process.pid, signal.SIGINT)
    said, complained = process.communicate(timeout=120)
    assert complained == "attsvm: interrupted; finished chunks are kept, add --resume\n"
    assert said == ""
    assert process.returncode == 130
    assert empty_group(process.pid)
    assert 0 < len(chunk_files(tmp_path)) < 6
    run(TINY, folder=tmp_path / "tiny", resume=True)
    assert stored(tmp_path / "tiny") == stored(whole)


def test_control_c_while_workers_start(tmp_path):
    process = started(tmp_path, 2)
    time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    said, complained = process.communicate(timeout=120)
    assert (said, complained) == ("", "attsvm: interrupted; finished chunks are kept, add --resume\n")
    assert process.returncode == 130
