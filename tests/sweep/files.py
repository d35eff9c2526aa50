"""What a folder holds, for comparing results byte for byte."""

from __future__ import annotations

from pathlib import Path

from attsvm.sweep.result import ResultFolder
from sweep.tiny import TINY, Tiny


def stored(folder: Path) -> dict[str, bytes]:
    """The tables and arrays of a result."""
    found = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".parquet", ".npz")}
    assert found, f"{folder} holds no tables"
    return found


def left_over(folder: Path) -> list[str]:
    """Half-written files."""
    return [str(path) for path in folder.rglob("*.partial")]


def chunk_files(folder: Path) -> list[Path]:
    """Finished chunks."""
    return sorted(folder.rglob("*.chunk"))


def place(folder: Path, configuration: Tiny | None = None) -> ResultFolder:
    """The folder of the tiny sweep."""
    return ResultFolder(folder, (configuration or Tiny()).fingerprint("tiny", "cpu"))


__all__ = ["TINY", "chunk_files", "left_over", "place", "stored"]
