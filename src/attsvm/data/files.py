"""Files in and out: whole or not there, the same bytes for the same numbers, and read without pickle.

Everything the library writes goes through `replacing` or `write_atomically`, and files that describe each other through
`replacing_together`. Named arrays are stored as .npz or .safetensors (`write_arrays`, `read_arrays`).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import re
import secrets
import shutil
import stat
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

PARTIAL = ".partial"
"""Suffix of a file that is being written; one that is left over belongs to a process that was killed."""

SUFFIXES = (".npz", ".safetensors")
_METADATA = "__metadata__"
_CHECKSUM = "attsvm_sha256"
_END = struct.Struct("<4s4H2LH")  # the last record of a zip archive without a comment


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file to write into, which takes the place of `path` when the block ends without an error.

    A reader sees the old file or the new one, never half of one, and the new one is on the disk when the block has
    ended. After any error nothing is left behind and the old file stays as it was; an OSError names `path`.
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
    it was. The file `last` is moved last: the manifest, which says that the others are there. What is `outdated`, such
    as the manifest of an older result, is removed just before: whoever is killed in between leaves no manifest rather
    than one that describes something else. An OSError names the file in `folder`.
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


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of `folder`, with a ValueError, until the block ends or the process, however it does."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            said = f"another process is computing into {folder}; wait for it, or choose another folder"
            raise ValueError(said) from None
        except OSError:
            pass  # a file system without locks: writing atomically must do
        yield
    finally:
        os.close(handle)


def write_arrays(path: str | os.PathLike[str], arrays: Mapping[str, Tensor], metadata: Mapping[str, object]) -> Path:
    """Write `arrays` and JSON-able `metadata` to a .npz or .safetensors file; the same arrays give the same bytes."""
    path = Path(path)
    suffix = _checked_suffix(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in arrays.items()}
    described = json.dumps(dict(metadata))
    with replacing(path) as temporary:
        if suffix == ".npz":
            _write_npz(temporary, {**plain, _METADATA: np.array(described)}, zipfile.ZIP_STORED)
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


def _write_npz(target: Path | io.BytesIO, arrays: Mapping[str, np.ndarray], compression: int) -> None:
    # np.savez stamps the time of day on each member and takes the names "file" and "allow_pickle" for itself.
    with zipfile.ZipFile(target, "w") as archive:
        for name, array in arrays.items():
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), npy_bytes(array), compression)


def _write_safetensors(path: Path, arrays: Mapping[str, np.ndarray], metadata: str) -> None:
    from safetensors import SafetensorError
    from safetensors.numpy import save_file  # the torch one refuses tensors that share memory, as causal data do

    # One entry in all: safetensors writes several in an order that changes from file to file.
    described = {**json.loads(metadata), _CHECKSUM: _checksum(arrays, metadata)}
    try:
        save_file(dict(arrays), path, metadata={_METADATA: json.dumps(described)})
    except SafetensorError as error:
        number = re.search(r"\(os error (\d+)\)", str(error))  # a full disk is called what the system calls it
        code = int(number[1]) if number else errno.EIO
        raise OSError(code, os.strerror(code) if number else f"cannot be written: {error}", str(path)) from error


def _checksum(arrays: Mapping[str, np.ndarray], metadata: str) -> str:
    """SHA-256 of all names, types, shapes and bytes, in the order of the names, and of the metadata."""
    found = hashlib.sha256(metadata.encode())
    for name in sorted(arrays):
        array = np.asarray(arrays[name], order="C")
        found.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        found.update(array.reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def _checked_suffix(path: Path) -> str:
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path} must end in .npz or .safetensors; got {path.suffix or 'no suffix'!r}")
    return path.suffix


def read_arrays(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Read what `write_arrays` wrote, or any plain .npz or .safetensors file of numeric arrays; else a ValueError."""
    path = Path(path)
    suffix = _checked_suffix(path)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise ValueError(f"{path} {what}; give a .npz or .safetensors file")
    try:
        return _read_npz(path) if suffix == ".npz" else _read_safetensors(path)
    except PermissionError:
        raise ValueError(f"{path} cannot be read: permission denied") from None
    except Exception as error:  # zipfile, zlib and NumPy's header parser have a dozen kinds for damaged bytes
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{path} is not a readable {suffix} file (truncated, or of another kind): {reason}") from None


def _read_npz(path: Path) -> tuple[dict[str, Tensor], dict[str, object]]:
    with path.open("rb") as handle:  # np.load forgets to close a damaged file that it opened itself
        if handle.read(6) == b"\x93NUMPY":
            raise ValueError("it holds a single .npy array")
        with zipfile.ZipFile(handle) as archive:
            _check_count(handle, archive)
            found = {info.filename.removesuffix(".npy"): _member(archive, info) for info in archive.infolist()}
    metadata = _parse(str(found.pop(_METADATA))) if _METADATA in found else {}
    return {name: _numeric(array, name) for name, array in found.items()}, metadata


def _check_count(handle: BinaryIO, archive: zipfile.ZipFile) -> None:
    """Compare the members found with the number the archive's last record gives; zipfile reads past damaged entries."""
    handle.seek(-_END.size, os.SEEK_END)
    mark, *_, count, _, _, _ = _END.unpack(handle.read(_END.size))
    if mark == b"PK\x05\x06" and count not in (0xFFFF, len(archive.infolist())):  # else a comment, or a large archive
        raise ValueError(f"it lists {count} arrays but {len(archive.infolist())} can be found")


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    """One array of a .npz file, read to its end, where zip compares checksums: a damaged header may ask for less."""
    if not info.filename.endswith(".npy"):
        raise ValueError(f"{info.filename!r} is not a numeric array")
    with archive.open(info) as member:
        array: np.ndarray = np.lib.format.read_array(member, allow_pickle=False)
        if member.read(1):
            raise ValueError(f"there are bytes left after the array {info.filename!r}")
    return array


def _read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, object]]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as archive:
        header = archive.metadata() or {}
        # The tensors map the file; a copy stays what it is when somebody overwrites the file.
        arrays = {name: archive.get_tensor(name).clone() for name in archive.keys()}  # noqa: SIM118
    if _METADATA not in header and any(_CHECKSUM in value for value in header.values()):
        raise ValueError("the name of its metadata is damaged")
    metadata = _parse(header[_METADATA]) if _METADATA in header else {}
    if _CHECKSUM in metadata:  # other programs write none, nor did attsvm once
        written = metadata.pop(_CHECKSUM)
        plain = {name: array.numpy() for name, array in arrays.items()}
        if _checksum(plain, json.dumps(metadata)) != written:
            raise ValueError("its bytes do not match its checksum")
    return arrays, metadata


def _parse(text: str) -> dict[str, object]:
    parsed = json.loads(text)
    return parsed if isinstance(parsed, dict) else {}


def _numeric(array: np.ndarray, name: str) -> Tensor:
    if array.dtype.kind not in "biufc":
        raise ValueError(f"{name!r} is not a numeric array")
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))
