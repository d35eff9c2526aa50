"""CPU seconds of a block of code, with compiling and importing told apart from computing."""

from __future__ import annotations

import builtins
import sys
import threading
import time
from dataclasses import dataclass
from types import ModuleType
from typing import Any

_LOCK_EVENT = "numba:compiler_lock"  # held while Numba compiles, and while it loads what an earlier process compiled


@dataclass(frozen=True)
class Spent:
    """CPU seconds of one process."""

    computing: float = 0.0
    compiling: float = 0.0
    importing: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.computing + other.computing, self.compiling + other.compiling, self.importing + other.importing
        )

    def to_json(self) -> dict[str, float]:
        """Rounded, by name."""
        return {
            "computing": round(self.computing, 4),
            "compiling": round(self.compiling, 4),
            "importing": round(self.importing, 4),
        }


class Clock:
    """Charges every CPU second inside the block to what the thread that entered it is doing.

    >>> with Clock() as clock:
    ...     total = sum(range(1000))
    >>> clock.spent.computing > 0
    True
    """

    def __init__(self) -> None:
        self._seconds = {"computing": 0.0, "compiling": 0.0, "importing": 0.0}
        self._doing: list[str] = []
        self._mark = 0.0
        self._listening = False
        self._listener: object | None = None

    @property
    def spent(self) -> Spent:
        """What was spent in the block."""
        return Spent(**self._seconds)

    def __enter__(self) -> Clock:
        self._thread = threading.get_ident()
        self._import = builtins.__import__
        builtins.__import__ = self._timed_import
        self._mark = time.process_time()
        self._doing = ["computing"]
        self._listen()
        return self

    def __exit__(self, *_: object) -> None:
        self._charge()
        builtins.__import__ = self._import
        if self._listener is not None:
            sys.modules["numba.core.event"].unregister(_LOCK_EVENT, self._listener)
            self._listener, self._listening = None, False

    def _charge(self) -> None:
        now = time.process_time()
        self._seconds[self._doing[-1]] += now - self._mark
        self._mark = now

    def _begin(self, what: str) -> None:
        self._charge()
        self._doing.append(what)

    def _end(self) -> None:
        self._charge()
        self._doing.pop()

    def _timed_import(self, *arguments: Any, **named: Any) -> ModuleType:
        if threading.get_ident() != self._thread:
            return self._import(*arguments, **named)
        self._begin("importing")
        try:
            return self._import(*arguments, **named)
        finally:
            self._end()
            self._listen()

    def _listen(self) -> None:
        """Hear Numba's compiler from the moment it is there; this does not start Numba itself."""
        event = sys.modules.get("numba.core.event")
        if self._listening or event is None or not hasattr(event, "register"):
            return
        self._listening = True
        clock = self

        class Listener(event.Listener):  # type: ignore[misc,name-defined]
            def on_start(self, event: object) -> None:
                if threading.get_ident() == clock._thread:
                    clock._begin("compiling")

            def on_end(self, event: object) -> None:
                if threading.get_ident() == clock._thread:
                    clock._end()

        self._listener = Listener()
        event.register(_LOCK_EVENT, self._listener)
