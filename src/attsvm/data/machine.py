"""What the machine has: memory (sizes that cannot fit are refused beforehand), threads, a GPU for Numba."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import torch

_MEMINFO = Path("/proc/meminfo")
_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of a container
TINY = 2**17
"""Numbers in a batch, up to which it is computed on one thread.

More threads gain next to nothing there on a quiet machine, and on a busy one they wait for each other many times longer
than they compute.
"""


def available_memory(device: torch.device | str = "cpu") -> int | None:
    """Bytes still to be had on `device`: what Linux calls available, within a container's limit; None if unknown."""
    where = torch.device(device)
    if where.type == "cuda":
        return int(torch.cuda.mem_get_info(where)[0])
    free = [1024 * number for number in _numbers(_MEMINFO, r"^MemAvailable:\s+(\d+) kB")]
    return min(free + _numbers(_LIMIT, r"^(\d+)$"), default=None)


def _numbers(path: Path, pattern: str) -> list[int]:
    """The numbers that lines of a file say; none where there is no such file."""
    try:
        return [int(found) for found in re.findall(pattern, path.read_text(encoding="ascii"), re.MULTILINE)]
    except (OSError, ValueError):
        return []


def check_fits(needed: int, device: torch.device | str, what: str, cure: str) -> None:
    """Refuse `what` if it needs more bytes than there are (`needed` is a lower bound), and advise the `cure`."""
    there = available_memory(device)
    if there is not None and needed > there:
        raise ValueError(f"{what} needs at least {in_words(needed)} of memory; {in_words(there)} are free, {cure}")


def in_words(size: int) -> str:
    """A number of bytes for a reader.

    >>> in_words(160_000_000_000), in_words(2_500)
    ('160 GB', '2.5 kB')
    """
    units = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")
    place = min((len(str(int(size))) - 1) // 3, len(units) - 1)
    return f"{size / 1000**place:.3g} {units[place]}"


@cache
def numba_sees_gpu() -> bool:
    """Whether Numba can compile for, and run on, a CUDA device here."""
    # numba-cuda up to 0.30 names numpy.row_stack, which NumPy 2.5 no longer has, and will not be mended there: lend it
    # the name while it loads. The other way, numpy<2.5 in the extra `gpu`, would hold back NumPy for everything else.
    lent = not hasattr(np, "row_stack")
    if lent:
        np.row_stack = np.vstack  # noqa: NPY201
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numba-cuda's own; where warnings are errors they would hide the device
            from numba import cuda
            from numba.cuda import cudaimpl  # noqa: F401 - loads what a first compilation would

            return bool(cuda.is_available())
    except Exception:  # no driver, no compiler or a broken installation
        return False
    finally:
        if lent:
            del np.row_stack  # noqa: NPY201


@contextmanager
def one_thread(when: bool = True) -> Iterator[None]:
    """Run PyTorch on one thread inside the block, where `when` holds, and on as many as before after it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if when else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
