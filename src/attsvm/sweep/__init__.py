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

_MODULES = {
    "backends": ("Backend", "DaskCluster", "Order", "Processes"),
    "result": ("SweepResult", "describe_columns"),
    "runner": ("check_folder", "run"),
    "task": ("Configuration", "Done", "Piece", "Sweep", "Task", "chunked", "cut"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
