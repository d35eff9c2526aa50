"""Data flow one way: a folder imports only from the folders before it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import attsvm

SOURCE = Path(attsvm.__file__).parent
ORDER = (
    "data",
    "sweep",
    "norms",
    "attention",
    "svm",
    "descent",
    "theory",
    "heads",
    "experiments",
    "plots",
    "app",
    "cli",
)
FREE: set[str] = set()
FORBIDDEN = {("svm", "descent"), ("descent", "svm"), ("app", "cli")}


def imports(code: str, module: str) -> Iterator[tuple[int, str]]:
    """Line and full name of every import in the source of `module`, wherever it stands and however it is written."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.split(".")[: -node.level]
                base = ".".join([*package, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def wrong_arrows(code: str, module: str, public: dict[str, str]) -> list[str]:
    """Imports of `module` that point against the order; `public` says in which folder a name of the top level lives."""
    folder = module.split(".")[1]
    found = []
    for line, name in imports(code, module):
        parts = name.split(".")
        if parts[0] != "attsvm" or (len(parts) == 1 and name != "attsvm"):
            continue
        if name == "attsvm" and folder == "cli":
            continue  # commands use the front door, which loads a room when it is used
        target = parts[1] if len(parts) > 1 else "*"
        target = public.get(target, target)
        if target == folder or target == "__version__":
            continue
        if target not in ORDER:
            found.append(f"{module}:{line} imports {name}, which belongs to no folder")
        elif ORDER.index(target) > ORDER.index(folder) or (folder, target) in FORBIDDEN:
            found.append(f"{module}:{line} imports {name}: {folder} may not look at {target}")
    return found


def modules() -> list[tuple[str, Path]]:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if len(parts) > 1:
            found.append((".".join(("attsvm", *parts)), path))
    return found


def homes() -> dict[str, str]:
    """The folder in which each public name of the top level is defined."""
    known = {}
    for name in attsvm.__all__:
        module = getattr(getattr(attsvm, name), "__module__", "")
        if module.startswith("attsvm.") and len(module.split(".")) > 1:
            known[name] = module.split(".")[1]
    return known


def test_every_folder_has_its_place():
    folders = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert folders <= set(ORDER)


@pytest.mark.parametrize(("module", "path"), modules(), ids=lambda value: value if isinstance(value, str) else "")
def test_no_arrow_points_the_wrong_way(module, path):
    assert wrong_arrows(path.read_text(encoding="utf-8"), module, homes()) == []


@pytest.mark.parametrize("code", [
    "from attsvm.descent import fit",
    "import attsvm.descent.fit",
    "from attsvm import descent",
    "from attsvm import fit",
    "from attsvm import *",
    "import attsvm",
    "from ..descent import fit",
    "from ..descent.fit import fit",
    "from .. import descent",
    "def late():\n    from attsvm.descent import fit",
    "if True:\n    import attsvm.plots.style as style",
    "from attsvm.nowhere import something",
])  # fmt: skip
def test_the_walk_can_fail(code):
    assert wrong_arrows(code, "attsvm.attention.made_up", homes())


@pytest.mark.parametrize("code", [
    "from attsvm.data import TokenDataset",
    "from attsvm import TokenDataset",
    "from attsvm.data.checks import as_tensor",
    "from attsvm.attention.prediction_heads import Head",
    "from . import heads",
    "from ..norms import Nuclear",
    "import torch",
    "from attsvm import __version__",
])  # fmt: skip
def test_the_walk_can_pass(code):
    assert wrong_arrows(code, "attsvm.attention.made_up", homes()) == []


def test_svm_and_descent_do_not_know_each_other():
    assert wrong_arrows("from attsvm.svm import solve", "attsvm.descent.made_up", {})
    assert wrong_arrows("from attsvm.descent import fit", "attsvm.svm.made_up", {})
