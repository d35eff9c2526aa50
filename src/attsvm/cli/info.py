"""`attsvm info`: versions, engines, devices, threads and the cache of compiled kernels, to paste into a report."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import re
from pathlib import Path
from typing import Any

import typer

import attsvm
from attsvm.cli.common.options import Json
from attsvm.cli.common.report import print_json

NOT_USERS = ("dev", "docs", "bench")  # extras of those who work on attsvm itself; what they bring changes no result


def info(json: Json = False) -> None:
    """Say what this installation is: paste it into a report of an error.

    It names versions, engines, devices, numbers of threads and where compiled kernels are kept. Nothing is sent
    anywhere.
    """
    found = collect()
    if json:
        print_json(found)
        return
    for title, part in found.items():  # plain lines rather than tables: they survive a paste into any form
        typer.echo(title)
        for name, value in part.items():
            typer.echo(f"  {name:<22}{'-' if value is None else value}")


def collect() -> dict[str, dict[str, Any]]:
    """Everything `attsvm info` says, by topic; it never raises, since a broken installation is worth a report too."""
    libraries, torch = _libraries(), _torch()
    variables = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    return {
        "attsvm": {
            "version": attsvm.__version__,
            "folder": _shown(Path(attsvm.__file__).parent),
            "python": f"{platform.python_version()} ({platform.python_implementation()})",
            "system": platform.platform(),
        },
        "libraries": libraries,
        "engines": _engines(libraries, torch),
        "devices": {name: said for name, said in torch.items() if name.startswith(("cpu", "cuda:"))},
        "threads": {
            "processors": os.cpu_count(),
            "usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "torch": torch.get("threads"),
            **{name: os.environ.get(name) for name in variables},
        },
        "compile cache": _compile_cache(),
    }


def _shown(path: str | Path) -> str:
    """`path`, with ~ for the home folder, whose name is nobody's business."""
    home = str(Path.home())
    return f"~{str(path)[len(home) :]}" if str(path).startswith(home + os.sep) else str(path)


def _libraries() -> dict[str, str | None]:
    """The version of everything attsvm uses, None for what is not installed; extras follow what is required."""
    try:
        wanted = importlib.metadata.requires("attsvm") or []
    except importlib.metadata.PackageNotFoundError:  # sources on the path that were never installed
        wanted = ["torch", "numpy", "scipy", "numba"]
    extras = {line: re.findall(r"extra *== *['\"]([\w-]+)", line) for line in wanted}
    users = [line for line, names in extras.items() if not set(names) & set(NOT_USERS)]
    names = [re.split(r"[^\w.-]", line)[0] for line in sorted(users, key=lambda line: bool(extras[line]))]
    found: dict[str, str | None] = dict.fromkeys(name for name in names if name != "attsvm")
    for name in found:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _torch() -> dict[str, Any]:
    """The devices and threads that PyTorch sees, or, under "error", why it cannot be imported."""
    try:
        import torch
    except (ImportError, OSError) as error:
        return {"error": str(error).partition("\n")[0]}
    found: dict[str, Any] = {"cpu": torch.backends.cpu.get_cpu_capability(), "threads": torch.get_num_threads()}
    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        device = torch.cuda.get_device_properties(number)
        size, able = f"{device.total_memory / 2**30:.0f} GiB", f"compute capability {device.major}.{device.minor}"
        found[f"cuda:{number}"] = f"{device.name}, {size}, CUDA {torch.version.cuda}, {able}"
    return found


def _engines(libraries: dict[str, str | None], torch: dict[str, Any]) -> dict[str, str]:
    """Whether each engine of `fit` can run here, and if not, why."""
    if "error" in torch:
        return dict.fromkeys(("CompiledEngine", "CudaEngine", "TorchEngine"), f"no: torch fails: {torch['error']}")
    if "cuda:0" not in torch:
        cuda = "no: torch finds no CUDA device"
    elif libraries.get("numba-cuda") is None:
        cuda = "no: numba-cuda is not installed (the extra gpu brings it)"
    else:
        from attsvm.data.machine import numba_sees_gpu

        cuda = "yes" if numba_sees_gpu() else "no: Numba does not find the device"
    compiled = "yes" if libraries.get("numba") else "no: numba is not installed"
    return {"CompiledEngine": compiled, "CudaEngine": cuda, "TorchEngine": "yes"}


def _compile_cache() -> dict[str, Any]:
    """Where Numba keeps the compiled kernels, how many of them there are, and how large they are together."""
    given, package = os.environ.get("NUMBA_CACHE_DIR"), Path(attsvm.__file__).parent
    if given:
        folder, where = Path(given), f"{_shown(given)} (NUMBA_CACHE_DIR)"
    elif os.access(package, os.W_OK):
        folder, where = package, f"{_shown(package)} (__pycache__ beside each kernel)"
    else:
        return {"folder": "Numba's folder for this user: the package's own cannot be written", "kernels": None}
    kernels = [path.stat().st_size for path in folder.rglob("*.nbc")]
    return {"folder": where, "kernels": len(kernels), "megabytes": round(sum(kernels) / 1e6, 1)}
