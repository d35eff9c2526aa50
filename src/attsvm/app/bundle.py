"""The playground as one ES module: its files joined to a single text without imports, for page, server and widget.

The tests hold the files to what joining needs: names at top level that are unique over all of them, and no other forms
than ``import { a, b } from "./x.js"`` and ``export function|const|class``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import as_file, files
from posixpath import dirname, join, normpath

ENTRY = "main.js"
STYLE = "style.css"
IMPORT = re.compile(r'^import\s*\{([^}]*)\}\s*from\s*"([^"]+)"[ \t]*;?[ \t]*$\n?', re.MULTILINE)
EXPORT = re.compile(r"^export[ \t]+(?=(?:async[ \t]+)?function\b|const\b|class\b)", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*(?://[^\n]*|/\*.*?\*/[ \t]*)\n", re.MULTILINE | re.DOTALL)


@cache
def module_text() -> str:
    """The text of the whole playground as one ES module, style included.

    It exports ``mount(element, options)``, ``maths`` and, as default, anywidget's ``{ render }``, and imports
    nothing. The same files give the same text.

    Raises:
        ValueError: if a file of the installed playground is missing.
    """
    sources = read_parts()
    style = sources.pop(STYLE, None)
    if style is None:
        raise ValueError(f"the playground lacks {STYLE}; install attsvm again")
    return join_parts(sources, style)


def read_parts() -> dict[str, str]:
    """The texts of the installed playground's scripts and its style, by file name."""

    with as_file(files("attsvm.app") / "playground") as folder:
        paths = [path for path in sorted(folder.rglob("*")) if path.suffix == ".js" or path == folder / STYLE]
        return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def join_parts(sources: Mapping[str, str], style: str) -> str:
    """Join `sources`, texts by file name, to one module: dependencies first, without imports and the word export.

    Comments that have lines of their own stay in the files: a page that is sent around need not carry them. Parts may
    import ``styleText`` from ``./style.js``, which is made here from `style`.

    Raises:
        ValueError: if a file that another one imports is missing.
    """
    texts = {**sources, "style.js": f"export const styleText = {json.dumps(style, ensure_ascii=False)};\n"}
    joined: dict[str, str] = {}

    def visit(file: str, needed_by: str) -> None:
        if file in joined:
            return
        if file not in texts:
            raise ValueError(f"{needed_by} imports from {file}, which does not exist; install attsvm again")
        for _, target in IMPORT.findall(texts[file]):
            visit(normpath(join(dirname(file), target)), file)
        body = EXPORT.sub("", IMPORT.sub("", texts[file]))
        joined[file] = f"// ---- {file}\n{_COMMENT.sub('', body).strip()}\n"

    visit(ENTRY, "the playground")
    return "\n".join([*joined.values(), "export { maths, mount };\nexport default { render };\n"])
