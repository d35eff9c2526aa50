"""CPU seconds of a block of code, with compiling and importing told apart from computing."""

from __future__ import annotations

import dataclasses
import importlib
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

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
        """Seconds by name, rounded to a tenth of a millisecond."""
        return {name: round(value, 4) for name, value in dataclasses.asdict(self).items()}


class Clock:
    """Charges every CPU second inside the block to what the thread that entered it is doing.

    Entering imports `imports`, and charges that as importing. From then on Numba's own events tell compiling apart from
    computing, provided that Numba is loaded; the clock does not load it.

    Arguments:
        imports: names of modules that the block needs; one that it imports only later counts as computing.

    Raises:
        ImportError: on entering, if one of these modules is not there.

    >>> with Clock() as clock:
    ...     total = sum(range(1000))
    >>> clock.spent.computing > 0
    True
    """

    def __init__(self, imports: Sequence[str] = ()) -> None:
        self._imports = imports
        self._seconds = {"computing": 0.0, "compiling": 0.0, "importing": 0.0}
        self._doing: list[str] = []
        self._mark = 0.0
        self._listener: object | None = None

    @property
    def spent(self) -> Spent:
        """What was spent in the block."""
        return Spent(**self._seconds)

    def __enter__(self) -> Clock:
        self._thread = threading.get_ident()
        self._mark = time.process_time()
        for name in self._imports:
            importlib.import_module(name)
        self._charge("importing")
        self._doing = ["computing"]
        self._listen()
        return self

    def __exit__(self, *_: object) -> None:
        self._charge(self._doing[-1])
        if self._listener is not None:
            sys.modules["numba.core.event"].unregister(_LOCK_EVENT, self._listener)
            self._listener = None

    def _charge(self, what: str) -> None:
        now = time.process_time()
        self._seconds[what] += now - self._mark
        self._mark = now

    def _begin(self, what: str) -> None:
        self._charge(self._doing[-1])
        self._doing.append(what)

    def _end(self) -> None:
        self._charge(self._doing.pop())

    def _listen(self) -> None:
        event = sys.modules.get("numba.core.event")
        if event is None:
            return
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
