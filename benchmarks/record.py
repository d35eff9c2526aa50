"""Writing benchmark results: a table to read, a JSON file to commit."""

from __future__ import annotations

import json
import platform
import resource
import sys
from pathlib import Path
from typing import Any

import numpy
import torch
from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    info: dict[str, Any] = {
        "processor": _processor(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "torch_threads": torch.get_num_threads(),
    }
    if torch.cuda.is_available():
        info["gpu"] = torch.cuda.get_device_name()
    return info


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()


def peak_memory_mb() -> float:
    """Peak resident memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def publish(
    name: str, rows: list[dict[str, Any]], command: str, notes: list[str] | None = None, folder: Path | None = None
) -> Path:
    """Print `rows` as a table and write them, with machine and command, to NAME.json in `folder` (results)."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = Table(title=name, title_justify="left")
    for column in columns:
        numeric = all(isinstance(row.get(column), (int, float, type(None))) for row in rows)
        table.add_column(column.replace("_", " "), justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*(_shown(row.get(column)) for column in columns))
    Console(width=160).print(table)
    for note in notes or []:
        sys.stdout.write(f"  {note}\n")
    folder = RESULTS if folder is None else folder
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(
        json.dumps({"command": command, "machine": machine(), "rows": rows, "notes": notes or []}, indent=1) + "\n"
    )
    sys.stdout.write(f"written: {path.relative_to(RESULTS.parent.parent) if folder == RESULTS else path}\n")
    return path


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)
