"""The documentation, built once for all tests, and served from this machine."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

ROOT = Path(__file__).parent.parent.parent


def build(folder: Path) -> Path:
    """Build the pages into `folder`, unless they are there: warnings are errors, and the gallery is not run."""
    pages = folder / "html"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process of the same run may be building
        if not (folder / "finished").exists():
            source = folder / "project" / "docs"
            made = shutil.ignore_patterns("_build", "examples", "__pycache__")
            shutil.copytree(ROOT / "docs", source, ignore=made)
            (folder / "project" / "src").symlink_to(ROOT / "src")
            options = ["-q", "-W", "--keep-going", "-D", "plot_gallery=0", "-b", "html"]
            done = subprocess.run(
                [sys.executable, "-m", "sphinx", *options, str(source), str(pages)],
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            )
            assert done.returncode == 0, done.stderr[-3000:]
            (folder / "finished").touch()
    return pages


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """The address under which this machine serves `folder`."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
