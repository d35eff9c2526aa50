from __future__ import annotations

import subprocess
import sys
import threading
import time

import numba
import pytest

from attsvm.sweep.clock import clocked


def work(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_every_second_is_charged_once():
    began = time.process_time()
    with clocked() as clock:
        work(0.05)
        clock.begin("compiling")
        work(0.03)
        clock.begin("importing")
        work(0.02)
        clock.end()
        clock.end()
    total = time.process_time() - began
    spent = clock.spent
    assert spent["computing"] >= 0.05
    assert 0.03 <= spent["compiling"] <= total - 0.07
    assert 0.02 <= spent["importing"] <= total - 0.08
    assert spent["computing"] + spent["compiling"] + spent["importing"] <= total


def test_sleeping_costs_nothing():
    with clocked() as clock:
        time.sleep(0.2)
    assert clock.spent["computing"] < 0.1


def test_compiling_is_told_apart():
    def steps(count):
        total = 0.0
        for step in range(count):
            total += step**0.5
        return total

    with clocked() as clock:
        numba.njit(steps)(10)
    # A first call compiles, and imports what compiling needs, for a good part of a second; it computes for no time.
    assert clock.spent["compiling"] > 5 * clock.spent["computing"]


def test_afterwards_nothing_is_left():
    from numba.core import event

    with pytest.raises(ImportError, match="there_is_no_such_module"), clocked(["there_is_no_such_module"]):
        pass
    with clocked():
        assert len(event._registered["numba:compiler_lock"]) == 1
    with pytest.raises(ZeroDivisionError), clocked():
        raise ZeroDivisionError
    assert event._registered["numba:compiler_lock"] == []


def test_other_threads_do_not_confuse_it():
    from numba.core import event

    seen = []

    def compile_elsewhere() -> None:
        with event.trigger_event("numba:compiler_lock"):
            seen.append(list(clock.doing))

    with clocked() as clock:
        thread = threading.Thread(target=compile_elsewhere)
        thread.start()
        thread.join()
        with event.trigger_event("numba:compiler_lock"):
            seen.append(list(clock.doing))
    assert seen == [["importing", "computing"], ["importing", "computing", "compiling"]]


PROGRAM = """
import sys
import attsvm.sweep
from attsvm.sweep.clock import clocked
assert "numba" not in sys.modules, "the clock must not load Numba"
assert "pyarrow" not in sys.modules, "pyarrow is for those who store something"
def powers(x):
    total = 0.0
    for step in range(10):
        total += x ** step
    return total
with clocked(["numba", "attsvm.descent.engines.step"]) as clock:
    import numba
    cached = numba.njit(powers, cache=True)
    cached(2.0)
spent = clock.spent
print(sum(cached.stats.cache_hits.values()), spent["importing"], spent["compiling"], spent["computing"])
"""


@pytest.mark.slow
def test_importing_compiling_and_loading_what_was_compiled_are_no_computing(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    said = []
    for _ in range(2):
        done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        said.append([float(word) for word in done.stdout.split()])
    (hits, importing, compiling, computing), (more_hits, _, loading, computing_again) = said
    assert (hits, more_hits) == (0, 1)
    assert importing > computing
    assert compiling > loading > computing_again
    assert compiling > computing
