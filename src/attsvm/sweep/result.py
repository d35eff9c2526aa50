"""The folder of one sweep: the result in it, its finished chunks, its manifest, and the lock on it."""

from __future__ import annotations

import contextlib
import errno
import io
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from attsvm.data.files import PARTIAL, locked, npz_bytes, write_atomically
from attsvm.sweep.chunks import Chunk, DamagedChunkError, decode, parquet_bytes, read_parquet
from attsvm.sweep.manifest import NAME, OVERWRITE, RESUME, digest, read_manifest, write_manifest
from attsvm.sweep.task import Task, differences

ARRAYS = "arrays.npz"


@dataclass(frozen=True)
class SweepResult:
    """What `run` returns and a plot draws."""

    id: str  #: of the sweep
    folder: Path  #: where the files lie: a Parquet file for each table, arrays.npz, manifest.json
    tables: Mapping[str, pa.Table]  #: rows by table; a column's description is in its field's metadata
    arrays: Mapping[str, np.ndarray]  #: trajectories and other arrays that plots need
    #: configuration, seed, versions, device, counts of discarded and failed instances, times
    manifest: Mapping[str, Any]

    @property
    def configuration(self) -> Mapping[str, Any]:
        """The fields of the configuration, as JSON holds them."""
        return self.manifest["configuration"]

    @property
    def counts(self) -> Mapping[str, int]:
        """Instances discarded or failed, by reason."""
        return self.manifest["counts"]

    def cpu_seconds(self, prefix: str = "") -> float:
        """CPU time of computing, without compilation and imports, of the tasks whose name starts with `prefix`."""
        return sum(spent["computing"] for name, spent in self.manifest["tasks"].items() if name.startswith(prefix))

    def column(self, table: str, name: str, **where: object) -> np.ndarray:
        """A column as an array, of the rows whose other columns have the values in `where`.

        >>> result.column("runs", "cosine", parameterization="W")  # doctest: +SKIP
        """
        found = self.tables[table]
        keep = np.ones(found.num_rows, dtype=bool)
        for key, value in where.items():
            keep &= found[key].to_numpy() == value
        return found[name].to_numpy()[keep]

    @staticmethod
    def load(folder: Path | str) -> SweepResult:
        """A finished result from its folder; a ValueError if there is none, or a file cannot be read."""
        folder = Path(folder)
        manifest = read_manifest(folder) or {}
        if (found := id_of(manifest)) is None:
            raise ValueError(f"{folder} holds no result of an experiment or a sweep; give a folder of one")
        if not manifest.get("complete"):
            raise ValueError(f"{folder} holds an unfinished run of {found}; go on with {RESUME}")
        try:
            files = {name: (folder / name).read_bytes() for name in manifest["files"]}
            for name, content in files.items():
                if digest(content) != manifest["files"][name]:
                    raise ValueError(f"{name} is not as it was written")
            tables = {name: read_parquet(files[f"{name}.parquet"]) for name in manifest["tables"]}
            arrays = {}
            if manifest["arrays"]:
                with np.load(io.BytesIO(files[ARRAYS]), allow_pickle=False) as archive:
                    arrays = {name: archive[name] for name in manifest["arrays"]}
            return SweepResult(found, folder, tables, arrays, manifest)
        except (OSError, ValueError, KeyError, pa.ArrowException) as error:
            reason = str(error).partition("\n")[0]
            raise ValueError(f"{folder} cannot be read ({reason}); run {found} again with {RESUME}") from None


def id_of(manifest: Mapping[str, Any]) -> str | None:
    """The id of the sweep that a manifest describes; None if it describes something else."""
    # Results of the time when only experiments were sweeps say so.
    key = {"sweep": "id", "experiment": "experiment"}.get(str(manifest.get("kind")))
    return None if key is None else manifest.get(key)


def describe_columns(table: pa.Table) -> dict[str, str]:
    """What each column of a stored table holds."""
    metadata = {name: table.schema.field(name).metadata or {} for name in table.column_names}
    return {name: found.get(b"description", b"").decode() for name, found in metadata.items()}


@dataclass(frozen=True)
class ResultFolder:
    """Where a sweep stores what it finds.

    Chunks lie in ``chunks/FINGERPRINT/NAME.chunk``; the same chunks always give the same bytes of tables and arrays.
    """

    path: Path
    fingerprint: str

    @property
    def chunks(self) -> Path:
        return self.path / "chunks" / self.fingerprint

    def check(
        self, sweep: str, configuration: Mapping[str, Any], files: Iterable[str], *, resume: bool, overwrite: bool
    ) -> dict[str, Any] | None:
        """The manifest to go on from, None if the folder is free or what it holds of this sweep may be overwritten.

        `files` are those that the result will have.
        """
        if resume and overwrite:
            raise ValueError(f"{RESUME} and {OVERWRITE} contradict each other; give one of them")
        try:
            found = read_manifest(self.path)
        except ValueError as error:
            raise ValueError(f"{error}; choose another folder, or remove that file and add {RESUME}") from None
        if found is not None and id_of(found) != sweep:
            raise ValueError(f"{self.path} holds another result and its manifest; choose another folder")
        empty = not any(self.path.glob("chunks/*/*.chunk"))
        if overwrite or (found is not None and not found.get("complete") and empty):
            return None  # what is there goes, or there is only what was written before anything was found
        holds, others = f"{self.path} holds", f"with {OVERWRITE}, or choose another folder"
        if found is None:
            if any(self.chunks.glob("*.chunk")):
                if resume:
                    return None
                what = f"chunks of {sweep} with this configuration but no manifest"
                raise ValueError(f"{holds} {what}; use them with {RESUME}, start over {others}")
            if there := [name for name in files if (self.path / name).exists()]:
                raise ValueError(f"{holds} {there[0]}, but no manifest that says what it is; replace it {others}")
            return None
        if found.get("fingerprint") != self.fingerprint:
            before = found.get("configuration")
            changed = "its manifest does not say which"
            if isinstance(before, Mapping):
                changed = differences(before, configuration) or "another version or device"
            raise ValueError(f"{holds} {sweep} with another configuration ({changed}); replace it {others}")
        if not resume:
            kept, left = "finished; keep it and only show it again", "unfinished; go on from it"
            state = f"{kept if found.get('complete') else left} with {RESUME}"
            raise ValueError(f"{holds} {sweep} with this configuration, {state}, compute it afresh {others}")
        return found

    def clear(self) -> None:
        """Remove the result that is there: its manifest, tables, arrays and all its chunks, of any configuration.

        What else lies in the folder stays.
        """
        with self._writing():
            found: Mapping[str, Any] = {}
            with contextlib.suppress(ValueError):
                found = read_manifest(self.path) or {}
            (self.path / NAME).unlink(missing_ok=True)
            for name in found.get("files") or {}:
                (self.path / Path(name).name).unlink(missing_ok=True)
            chunks = list(self.path.glob("chunks/*/*.chunk"))
            for chunk in chunks:
                chunk.unlink()
            for folder in {chunk.parent for chunk in chunks} - {self.chunks}:
                if not any(folder.iterdir()):
                    folder.rmdir()

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

    def join(self, chunks: Sequence[Chunk]) -> tuple[dict[str, pa.Table], dict[str, np.ndarray], dict[str, str]]:
        """Write the joined tables and arrays, and return them and the SHA-256 of each file that holds them."""
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
        with self._writing():
            write_manifest(self.path, content)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """What cannot be written raises an OSError of one sentence: that nothing is lost, and what to do."""
        try:
            yield
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            cure = f"{'free some space' if full else 'put it right'} and go on with {RESUME}"
            reason = error.strerror or str(error)
            said = f"{self.path} cannot be written: {reason[:1].lower()}{reason[1:]}"
            raise OSError(f"{said}; finished chunks are kept, {cure}") from error


def _gathered(parts: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """What chunks hold, by name, in their order."""
    found: dict[str, list[Any]] = {}
    for part in parts:
        for name, value in part.items():
            found.setdefault(name, []).append(value)
    return found
