"""The folder of one sweep: its manifest, its finished chunks, its joined tables, and the lock on it."""

from __future__ import annotations

import contextlib
import errno
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from attsvm.data.files import PARTIAL, locked, npz_bytes, write_atomically
from attsvm.sweep.chunks import Chunk, DamagedChunkError, decode, parquet_bytes
from attsvm.sweep.manifest import NAME, OVERWRITE, RESUME, digest, read_manifest, write_manifest
from attsvm.sweep.result import ARRAYS, id_of
from attsvm.sweep.task import Task, differences

Joined = tuple[dict[str, pa.Table], dict[str, np.ndarray], dict[str, str]]
"""Tables and arrays joined from the chunks, and the SHA-256 of each file that holds them."""


@dataclass(frozen=True)
class ResultFolder:
    """Where a sweep stores what it finds.

    Chunks lie in ``chunks/FINGERPRINT/NAME.chunk``. Tables and arrays are joined from them in the order of the tasks,
    so that the same chunks always give the same bytes. What cannot be written raises an OSError of one sentence, which
    says that finished chunks are kept.
    """

    path: Path
    fingerprint: str

    @property
    def chunks(self) -> Path:
        """Where this configuration's chunks are."""
        return self.path / "chunks" / self.fingerprint

    def check(
        self, sweep: str, configuration: Mapping[str, Any], *, resume: bool, overwrite: bool = False
    ) -> dict[str, Any] | None:
        """The manifest to go on from, None if the folder is free or what it holds of this sweep may be overwritten."""
        if resume and overwrite:
            raise ValueError(f"{RESUME} and {OVERWRITE} contradict each other; give one of them")
        try:
            found = read_manifest(self.path)
        except ValueError as error:
            raise ValueError(f"{error}; choose another folder, or remove that file and add {RESUME}") from None
        if found is None:
            if not resume and not overwrite and any(self.chunks.glob("*.chunk")):
                raise ValueError(
                    f"{self.path} holds chunks of {sweep} with this configuration but no manifest; use them with"
                    f" {RESUME}, start over with {OVERWRITE}, or choose another folder"
                )
            return None
        if id_of(found) != sweep:
            raise ValueError(f"{self.path} holds another result and its manifest; choose another folder")
        if not found.get("complete") and not any(self.path.glob("chunks/*/*.chunk")):
            return None  # stopped before it found anything
        if overwrite:
            return None
        if found.get("fingerprint") != self.fingerprint:
            changed = differences(found.get("configuration", {}), configuration)
            raise ValueError(
                f"{self.path} holds {sweep} with another configuration ({changed or 'another version or device'});"
                f" choose another folder, or replace it with {OVERWRITE}"
            )
        if not resume:
            done = bool(found.get("complete"))
            go_on = "keep it and only draw and judge it again" if done else "go on from it"
            raise ValueError(
                f"{self.path} holds {sweep} with this configuration, {'finished' if done else 'unfinished'}; {go_on}"
                f" with {RESUME}, compute it afresh with {OVERWRITE}, or choose another folder"
            )
        return found

    def clear(self) -> None:
        """Remove the result that is there: its manifest, tables, arrays and all its chunks, of any configuration."""
        with self._writing():
            try:
                found = read_manifest(self.path) or {}
            except ValueError:
                found = {}
            (self.path / NAME).unlink(missing_ok=True)
            for name in found.get("files") or {}:
                (self.path / Path(name).name).unlink(missing_ok=True)
            shutil.rmtree(self.path / "chunks", ignore_errors=True)
            self.chunks.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Make the folders, keep other processes out (a ValueError), and clear away what a killed process left."""
        with self._writing():
            self.chunks.mkdir(parents=True, exist_ok=True)
        with locked(self.path):
            for folder in (self.path, self.chunks):
                for left in folder.glob(f".*{PARTIAL}"):
                    with contextlib.suppress(OSError):
                        left.unlink()
            yield

    def read(self, task: Task) -> Chunk | None:
        """The finished chunk of `task`, None if it is not there; a DamagedChunkError if it cannot be used."""
        try:
            content = (self.chunks / f"{task.name}.chunk").read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DamagedChunkError(error.strerror or str(error)) from error
        return decode(content, self.fingerprint, task.name)

    def write(self, task: Task, content: bytes) -> Chunk:
        """Store the bytes of a finished chunk, and return what they hold."""
        chunk = decode(content, self.fingerprint, task.name)
        with self._writing():
            write_atomically(self.chunks / f"{task.name}.chunk", content)
        return chunk

    def join(self, chunks: Sequence[Chunk]) -> Joined:
        """Write the joined tables and arrays, and return them."""
        tables = {
            name: pa.concat_tables(parts, promote_options="permissive").combine_chunks()
            for name, parts in _gathered(chunk.tables for chunk in chunks).items()
        }
        arrays = {name: np.concatenate(parts) for name, parts in _gathered(chunk.arrays for chunk in chunks).items()}
        contents = {f"{name}.parquet": parquet_bytes(table) for name, table in tables.items()}
        if arrays:
            contents[ARRAYS] = npz_bytes(arrays, zipfile.ZIP_DEFLATED)
        with self._writing():
            for name, content in contents.items():
                write_atomically(self.path / name, content)
        return tables, arrays, {name: digest(content) for name, content in contents.items()}

    def write_manifest(self, content: Mapping[str, Any]) -> None:
        """Replace the manifest."""
        with self._writing():
            write_manifest(self.path, content)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """An error while writing says that nothing is lost and what to do."""
        try:
            yield
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            cure = "free some space" if full else "put it right"
            reason = error.strerror or str(error)
            raise OSError(
                f"{self.path} cannot be written: {reason[:1].lower()}{reason[1:]}; finished chunks are kept, {cure} and"
                f" go on with {RESUME}"
            ) from error


def _gathered(parts: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """What chunks hold, by name, in their order."""
    found: dict[str, list[Any]] = {}
    for part in parts:
        for name, value in part.items():
            found.setdefault(name, []).append(value)
    return found
