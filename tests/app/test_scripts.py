"""The scripts of the page: which folder may import which, and the size of the whole."""

from __future__ import annotations

import re
from importlib.resources import files
from posixpath import dirname, join, normpath

import pytest

from attsvm.app import standalone_page

FOLDER = files("attsvm.app") / "playground"
SCRIPTS = {
    str(path.relative_to(FOLDER)): path.read_text(encoding="utf-8")  # type: ignore[attr-defined]
    for path in sorted(FOLDER.rglob("*.js"))  # type: ignore[attr-defined]
}
FORBIDDEN = {
    "maths": {"state", "view", "controls", "export", "words.js", "format.js", "mount.js"},
    "state": {"view", "controls", "export", "mount.js"},
    "view": {"state", "controls", "export", "mount.js"},
    "controls": {"mount.js"},
}
"""What the scripts of a folder reach neither themselves nor through what they import."""


def reached(script: str, sources: dict[str, str]) -> set[str]:
    """Every script that `script` imports, at any distance."""
    found: set[str] = set()
    waiting = [script]
    while waiting:
        at = waiting.pop()
        for target in re.findall(r'^(?:import|\}) .*from "([^"]+)";$', sources.get(at, ""), re.MULTILINE):
            other = normpath(join(dirname(at), target))
            if other not in found:
                found.add(other)
                waiting.append(other)
    return found


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_folders_import_one_way(folder: str) -> None:
    own = [name for name in SCRIPTS if name.startswith(f"{folder}/")]
    assert len(own) > 5
    wrong = {
        name: sorted(bad)
        for name in own
        if (bad := {other for other in reached(name, SCRIPTS) if other.split("/")[0] in FORBIDDEN[folder]})
    }
    assert wrong == {}


def test_an_import_through_another_script_is_seen() -> None:
    sources = {
        "state/a.js": 'import { b } from "../words.js";\n',
        "words.js": 'import {\n  c,\n} from "./view/c.js";\n',
    }
    assert reached("state/a.js", sources) == {"words.js", "view/c.js"}


def test_the_whole_page_stays_small() -> None:
    assert len(standalone_page().encode()) < 450_000
