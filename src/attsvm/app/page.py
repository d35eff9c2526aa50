"""The playground as one ES module, and as an HTML page: a self-contained file, or the page of the local server.

The module joins the playground's files to a single text without imports, for page, server and widget. The tests hold
the files to what joining needs: names at top level that are unique over all of them, and no other forms than
``import { a, b } from "./x.js"`` and ``export function|const|class``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Mapping
from functools import cache
from html import escape
from importlib.metadata import PackageNotFoundError, metadata
from importlib.resources import as_file, files
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any

from attsvm.data.files import write_atomically

ENTRY = "main.js"
STYLE = "style.css"
IMPORT = re.compile(r'^import\s*\{([^}]*)\}\s*from\s*"([^"]+)"[ \t]*;?[ \t]*$\n?', re.MULTILINE)
EXPORT = re.compile(r"^export[ \t]+(?=(?:async[ \t]+)?function\b|const\b|class\b)", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*(?://[^\n]*|/\*.*?\*/[ \t]*)\n", re.MULTILINE | re.DOTALL)
MODULE_PATH = "/playground.js"
START_PATH = "/start.js"
CERTIFY_PATH = "/certify"

_STYLE = "html, body { margin: 0; height: 100%; } #playground { min-height: 100%; }"
_NO_SCRIPT = "The playground draws and computes in the browser, with JavaScript, which is switched off here."

# The page reads the address itself: a state in it comes first, since it is what the reader last saw or was sent.
_START = """\
const element = document.getElementById("playground");
const given = document.getElementById("state");
const state = JSON.parse(given.textContent) ?? undefined;
const address = location.hash;
"""
_STATIC_START = f"""\
{{
{_START}element.playground = mount(element, {{ state, address, host: "static" }});
}}
"""
SERVER_START = f"""\
import {{ mount }} from "{MODULE_PATH}";
{_START}
async function certify(problem, selected, norm, weights) {{
  const answer = await fetch("{CERTIFY_PATH}", {{
    method: "POST",
    headers: {{ "Content-Type": "application/json" }},
    body: JSON.stringify({{ problem, selected, norm, weights }}),
  }});
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.error);
  return content;
}}

element.playground = mount(element, {{ state, address, host: "server", certify }});
"""
"""What the server's page runs: mounts the playground and asks Python for certificates."""


def standalone_page(state: Mapping[str, Any] | None = None, docs: str | None = None) -> str:
    """One HTML file that is the whole playground: no other file, no server, no network.

    It works from a disk, where browsers refuse to load modules: the module is part of the page. Its content security
    policy admits that one script and nothing else.

    Arguments:
        state: what the page shows first, where its address names nothing else; None means the playground's own choice.
        docs: the folder of the documentation, relative to the page or absolute, to which the page links; None means the
            address that the installed package names, if any.
    """
    script = f"\n{module_text()}\n{_STATIC_START}"
    meta = f'<meta http-equiv="Content-Security-Policy" content="{escape(policy(_hash(script)))}">\n'
    return _page(meta, f'<script type="module">{script}</script>', state, docs)


def server_page(state: Mapping[str, Any] | None = None) -> str:
    """The page that the local server serves; its scripts come from the server."""
    return _page("", f'<script type="module" src="{START_PATH}"></script>', state, None)


def write_page(path: str | os.PathLike[str], state: Mapping[str, Any] | None = None, docs: str | None = None) -> Path:
    """Write `standalone_page` to a file; a reader never sees half of it.

    Raises:
        ValueError: if the name does not end in .html or .htm, or is a folder's.
        OSError: if it cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        ending = path.suffix or "no suffix"
        raise ValueError(f"{path} must end in .html, so that browsers open it as a page; got {ending!r}")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file in it, such as {path / 'playground.html'}")
    text = standalone_page(state, docs)
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_atomically(path, text.encode())


def _page(meta: str, script: str, state: Mapping[str, Any] | None, docs: str | None) -> str:
    # In JSON the sign < can only stand in a string, where it may be written as an escape; so no tag can begin here.
    content = json.dumps(state, allow_nan=False).replace("<", "\\u003c")
    docs = docs or _documentation()
    place = f' data-docs="{escape(docs)}"' if docs else ""
    return f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
{meta}<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>attsvm playground: drag a token, watch attention choose</title>
<link rel="icon" href="data:,">
<style>{_STYLE}</style>
</head>
<body>
<div id="playground"{place}></div>
<noscript><p>{_NO_SCRIPT}</p></noscript>
<script type="application/json" id="state">{content}</script>
{script}
</body>
</html>
"""


def _documentation() -> str | None:
    """The address of the documentation that the installed package names; None where it names none."""
    try:
        named = metadata("attsvm").get_all("Project-URL") or []
    except PackageNotFoundError:  # run from its sources
        return None
    return dict(each.split(", ", 1) for each in named).get("Documentation")


def policy(script: str) -> str:
    """The content security policy of a page that runs the scripts of this source alone."""
    rules = f"default-src 'none'; script-src {script}; style-src {_hash(_STYLE)}; img-src data: blob:"
    return f"{rules}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def module_text() -> str:
    """The text of the whole playground as one ES module, style included; a ValueError if one of its files is missing.

    It exports ``mount(element, options)``, ``maths`` and, as default, anywidget's ``{ render }``, and imports nothing.
    """
    sources = read_parts()
    if (style := sources.pop(STYLE, None)) is None:
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
