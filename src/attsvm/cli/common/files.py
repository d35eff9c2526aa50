"""The folders commands write to, and the manifest that says how what lies in one was made."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import typer

import attsvm
from attsvm.sweep.manifest import new_manifest, read_manifest, to_plain, write_manifest

MANIFEST = "manifest.json"


def checked_folder(out: Path) -> Path:
    """`out`, made if need be and writable, before any work is done; else a ValueError."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ValueError(f"--out must be a folder; {out} is, or lies in, a file") from None
    except OSError as error:
        raise ValueError(f"--out {out} cannot be made: {(error.strerror or str(error)).lower()}") from None
    if not os.access(out, os.W_OK | os.X_OK):
        raise ValueError(f"--out {out} cannot be written: permission denied")
    return out


def manifest_in(folder: Path) -> dict[str, Any] | None:
    """What FOLDER/manifest.json says; None if there is none, and a ValueError if it cannot be understood."""
    found = read_manifest(folder)
    if found is not None and str(found.get("command")).startswith("attsvm train "):
        found.setdefault("kind", "train")  # which 0.1 left out
    return found


def own_folder(out: Path, command: str) -> Path:
    """The folder `command` writes to; a ValueError if its manifest says that it belongs to another command."""
    folder = checked_folder(out)
    found = manifest_in(folder)
    if found is not None and found.get("kind") != command:
        other = f"give {command} another, such as {out / command}"
        raise ValueError(f"--out {out} holds another result and its manifest; {other}")
    return folder


def checked_file(path: Path, option: str) -> Path:
    """`path`, if a file can be written there, before any work is done; else a ValueError."""
    folder = path.parent
    if not folder.is_dir():
        raise ValueError(f"{option} {path} cannot be written: the folder {folder} does not exist")
    if path.is_dir():
        raise ValueError(f"{option} must be a file; {path} is a folder")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise ValueError(f"{option} {path} cannot be written: permission denied")
    return path


def new_result(folder: Path, *, outdated: Sequence[str] = (MANIFEST,)) -> AbstractContextManager[Path]:
    """A temporary folder whose files replace those in `folder` together, the manifest last, as `data/files.py` says."""
    return attsvm.data.files.replacing_together(folder, MANIFEST, outdated=outdated)


def write_result(
    folder: Path, context: typer.Context, files: Sequence[str | Path], seconds: float, *, kind: str,
    status: str = "finished", **about: Any,
) -> dict[str, Any]:  # fmt: skip
    """Write, and return, FOLDER/manifest.json: the command as given, what `about` tells, versions, time and files."""
    names = [*map(str, files), MANIFEST]
    content = new_manifest(kind, status=status, command=command_of(context), **about, files=names, seconds=seconds)
    write_manifest(folder, content)
    return content


def command_of(context: typer.Context) -> str:
    """The command as it was given."""
    return shlex.join(["attsvm", *(context.obj or [])])


def write_text(path: Path, text: str) -> Path:
    """Write a file that is whole or not there."""
    return attsvm.data.files.write_atomically(path, text.encode())


def write_json(path: Path, content: Mapping[str, Any]) -> Path:
    """Write `content`; a number JSON cannot hold becomes null."""
    return write_text(path, json.dumps(to_plain(content), indent=1, allow_nan=False) + "\n")
