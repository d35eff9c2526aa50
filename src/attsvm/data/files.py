"""Named arrays in .npz or .safetensors files, written atomically and read without pickle."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import stat
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

_METADATA = "__metadata__"
SUFFIXES = (".npz", ".safetensors")

# What zipfile, zlib and NumPy's header parser raise on damaged bytes; a flipped bit can reach any of them.
_DAMAGE = (
    OSError,
    ValueError,
    KeyError,
    EOFError,
    TypeError,
    SyntaxError,
    RuntimeError,
    MemoryError,
    OverflowError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


def _checked_suffix(path: Path) -> str:
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path} must end in .npz or .safetensors; got {path.suffix or 'no suffix'!r}")
    return path.suffix


def write_arrays(path: str | os.PathLike[str], arrays: Mapping[str, Tensor], metadata: Mapping[str, object]) -> Path:
    """Write `arrays` and JSON-able `metadata` to `path`; a reader never sees half a file.

    The same arrays give the same bytes, whenever and wherever they are written.

    Raises:
        ValueError: if the suffix is neither .npz nor .safetensors.
        OSError: if the folder cannot be written.
    """
    path = Path(path)
    suffix = _checked_suffix(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in arrays.items()}
    described = json.dumps(dict(metadata))
    temporary = path.with_name(f".{secrets.token_hex(8)}{suffix}")
    try:
        temporary.touch(exist_ok=False)
        mode = temporary.stat().st_mode  # that of any new file; safetensors would leave 0600
        if suffix == ".npz":
            _write_npz(temporary, {**plain, _METADATA: np.array(described)})
        else:
            _write_safetensors(temporary, plain, described)
        temporary.chmod(stat.S_IMODE(mode))
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    return path


def read_arrays(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Read what `write_arrays` wrote, or any plain .npz / .safetensors file of numeric arrays.

    Raises:
        ValueError: if the file is missing, of another kind, truncated or holds Python objects.
    """
    path = Path(path)
    suffix = _checked_suffix(path)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise ValueError(f"{path} {what}; give a .npz or .safetensors file")
    try:
        return _read_npz(path) if suffix == ".npz" else _read_safetensors(path)
    except PermissionError:
        raise ValueError(f"{path} cannot be read: permission denied") from None
    except _DAMAGE as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{path} is not a readable {suffix} file (truncated, or of another kind): {reason}") from None


def _write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    # np.savez stamps the time of day on each member and takes the names "file" and "allow_pickle" for itself.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _write_safetensors(path: Path, arrays: Mapping[str, np.ndarray], metadata: str) -> None:
    from safetensors import SafetensorError
    from safetensors.numpy import save_file  # the torch one refuses tensors that share memory, as causal data do

    try:
        save_file(dict(arrays), path, metadata={_METADATA: metadata})
    except SafetensorError as error:
        raise OSError(f"{path} cannot be written: {error}") from error


def _parse(text: str) -> dict[str, object]:
    parsed = json.loads(text)
    return parsed if isinstance(parsed, dict) else {}


def _read_npz(path: Path) -> tuple[dict[str, Tensor], dict[str, object]]:
    with path.open("rb") as handle:  # np.load forgets to close a damaged file that it opened itself
        start = handle.read(6)
        if start == b"\x93NUMPY":
            raise ValueError("it holds a single .npy array")
        if not start.startswith(b"PK"):
            raise ValueError("it is no zip archive" if start else "it is empty")
        handle.seek(0)
        with np.load(handle, allow_pickle=False) as archive:
            metadata = _parse(str(archive[_METADATA])) if _METADATA in archive.files else {}
            arrays = {name: _numeric(archive[name], name) for name in archive.files if name != _METADATA}
    return arrays, metadata


def _numeric(array: Any, name: str) -> Tensor:
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biufc":
        raise ValueError(f"{name!r} is not a numeric array")
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))


def _read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, object]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as archive:
            header = archive.metadata() or {}
            # The tensors map the file; a copy stays what it is when somebody overwrites the file.
            arrays = {name: archive.get_tensor(name).clone() for name in archive.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(str(error)) from None
    return arrays, _parse(header[_METADATA]) if _METADATA in header else {}
