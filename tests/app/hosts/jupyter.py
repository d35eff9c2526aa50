"""A real Jupyter server on loopback, with a notebook of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TOKEN = "playground"


def notebook(path: Path, cells: list[str]) -> Path:
    """Write a notebook of these cells of code."""
    content = {
        "cells": [
            {
                "cell_type": "code",
                "id": f"cell{k}",
                "execution_count": None,
                "metadata": {},
                "outputs": [],
                "source": code,
            }
            for k, code in enumerate(cells)
        ],
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


@contextmanager
def jupyter(folder: Path) -> Iterator[str]:
    """Serve `folder`, with settings and kernels of nobody else; gives the address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    own = {f"JUPYTER_{kind}_DIR": str(folder / ".jupyter" / kind) for kind in ("CONFIG", "DATA", "RUNTIME")}
    environment = {**os.environ, **own, "IPYTHONDIR": str(folder / ".ipython"), "OMP_NUM_THREADS": "1"}
    environment["JUPYTER_PREFER_ENV_PATH"] = "1"
    with (folder / "server.log").open("w+", encoding="utf-8") as log, subprocess.Popen(
        [
            sys.executable, "-m", "notebook", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}",
            "--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={folder}",
            "--LabApp.news_url=", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        ],
        stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=folder,
    ) as process:  # fmt: skip
        try:
            _wait(f"http://127.0.0.1:{port}/api?token={TOKEN}", process, folder / "server.log")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _wait(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            assert process.poll() is None, log.read_text(encoding="utf-8")
            time.sleep(0.1)
    raise AssertionError(f"Jupyter did not start:\n{log.read_text(encoding='utf-8')}")
