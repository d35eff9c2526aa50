"""CPU seconds of a block of code, with compiling and importing told apart from computing."""

from __future__ import annotations

import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

KINDS = ("computing", "compiling", "importing")
_LOCK_EVENT = "numba:compiler_lock"  # held while Numba compiles, and while it loads what an earlier process compiled


class Clock:
    """Charges every CPU second of this process to what its own thread began last; `spent` holds the seconds by kind."""

    def __init__(self, doing: str) -> None:
        self.spent = dict.fromkeys(KINDS, 0.0)
        self.doing = [doing]
        self._mark, self._thread = time.process_time(), threading.get_ident()

    def begin(self, what: str) -> None:
        if threading.get_ident() == self._thread:
            self._charge()
            self.doing.append(what)

    def end(self) -> None:
        if threading.get_ident() == self._thread:
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
    """
    clock = Clock("importing")
    for name in imports:
        importlib.import_module(name)
    clock.begin("computing")
    with numba_events(_LOCK_EVENT, lambda: clock.begin("compiling"), clock.end):
        yield clock
    clock.end()


@contextmanager
def numba_events(kind: str, begin: Callable[[], None], end: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Call `begin` and `end` around Numba's events of this kind inside the block; never, if Numba is not loaded."""
    event = sys.modules.get("numba.core.event")
    if event is None:
        yield
        return

    class Listener(event.Listener):  # type: ignore[misc,name-defined]
        def on_start(self, _: object) -> None:
            begin()

        def on_end(self, _: object) -> None:
            end()

    with event.install_listener(kind, Listener()):
        yield
