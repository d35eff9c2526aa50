from __future__ import annotations

import os
import signal

import pytest
import torch

from attsvm.sweep import Processes, run
from attsvm.sweep.backends import Order, one_thread
from sweep.files import chunk_files, stored
from sweep.tiny import TINY, Tiny, tasks


@pytest.mark.parametrize("jobs", [0, -1, 1.5, True, "two"])
def test_jobs_must_be_a_positive_integer(jobs):
    with pytest.raises(ValueError, match="jobs must be a positive integer"):
        Processes(jobs)


def test_jobs_that_would_fill_the_memory_are_refused():
    most = 4 * os.cpu_count()
    assert Processes(most).jobs == most
    with pytest.raises(ValueError, match=f"jobs must be at most {most}, four for each core .* got {10**20}"):
        Processes(10**20)


@pytest.mark.slow
@pytest.mark.parametrize("chunk_size", [2, 5])
def test_the_number_of_processes_does_not_change_a_byte(tmp_path, chunk_size):
    configuration = Tiny(chunk_size=chunk_size)
    run(TINY, configuration, folder=tmp_path / "one")
    run(TINY, configuration, folder=tmp_path / "two", backend=Processes(2))
    assert stored(tmp_path / "one") == stored(tmp_path / "two")


@pytest.mark.slow
def test_a_bug_in_a_worker_is_raised_here(tmp_path):
    with pytest.raises(RuntimeError, match="a bug in the sweep") as caught:
        run(TINY, Tiny(fail_at=11), folder=tmp_path, backend=Processes(2))
    assert "while computing chunk draws-010 of tiny" in caught.value.__notes__


def kill_myself(configuration, task, device):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_a_killed_worker_is_one_sentence(tmp_path):
    import dataclasses

    broken = dataclasses.replace(TINY, compute=kill_myself)
    with pytest.raises(ChildProcessError, match=r"was killed.*finished chunks are kept"):
        run(broken, folder=tmp_path, backend=Processes(2))
    assert chunk_files(tmp_path) == []


@pytest.mark.slow
def test_a_full_disk_stops_the_workers(tmp_path, monkeypatch):
    from attsvm.sweep import result as folder

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder, "write_atomically", full)
    with pytest.raises(OSError, match="free some space"):
        run(TINY, folder=tmp_path, backend=Processes(2))


def test_one_thread_inside_and_as_many_as_before_outside():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(ValueError, match="must"), one_thread():
            Processes(0)
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_an_order_gives_the_same_bytes_but_for_the_time():
    order = Order(TINY, Tiny(), tasks(Tiny())[1], "cpu", "print")
    from attsvm.sweep.chunks import decode

    first, second = (decode(order.compute(), "print", order.task.name) for _ in range(2))
    assert first.tables == second.tables
    assert first.counts == second.counts
