"""Files in and out: whole or not there, the same bytes for the same numbers, and read without pickle.

Everything the library writes goes through `replacing` or `write_atomically`, and files that describe each other through
`replacing_together`. Named arrays are stored as .npz or .safetensors (`write_arrays`, `read_arrays`).
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import re
import secrets
import shutil
import stat
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

PARTIAL = ".partial"
"""Suffix of a file that is being written; one that is left over belongs to a process that was killed."""

SUFFIXES = (".npz", ".safetensors")
_METADATA = "__metadata__"

# ------------------------------------------------------------------------- writing


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file to write into, which takes the place of `path` when the block ends without an error.

    A reader sees the old file or the new one, never half of one, and the new one is on the disk when the block has
    ended. After any error nothing is left behind and the old file stays as it was.

    Raises:
        OSError: if it cannot be written; its `filename` is `path`, what the caller asked for.
    """
    temporary = path.with_name(f".{secrets.token_hex(8)}{PARTIAL}")
    try:
        temporary.touch(exist_ok=False)
        mode = stat.S_IMODE(temporary.stat().st_mode)  # that of any new file; safetensors would leave 0600
        yield temporary
        temporary.chmod(mode)
        with temporary.open("rb+") as handle:
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise _about(path, error) from error
        raise


def _about(path: Path, error: OSError) -> OSError:
    """The same error about `path`; a write to an open file names no file, one to a temporary file names that one."""
    return OSError(error.errno or errno.EIO, error.strerror or str(error), str(path))


@contextlib.contextmanager
def replacing_together(folder: Path, last: str, *, outdated: Sequence[str] = ()) -> Iterator[Path]:
    """A temporary folder to write into, whose files take their places in `folder` when the block ends without an error.

    They are all on the disk before the first takes its place, so that a full disk or an error leaves every old file as
    it was.

    Arguments:
        last: the file that is moved last: the manifest, which says that the others are there.
        outdated: files in `folder` that do not belong beside the new ones, such as the manifest of an older result.
            They are removed just before the new ones are moved: whoever is killed in between leaves no manifest rather
            than one that describes something else.

    Raises:
        OSError: if something cannot be written; its `filename` is the one in `folder`.
    """
    staging = folder / f".{secrets.token_hex(8)}{PARTIAL}"
    try:
        staging.mkdir()
        yield staging
        written = sorted(staging.iterdir(), key=lambda path: (path.name == last, path.name))
        for name in outdated:
            (folder / name).unlink(missing_ok=True)
        for path in written:
            os.replace(path, folder / path.name)
    except OSError as error:
        inside = error.filename is not None and Path(os.fsdecode(error.filename)).parent == staging
        raise _about(folder / Path(os.fsdecode(error.filename)).name if inside else folder, error) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def write_atomically(path: Path, content: bytes) -> Path:
    """Write `content` to `path` in the manner of `replacing`."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    return path


def write_arrays(path: str | os.PathLike[str], arrays: Mapping[str, Tensor], metadata: Mapping[str, object]) -> Path:
    """Write `arrays` and JSON-able `metadata` to `path`, making its folder where there is none.

    The same arrays give the same bytes, whenever and wherever they are written.

    Raises:
        ValueError: if the suffix is neither .npz nor .safetensors.
        OSError: if the file cannot be written.
    """
    path = Path(path)
    suffix = _checked_suffix(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in arrays.items()}
    described = json.dumps(dict(metadata))
    with replacing(path) as temporary:
        if suffix == ".npz":
            _write_npz(temporary, {**plain, _METADATA: np.array(described)})
        else:
            _write_safetensors(temporary, plain, described)
    return path


def npz_bytes(arrays: Mapping[str, np.ndarray], compression: int = zipfile.ZIP_STORED) -> bytes:
    """The arrays as a .npz file; `compression` is one of zipfile's constants."""
    target = io.BytesIO()
    _write_npz(target, arrays, compression)
    return target.getvalue()


def npy_bytes(array: np.ndarray) -> bytes:
    """The array as a .npy file, in C order."""
    target = io.BytesIO()
    np.lib.format.write_array(target, np.asarray(array, order="C"), allow_pickle=False)
    return target.getvalue()


def _write_npz(
    target: Path | io.BytesIO, arrays: Mapping[str, np.ndarray], compression: int = zipfile.ZIP_STORED
) -> None:
    # np.savez stamps the time of day on each member and takes the names "file" and "allow_pickle" for itself.
    with zipfile.ZipFile(target, "w") as archive:
        for name, array in arrays.items():
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), npy_bytes(array), compression)


def _write_safetensors(path: Path, arrays: Mapping[str, np.ndarray], metadata: str) -> None:
    from safetensors import SafetensorError
    from safetensors.numpy import save_file  # the torch one refuses tensors that share memory, as causal data do

    try:
        save_file(dict(arrays), path, metadata={_METADATA: metadata})
    except SafetensorError as error:
        number = re.search(r"\(os error (\d+)\)", str(error))  # a full disk is called what the system calls it
        code = int(number[1]) if number else errno.EIO
        raise OSError(code, os.strerror(code) if number else f"cannot be written: {error}", str(path)) from error


def _checked_suffix(path: Path) -> str:
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path} must end in .npz or .safetensors; got {path.suffix or 'no suffix'!r}")
    return path.suffix


# ------------------------------------------------------------------------- reading

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


def _read_npz(path: Path) -> tuple[dict[str, Tensor], dict[str, object]]:
    with path.open("rb") as handle:  # np.load forgets to close a damaged file that it opened itself
        start = handle.read(6)
        if start == b"\x93NUMPY":
            raise ValueError("it holds a single .npy array")
        if not start.startswith(b"PK"):
            raise ValueError("it is not a zip archive" if start else "it is empty")
        handle.seek(0)
        with np.load(handle, allow_pickle=False) as archive:
            metadata = _parse(str(archive[_METADATA])) if _METADATA in archive.files else {}
            arrays = {name: _numeric(archive[name], name) for name in archive.files if name != _METADATA}
    return arrays, metadata


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


def _parse(text: str) -> dict[str, object]:
    parsed = json.loads(text)
    return parsed if isinstance(parsed, dict) else {}


def _numeric(array: Any, name: str) -> Tensor:
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biufc":
        raise ValueError(f"{name!r} is not a numeric array")
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))
