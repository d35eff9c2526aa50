"""A program that kills itself with SIGKILL in the middle of a write, resumes, and compares; one fork for each life."""

from __future__ import annotations

import os
import random
import signal
import sys
import warnings
from pathlib import Path

from attsvm.sweep import run
from sweep.files import left_over, stored
from sweep.tiny import TINY


def live(folder: Path, seed: int) -> int:
    """Run in a child that dies at a random moment of a random write; its wait status."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    chooser = random.Random(seed)
    calls, moment = chooser.randrange(1, 12), chooser.choice(("before", "half", "after"))
    real = os.replace
    count = 0

    def replace(source: Path, target: Path) -> None:
        nonlocal count
        count += 1
        if count == calls:
            if moment == "half":
                os.truncate(source, os.path.getsize(source) // 2)
            if moment == "after":
                real(source, target)
            os.kill(os.getpid(), signal.SIGKILL)
        real(source, target)

    os.replace = replace
    try:
        run(TINY, folder=folder, resume=True)
    finally:
        os._exit(0)


def main() -> None:
    """Arguments: a folder that holds a whole result, a folder for the others, and the number of them."""
    warnings.simplefilter("ignore")  # newer Pythons warn of forking beside threads
    whole, others, count = stored(Path(sys.argv[1])), Path(sys.argv[2]), int(sys.argv[3])
    killed = halves = 0
    for seed in range(count):
        folder = others / str(seed)
        for life in range(100):
            status = live(folder, 1000 * seed + life)
            halves += len(left_over(folder))
            if status == 0:
                break
            assert os.WTERMSIG(status) == signal.SIGKILL, status
            killed += 1
        assert stored(folder) == whole, seed
        assert left_over(folder) == [], seed
    print(f"{killed} killed, {halves} half-written files")
