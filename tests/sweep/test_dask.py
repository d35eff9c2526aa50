from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from attsvm.sweep import DaskCluster, run
from attsvm.sweep.runner import check_folder
from sweep.files import chunk_files, left_over, stored
from sweep.tiny import TINY, Tiny, environment

distributed = pytest.importorskip("distributed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:distributed"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # Dask leaves sockets to the garbage collector
]


class Cluster:
    """A scheduler and two workers, each a process of its own, as on a real cluster."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.log = (folder / "log").open("w")
        self.scheduler = self._start(
            "dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
            "--scheduler-file", folder / "scheduler.json",
        )  # fmt: skip
        self.address = self._address()
        self.workers = [self._start("dask_worker", self.address, "--nthreads", threads, "--no-nanny", "--no-dashboard",
                                    "--local-directory", folder) for threads in ("1", "3")]  # fmt: skip

    def _start(self, program: str, *arguments: object) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.{program}", *map(str, arguments)]
        return subprocess.Popen(command, env=environment(0.2), stdout=self.log, stderr=self.log)

    def _address(self) -> str:
        path, deadline = self.folder / "scheduler.json", time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                return json.loads(path.read_text())["address"]
            except (OSError, ValueError):
                time.sleep(0.05)
        raise AssertionError((self.folder / "log").read_text())

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()
        self.log.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    found = Cluster(tmp_path_factory.mktemp("cluster"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run(TINY, folder=tmp_path_factory.mktemp("whole")).folder


def test_the_cluster_from_beginning_to_end(tmp_path, cluster, whole):
    """In one test, since a cluster takes long to start: a bug, a killed worker, nobody left, a lost scheduler."""
    backend = DaskCluster(cluster.address, patience=60)
    backend.check()
    with pytest.raises(RuntimeError, match="a bug in the sweep"):
        run(TINY, Tiny(fail_at=11), folder=tmp_path / "bug", backend=backend)

    arrived: list[int] = []

    def kill_one(done: int, total: int) -> None:
        arrived.append(done)
        if done == 2:
            cluster.workers[0].kill()
            cluster.workers[0].wait()

    result = run(TINY, folder=tmp_path / "tiny", backend=backend, progress=kill_one)
    assert arrived == list(range(7))  # each chunk once
    assert stored(tmp_path / "tiny") == stored(whole)
    assert len(chunk_files(tmp_path / "tiny")) == 6
    assert left_over(tmp_path) == []
    assert 0 <= result.cpu_seconds() < 6 * 0.2  # sleeping is no computing, on a worker with three threads either

    chunk_files(tmp_path / "tiny")[3].unlink()
    run(TINY, folder=tmp_path / "tiny", backend=backend, resume=True)
    assert stored(tmp_path / "tiny") == stored(whole)

    def kill_scheduler(done: int, total: int) -> None:
        if done == 1:
            cluster.scheduler.kill()
            cluster.scheduler.wait()

    with pytest.raises(ConnectionError, match="went away; finished chunks are kept, go on with --resume"):
        run(TINY, folder=tmp_path / "lost", backend=backend, progress=kill_scheduler)
    assert 0 < len(chunk_files(tmp_path / "lost")) < 6
    run(TINY, folder=tmp_path / "lost", resume=True)
    assert stored(tmp_path / "lost") == stored(whole)


@pytest.mark.parametrize(
    ("address", "word"),
    [
        ("tcp://127.0.0.1:1", "connection refused"),
        ("127.0.0.1:1", "connection refused"),
        ("tcp://127.0.0.1:seven", "port"),
        ("carrier-pigeon://roof:1", "unknown protocol"),
    ],
)
def test_nobody_answers(tmp_path, address, word):
    with pytest.raises(ValueError, match=f"no Dask scheduler answers at '{address}' .*{word}.*give the address of one"):
        run(TINY, folder=tmp_path, backend=DaskCluster(address))
    assert check_folder(TINY, Tiny(), folder=tmp_path) is None  # the folder is as free as before


def test_no_workers(tmp_path):
    with distributed.LocalCluster(
        n_workers=0, processes=False, dashboard_address=":0", protocol="tcp", silence_logs=50
    ) as empty, pytest.raises(ValueError, match="has no workers; start some with `dask worker tcp://"):  # fmt: skip
        run(TINY, folder=tmp_path, backend=DaskCluster(empty.scheduler_address, patience=0.5))


def test_the_last_worker_goes(tmp_path, whole, monkeypatch):
    """It is said, and the sweep goes on when a worker comes; or it gives up where a time was given."""
    monkeypatch.setenv("TINY_DELAY", "0.05")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0", protocol="tcp", silence_logs=50
    ) as cluster:  # fmt: skip
        said: list[str] = []

        def leave(done: int, total: int) -> None:
            if done == 2:
                cluster.scale(0)

        def come(sentence: str) -> None:
            said.append(sentence)
            cluster.scale(1)

        backend = DaskCluster(cluster.scheduler_address, notice=0.3)
        run(TINY, folder=tmp_path / "tiny", backend=backend, progress=leave, say=come)
        assert stored(tmp_path / "tiny") == stored(whole)
        assert "has lost its last worker; waiting for another, start one with `dask worker" in said[0]
        assert "has a worker again; going on" in said[1]
        assert len(said) == 2

        impatient = DaskCluster(cluster.scheduler_address, worker_timeout=0.5, notice=0.1)
        with pytest.raises(ConnectionError, match=r"has had no worker for .* s; finished chunks are kept"):
            run(TINY, folder=tmp_path / "given-up", backend=impatient, progress=leave, say=said.append)
        assert "waiting for up to 0.5 s for another" in said[2]
        assert 0 < len(chunk_files(tmp_path / "given-up")) < 6
    run(TINY, folder=tmp_path / "given-up", resume=True)
    assert stored(tmp_path / "given-up") == stored(whole)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_a_time_that_is_none(seconds):
    with pytest.raises(ValueError, match="worker_timeout must be a positive number of seconds or None"):
        DaskCluster("tcp://127.0.0.1:1", worker_timeout=seconds)
