"""The page, and the test vectors that Python writes for it."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .page import MathsPage

if TYPE_CHECKING:
    from playwright.sync_api import Browser

TESTS = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def maths(browser: Browser) -> Iterator[MathsPage]:
    """The playground's mathematics in Chromium."""
    page = MathsPage(browser)
    yield page
    page.close()
    assert page.errors == []


@pytest.fixture(scope="session")
def vectors(browser: Browser, shared_folder: Path) -> dict[str, Any]:
    """Test vectors by name; written by a fresh Python, without the run-time checks of shapes, which slow `fit` down."""
    del browser  # only asked for so that nothing is computed where there is none
    path = shared_folder / "playground-vectors.json"
    with (shared_folder / "playground-vectors.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            command = [sys.executable, "-m", "app.vectors", str(path)]
            known = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
            subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": known})
    return {case["name"]: case for case in json.loads(path.read_text(encoding="utf-8"))}
