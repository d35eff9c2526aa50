"""What the files of the playground must keep to, so that `attsvm.app.page` can join them to one module."""

from __future__ import annotations

import re
from collections.abc import Mapping
from posixpath import dirname, join, normpath

from attsvm.app.page import ENTRY, EXPORT, IMPORT

EXPORTED = ("maths", "mount", "render")  # `render` becomes the default export that anywidget asks for
_LEFT_OVER = re.compile(r"^(?:import\b(?![ \t]*\()|export\b).*$", re.MULTILINE)
_DECLARED = re.compile(
    r"^(export[ \t]+)?(?:(?:async[ \t]+)?function[ \t]*\*?|const|let|var|class)[ \t]+([A-Za-z_$][\w$]*)", re.MULTILINE
)
_PATTERN = re.compile(r"^(?:export[ \t]+)?(?:const|let|var)[ \t]*[\[{].*$", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z_$][\w$]*")


def check_joinable(sources: Mapping[str, str]) -> None:
    """Raise ValueError on a duplicate name, an import that leads nowhere or in a circle, or another form of either."""
    texts = {**sources, "style.js": "export const styleText = 0;\n"}
    imports = {file: _imports(file, text) for file, text in texts.items()}
    declared = {file: _declared(file, IMPORT.sub("", text)) for file, text in texts.items()}
    if ENTRY not in texts:
        raise ValueError(f"the parts must contain {ENTRY}")
    for file, names in imports.items():
        for name, source in names.items():
            if source not in texts:
                raise ValueError(f"{file} imports {name} from {source}, which does not exist")
            if not declared[source].get(name):
                raise ValueError(f"{file} imports {name} from {source}, which does not export it")
    _check_no_circle(imports, ENTRY, ())
    owner: dict[str, str] = {}
    for file, names in declared.items():
        for name in names:
            if name in owner:
                raise ValueError(f"{name} is declared at top level in both {owner[name]} and {file}; rename one")
            owner[name] = file
    missing = [name for name in EXPORTED if name not in owner]
    if missing:
        raise ValueError(f"the parts must define {', '.join(EXPORTED)} at top level; {', '.join(missing)} is missing")
    for forbidden in ("</script", "<!--"):
        if any(forbidden in text.lower() for text in texts.values()):
            raise ValueError(f"the parts must not contain {forbidden!r}: the text also stands inside an HTML page")


def _imports(file: str, text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for names, target in IMPORT.findall(text):
        if not target.startswith(("./", "../")):
            raise ValueError(f"{file} imports {target!r}; parts import only one another, by ./ or ../")
        for name in filter(None, (each.strip() for each in names.split(","))):
            if not _NAME.fullmatch(name):
                raise ValueError(f"{file} imports {name!r} from {target!r}; parts import names as they are")
            found[name] = normpath(join(dirname(file), target))
    return found


def _declared(file: str, text: str) -> dict[str, bool]:
    """The names at top level, and whether each is exported."""
    for pattern in _PATTERN.findall(text):
        raise ValueError(f"{file} takes a value apart at top level, where names must stand alone: {pattern.strip()!r}")
    for line in _LEFT_OVER.findall(EXPORT.sub("", text)):
        raise ValueError(f"{file} has an import or export that cannot be joined: {line.strip()!r}")
    found: dict[str, bool] = {}
    for export, name in _DECLARED.findall(text):
        if name in found:
            raise ValueError(f"{name} is declared at top level in both {file} and {file}; rename one")
        found[name] = bool(export)
    return found


def _check_no_circle(imports: Mapping[str, Mapping[str, str]], file: str, way: tuple[str, ...]) -> None:
    if file in way:
        raise ValueError(f"parts import one another in a circle: {' -> '.join((*way[way.index(file) :], file))}")
    for source in dict.fromkeys(imports[file].values()):
        _check_no_circle(imports, source, (*way, file))
