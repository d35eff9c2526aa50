"""A finished chunk as bytes: a checksum, then a zip of Parquet tables, arrays and a note about them."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from attsvm.data.checks import check_count
from attsvm.data.files import npy_bytes
from attsvm.sweep.task import Columns, Piece

_NOTE = "chunk.json"
_MARK = b"attsvm chunk 1 sha256 "


class DamagedChunkError(Exception):
    """The bytes are no chunk, are incomplete, or belong to another task or configuration."""


@dataclass(frozen=True)
class Chunk:
    """A piece as it is stored, with the CPU seconds it took, by the kinds of `attsvm.sweep.clock`."""

    tables: Mapping[str, pa.Table]
    arrays: Mapping[str, np.ndarray]
    counts: Mapping[str, int]
    spent: Mapping[str, float]


def as_chunk(piece: Piece, columns: Mapping[str, Mapping[str, str]], spent: Mapping[str, float]) -> Chunk:
    """`piece` as it is stored; a ValueError unless it has the columns that the sweep declares, and plain numbers."""
    if unknown := set(piece.tables) - set(columns):
        raise ValueError(f"tables must be among {sorted(columns)}; a task returned {sorted(unknown)}")
    tables = {name: _table(name, piece.tables[name], columns[name]) for name in columns if name in piece.tables}
    arrays = {name: as_array(value) for name, value in piece.arrays.items()}
    for name, array in arrays.items():
        if array.ndim == 0 or array.dtype.hasobject:
            got = f"{array.dtype}, {array.shape}"
            raise ValueError(f"array {name!r} must have a first axis and plain numbers; got {got}")
    counts = {reason: check_count(value, f"counts[{reason!r}]", 0) for reason, value in piece.counts.items()}
    return Chunk(tables, arrays, counts, spent)


def encode(chunk: Chunk, fingerprint: str, task: str) -> bytes:
    """The bytes of `chunk`, marked as belonging to this task of the configuration with this fingerprint."""
    note = {"fingerprint": fingerprint, "task": task, "counts": {**chunk.counts}, "cpu_seconds": {**chunk.spent}}
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(_NOTE), json.dumps(note))
        for name, table in chunk.tables.items():
            archive.writestr(zipfile.ZipInfo(f"tables/{name}.parquet"), parquet_bytes(table))
        for name, array in chunk.arrays.items():
            archive.writestr(zipfile.ZipInfo(f"arrays/{name}.npy"), npy_bytes(array))
    content = target.getvalue()
    return _MARK + hashlib.sha256(content).hexdigest().encode() + b"\n" + content


def decode(content: bytes, fingerprint: str, task: str) -> Chunk:
    """The chunk that `encode` wrote; a DamagedChunkError if it was altered, or is of another task or configuration."""
    head, _, packed = content.partition(b"\n")
    if head != _MARK + hashlib.sha256(packed).hexdigest().encode():
        raise DamagedChunkError("its bytes do not match its checksum" if content else "it is empty")
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        parts = {info.filename: archive.read(info) for info in archive.infolist()}
    note: dict[str, Any] = json.loads(parts.pop(_NOTE))
    if note["fingerprint"] != fingerprint:
        raise DamagedChunkError("it belongs to another configuration")
    if note["task"] != task:
        raise DamagedChunkError(f"it belongs to another task, {note['task']}")
    named = {path.partition("/")[2].rpartition(".")[::2]: part for path, part in parts.items()}
    tables = {name: read_parquet(part) for (name, kind), part in named.items() if kind == "parquet"}
    arrays = {name: np.load(io.BytesIO(part)) for (name, kind), part in named.items() if kind == "npy"}
    return Chunk(tables, arrays, note["counts"], note["cpu_seconds"])


def parquet_bytes(table: pa.Table) -> bytes:
    """`table` as a Parquet file; the same rows give the same bytes."""
    target = io.BytesIO()
    pq.write_table(table, target, compression="zstd")
    return target.getvalue()


def read_parquet(content: bytes) -> pa.Table:
    """The table of a Parquet file."""
    return pq.ParquetFile(pa.BufferReader(content)).read()


def _table(name: str, columns: Columns, described: Mapping[str, str]) -> pa.Table:
    if set(columns) != set(described):
        missing, extra = sorted(set(described) - set(columns)), sorted(set(columns) - set(described))
        raise ValueError(f"table {name!r} must have the columns it declares; missing {missing}, not declared {extra}")
    values = {key: as_array(columns[key]) for key in described}
    for key, value in values.items():
        if value.ndim > 1:
            raise ValueError(f"column {key!r} of {name!r} must be one-dimensional; got shape {list(value.shape)}")
    if len(lengths := {len(value) for value in values.values() if value.ndim}) > 1:
        raise ValueError(f"table {name!r} must have columns of one length; got {sorted(lengths)}")
    rows = lengths.pop() if lengths else 1
    arrays = {key: pa.array(value if value.ndim else np.repeat(value, rows)) for key, value in values.items()}
    fields = [pa.field(key, arrays[key].type, metadata={"description": text}) for key, text in described.items()]
    return pa.table(list(arrays.values()), schema=pa.schema(fields))


def as_array(value: Any) -> np.ndarray:
    """`value`, such as a tensor, as an array in main memory."""
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
