"""The solvers' Numba kernels leave the run-time check of shapes: Numba compiles source and cannot see through a decorator."""

from __future__ import annotations

import re
import sys
from pathlib import Path

_SOURCE = Path(__file__).resolve().parents[2] / "src"
KERNELS = {
    ".".join(path.relative_to(_SOURCE).with_suffix("").parts)
    for path in _SOURCE.glob("attsvm/svm/**/*.py")
    if re.search(r"^(import|from) numba\b", path.read_text(), re.MULTILINE)
}

for finder in sys.meta_path:
    if hasattr(finder, "should_instrument"):  # the hook that tests/conftest.py installs
        finder.modules = [name for name in finder.modules if name not in KERNELS]
