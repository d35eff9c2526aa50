"""A stored result: tables, arrays and the manifest that says how they were made."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from attsvm.sweep.manifest import RESUME, digest, read_manifest

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
        tasks = self.manifest["tasks"].items()
        return sum(spent["computing"] for name, spent in tasks if name.startswith(prefix))

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
        found = id_of(manifest)
        if found is None:
            raise ValueError(f"{folder} holds no result of a sweep; give a folder that a run has written")
        if not manifest.get("complete"):
            raise ValueError(f"{folder} holds an unfinished run of {found}; go on with {RESUME}")
        try:
            files = {name: (folder / name).read_bytes() for name in manifest["files"]}
            for name, content in files.items():
                if digest(content) != manifest["files"][name]:
                    raise ValueError(f"{name} is not as it was written")
            tables = {
                name: pq.ParquetFile(pa.BufferReader(files[f"{name}.parquet"])).read() for name in manifest["tables"]
            }
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
