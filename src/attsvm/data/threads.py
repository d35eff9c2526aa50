"""How many threads PyTorch computes on: one where a problem is so small that a second only waits for the first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

TINY = 2**17
"""Numbers in a batch, up to which it is computed on one thread.

More threads gain next to nothing there on a quiet machine, and on a busy one they wait for each other many times longer
than they compute.
"""


@contextmanager
def one_thread(when: bool = True) -> Iterator[None]:
    """Run PyTorch on one thread inside the block, where `when` holds, and on as many as before after it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if when else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
