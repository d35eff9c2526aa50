"""The picture of the house in CONTRIBUTING.md is true: rooms import along its arrows, and every arrow is used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import attsvm

SOURCE = Path(attsvm.__file__).parent
ROOT = Path(__file__).parent.parent
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def drawn(text: str) -> set[tuple[str, str]]:
    """The arrows (from, to) of the picture.

    >>> sorted(drawn("```mermaid\\nflowchart LR\\n    a & b --> c\\n    c --> d\\n```"))
    [('a', 'c'), ('b', 'c'), ('c', 'd')]
    """
    (picture,) = re.findall(r"^```mermaid\nflowchart LR\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    sides = [[re.findall(r"\w+", side) for side in line.split("-->")] for line in picture.splitlines()]
    return {(one, other) for left, right in sides for one in left for other in right}


ARROWS = drawn(CONTRIBUTING)
ROOMS = {room for arrow in ARROWS for room in arrow}


@cache
def before(room: str) -> frozenset[str]:
    """Every room from which a way along the arrows leads to `room`."""
    nearest = {one for one, other in ARROWS if other == room}
    return frozenset(nearest.union(*map(before, nearest)))


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


def rooms_imported(code: str, module: str) -> Iterator[tuple[int, str, str]]:
    """Line, full name and room of every import from another room; "*" for the package as a whole."""
    for line, name in imports(code, module):
        parts = name.split(".")
        if parts[0] == "attsvm" and parts[1:] != ["__version__"]:
            target = parts[1] if len(parts) > 1 else "*"
            room = attsvm._HOMES.get(target, target)
            if room != module.split(".")[1]:
                yield line, name, room


def wrong_arrows(code: str, module: str) -> list[str]:
    """Imports of `module` that no way along the arrows allows."""
    room = module.split(".")[1]
    found = []
    for line, name, target in rooms_imported(code, module):
        if name == "attsvm" and room == "cli":
            continue  # commands use the front door, which loads a room when it is used
        if target not in before(room):
            found.append(f"{module}:{line} imports {name}: no arrow leads from {target} to {room}")
    return found


def modules() -> list[tuple[str, Path]]:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if len(parts) > 1:
            found.append((".".join(("attsvm", *parts)), path))
    return found


def test_the_picture_shows_every_room_and_no_way_round():
    assert {path.parent.name for path in SOURCE.glob("*/__init__.py")} == ROOMS
    assert all(room not in before(room) for room in ROOMS)


def test_every_arrow_is_used():
    used = {
        (target, module.split(".")[1])
        for module, path in modules()
        for _, _, target in rooms_imported(path.read_text(encoding="utf-8"), module)
    }
    assert ARROWS - used == set()


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_rooms_import_along_the_arrows(room):
    inside = [(module, path) for module, path in modules() if module.split(".")[1] == room]
    assert inside
    assert [line for module, path in inside for line in wrong_arrows(path.read_text(encoding="utf-8"), module)] == []


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
    assert wrong_arrows(code, "attsvm.svm.made_up")


@pytest.mark.parametrize("code", [
    "from attsvm.data import TokenDataset",
    "from attsvm import TokenDataset",
    "from attsvm.data.checks import as_tensor",
    "from attsvm.attention.prediction_heads import Head",
    "from . import solvers",
    "from ..norms import Nuclear",
    "import torch",
    "from attsvm import __version__",
])  # fmt: skip
def test_the_walk_can_pass(code):
    assert wrong_arrows(code, "attsvm.svm.made_up") == []


def test_svm_and_descent_do_not_know_each_other():
    assert wrong_arrows("from attsvm.svm import solve", "attsvm.descent.made_up")
    assert wrong_arrows("from attsvm.descent import fit", "attsvm.svm.made_up")


def named_paths(text: str) -> set[str]:
    """Files and folders that a text names in backticks, code blocks left out."""
    words = re.findall(r"`([\w./]+)`", re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL))
    return {word for word in words if "/" in word or re.search(r"\.(py|md|toml|txt)$", word)}


def test_every_path_that_contributors_are_sent_to_exists():
    paths = named_paths(CONTRIBUTING)
    assert len(paths) > 20
    assert [path for path in sorted(paths) if not ((ROOT / path).exists() or (SOURCE / path).exists())] == []


def test_every_room_is_described():
    rows = re.findall(r"^\| `(\w+)` \|.*\| `(\w+)/\S+` \|$", CONTRIBUTING, re.MULTILINE)
    assert {room for room, _ in rows} == ROOMS
    assert all(room == begin for room, begin in rows)
