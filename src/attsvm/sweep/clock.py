"""CPU seconds of a block of code, with compiling and importing told apart from computing."""

from __future__ import annotations

import importlib
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

KINDS = ("computing", "compiling", "importing")
_LOCK_EVENT = "numba:compiler_lock"  # held while Numba compiles, and while it loads what an earlier process compiled


class Clock:
    """Charges every CPU second of this process to what was begun last; `spent` holds the seconds by kind."""

    def __init__(self, doing: str) -> None:
        self.spent = dict.fromkeys(KINDS, 0.0)
        self.doing = [doing]
        self._mark = time.process_time()

    def begin(self, what: str) -> None:
        """From now on seconds are spent on `what`."""
        self._charge()
        self.doing.append(what)

    def end(self) -> None:
        """Back to what was done before."""
        self._charge()
        self.doing.pop()

    def _charge(self) -> None:
        now = time.process_time()
        self.spent[self.doing[-1]] += now - self._mark
        self._mark = now


@contextmanager
def clocked(imports: Sequence[str] = ()) -> Iterator[Clock]:
    """A clock for the block, of what the thread that entered it is doing.

    Entering imports `imports`, modules that the block needs, and charges that as importing; what the block imports only
    later counts as computing. From then on Numba's own events tell compiling apart from computing, provided that Numba
    is loaded; the clock does not load it.

    >>> with clocked() as clock:
    ...     total = sum(range(1000))
    >>> clock.spent["computing"] > 0
    True
    """
    clock = Clock("importing")
    for name in imports:
        importlib.import_module(name)
    clock.begin("computing")
    with _compiling_told(clock):
        yield clock
    clock.end()


def _compiling_told(clock: Clock) -> Any:
    event = sys.modules.get("numba.core.event")
    if event is None:
        return nullcontext()
    thread = threading.get_ident()

    class Listener(event.Listener):  # type: ignore[misc,name-defined]
        def on_start(self, event: object) -> None:
            if threading.get_ident() == thread:
                clock.begin("compiling")

        def on_end(self, event: object) -> None:
            if threading.get_ident() == thread:
                clock.end()

    return event.install_listener(_LOCK_EVENT, Listener())
