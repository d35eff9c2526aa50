"""Sphinx: MyST pages, no network."""

import re
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_VERSION = re.search(
    r'^__version__ = "(.+)"', (_ROOT / "src/attsvm/__init__.py").read_text(encoding="utf-8"), re.MULTILINE
)
assert _VERSION is not None

project = "attsvm"
author = "The attsvm developers"
copyright = author  # noqa: A001
release = version = _VERSION[1]

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
nitpicky = True
myst_heading_anchors = 2

html_theme = "furo"
html_title = f"attsvm {release}"
html_copy_source = False
