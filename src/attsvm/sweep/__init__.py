"""Sweeps: grids of tasks, computed in chunks that are stored with checksums, and resumed after any interruption.

Nothing here knows any mathematics: a `Sweep` brings its `Configuration`, its tasks and the function that computes one.
Names are loaded on first use, since storing tables needs pyarrow and computing needs torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attsvm.sweep.backends import Backend, DaskCluster, Order, Processes
    from attsvm.sweep.result import SweepResult, describe_columns
    from attsvm.sweep.runner import check_folder, run
    from attsvm.sweep.task import Configuration, Done, Piece, Sweep, Task, chunked, cut

__all__ = [
    "Backend", "Configuration", "DaskCluster", "Done", "Order", "Piece", "Processes", "Sweep", "SweepResult", "Task",
    "check_folder", "chunked", "cut", "describe_columns", "run",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    for module in ("task", "backends", "result", "runner") if name in __all__ else ():
        found = import_module(f"{__name__}.{module}")
        if hasattr(found, name):
            return getattr(found, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
