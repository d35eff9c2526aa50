"""The playground as one ES module: its files joined to a single text without imports, for page, server and widget."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from posixpath import dirname, join, normpath

ENTRY = "main.js"
STYLE = "style.css"
EXPORTED = ("maths", "mount", "render")
"""What the parts must define; `render` becomes the default export that anywidget asks for."""

_IMPORT = re.compile(r'^import\s*\{([^}]*)\}\s*from\s*"([^"]+)"[ \t]*;?[ \t]*$\n?', re.MULTILINE)
_EXPORT = re.compile(r"^export[ \t]+(?=(?:async[ \t]+)?function\b|const\b|class\b)", re.MULTILINE)
_LEFT_OVER = re.compile(r"^(?:import\b(?![ \t]*\()|export\b).*$", re.MULTILINE)
_DECLARED = re.compile(
    r"^(export[ \t]+)?(?:(?:async[ \t]+)?function[ \t]*\*?|const|let|var|class)[ \t]+([A-Za-z_$][\w$]*)", re.MULTILINE
)
_PATTERN = re.compile(r"^(?:export[ \t]+)?(?:const|let|var)[ \t]*[\[{].*$", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*(?://[^\n]*|/\*.*?\*/[ \t]*)\n", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"[A-Za-z_$][\w$]*")


@dataclass(frozen=True)
class _Part:
    """One file: its imports (name -> file), the names it declares at top level and exports, and what is left of it."""

    file: str
    imports: Mapping[str, str]
    declared: tuple[str, ...]
    exported: frozenset[str]
    body: str


@cache
def module_text() -> str:
    """The text of the whole playground as one ES module, style included.

    It exports ``mount(element, options)``, ``maths`` and, as default, anywidget's ``{ render }``, and imports
    nothing. The same files give the same text.

    Raises:
        ValueError: if the installed parts cannot be joined.
    """
    sources = dict(_read(files("attsvm.app") / "playground", ""))
    style = sources.pop(STYLE, None)
    if style is None:
        raise ValueError(f"the playground lacks {STYLE}; install attsvm again")
    return join_parts(sources, style)


def join_parts(sources: Mapping[str, str], style: str) -> str:
    """Join `sources`, texts by file name, to one module: dependencies first, without imports and the word export.

    Comments that have lines of their own stay in the files: a page that is sent around need not carry them.

    Every name at top level must be unique over all parts, since they share one scope in the end. Parts may import
    ``styleText`` from ``./style.js``, which is made here from `style`.

    Raises:
        ValueError: on a duplicate name, an import that leads nowhere or in a circle, and any other form of import or
            export than ``import { a, b } from "./x.js"`` and ``export function|const|class``.
    """
    parts = {file: _parsed(file, text) for file, text in {**sources, "style.js": _style_part(style)}.items()}
    ordered = _ordered(parts)
    _check_names(ordered)
    known = {name for part in ordered for name in part.declared}
    missing = [name for name in EXPORTED if name not in known]
    if missing:
        raise ValueError(f"the parts must define {', '.join(EXPORTED)} at top level; {', '.join(missing)} is missing")
    pieces = [f"// ---- {part.file}\n{_COMMENT.sub('', part.body).strip()}\n" for part in ordered]
    text = "\n".join([*pieces, "export { maths, mount };\nexport default { render };\n"])
    for forbidden in ("</script", "<!--"):
        if forbidden in text.lower():
            raise ValueError(f"the parts must not contain {forbidden!r}: the text also stands inside an HTML page")
    return text


def _read(folder: Traversable, prefix: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for entry in sorted(folder.iterdir(), key=lambda each: each.name):
        if entry.is_dir():
            found += _read(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".js") or prefix + entry.name == STYLE:
            found.append((prefix + entry.name, entry.read_text(encoding="utf-8")))
    return found


def _style_part(style: str) -> str:
    return f"export const styleText = {json.dumps(style, ensure_ascii=False)};\n"


def _parsed(file: str, text: str) -> _Part:
    imports: dict[str, str] = {}
    for names, target in _IMPORT.findall(text):
        if not target.startswith(("./", "../")):
            raise ValueError(f"{file} imports {target!r}; parts import only one another, by ./ or ../")
        source = normpath(join(dirname(file), target))
        for name in filter(None, (each.strip() for each in names.split(","))):
            if not _NAME.fullmatch(name):
                raise ValueError(f"{file} imports {name!r} from {target!r}; parts import names as they are")
            imports[name] = source
    without = _IMPORT.sub("", text)
    for pattern in _PATTERN.findall(without):
        raise ValueError(f"{file} takes a value apart at top level, where names must stand alone: {pattern.strip()!r}")
    declared = _DECLARED.findall(without)
    body = _EXPORT.sub("", without)
    for line in _LEFT_OVER.findall(body):
        raise ValueError(
            f"{file} has an import or export that cannot be joined: {line.strip()!r}; write"
            ' import { a, b } from "./x.js" and export function, const or class'
        )
    exported = frozenset(name for export, name in declared if export)
    return _Part(file, imports, tuple(name for _, name in declared), exported, body)


def _ordered(parts: Mapping[str, _Part]) -> list[_Part]:
    """The parts that the entry needs, each after those it imports."""
    if ENTRY not in parts:
        raise ValueError(f"the parts must contain {ENTRY}; got {', '.join(sorted(parts)) or 'none'}")
    ordered: list[_Part] = []
    done: set[str] = set()

    def visit(file: str, way: tuple[str, ...]) -> None:
        if file in way:
            circle = " -> ".join((*way[way.index(file) :], file))
            raise ValueError(f"parts import one another in a circle: {circle}")
        if file in done:
            return
        part = parts[file]
        for name, source in part.imports.items():
            if source not in parts:
                raise ValueError(f"{file} imports {name} from {source}, which does not exist")
            if name not in parts[source].exported:
                raise ValueError(f"{file} imports {name} from {source}, which does not export it")
            visit(source, (*way, file))
        done.add(file)
        ordered.append(part)

    visit(ENTRY, ())
    return ordered


def _check_names(parts: list[_Part]) -> None:
    owner: dict[str, str] = {}
    for part in parts:
        for name in part.declared:
            if name in owner:
                raise ValueError(f"{name} is declared at top level in both {owner[name]} and {part.file}; rename one")
            owner[name] = part.file
