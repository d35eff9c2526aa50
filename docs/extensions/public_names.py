"""``.. public-names:: attsvm.descent``: a table and the docstrings of all that a package exports, in its own groups.

``.. front-door::`` is the table alone, for the names at the top of `attsvm`, each linked to the page of its room.
The groups are the comments inside a package's ``__all__``, or its ``_GROUPS``. Names in docstrings become links where
they are known, and stay plain where they are not: types of other libraries are not linked, since the pages need no
network.
"""

import ast
import importlib
import inspect
import re
from collections.abc import Mapping
from enum import Enum

from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docutils import SphinxDirective

import attsvm


class PublicNames(SphinxDirective):
    """One section for each group, with a table of its names and then their docstrings."""

    required_arguments = 1

    def run(self):
        """The nodes of all groups."""
        package = importlib.import_module(self.arguments[0])
        lines = [f".. py:module:: {package.__name__}", "", *inspect.getdoc(package).splitlines(), ""]
        for title, names in groups(package):
            if title:
                lines += [title, "-" * len(title), ""]
            lines += [".. list-table::", "   :class: names", "   :widths: auto", ""]
            homes = {name: _home(package, name) for name in names}
            for name, home in homes.items():
                shown = f"`{name}`" if home is package else f":py:obj:`{name} <{home.__name__}.{name}>`"
                lines += [f"   * - {shown}", f"     - {_first_sentence(_described(home, name))}"]
            own = [name for name, home in homes.items() if home is package]
            lines += ["", *(line for name in own for line in _entry(package, name))]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


class FrontDoor(SphinxDirective):
    """One section for each group of names at the top of `attsvm`: a table with links to where each is documented."""

    def run(self):
        """The nodes of all groups."""
        lines = []
        for title, names in groups(attsvm):
            shown = [name for name in names if name in attsvm._HOMES]
            if not shown:
                continue
            lines += [title, "-" * len(title), "", ".. list-table::", "   :class: names", "   :widths: auto", ""]
            for name in shown:
                room = f"attsvm.{attsvm._HOMES[name]}"
                described = _described(importlib.import_module(room), name)
                lines += [f"   * - :py:obj:`attsvm.{name} <{room}.{name}>`", f"     - {_first_sentence(described)}"]
            lines.append("")
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def groups(package):
    """The names in ``__all__`` under the comments that group them; one group without a title where there are none."""
    if hasattr(package, "_GROUPS"):
        return [(title[:1].upper() + title[1:], names.split()) for title, (_, names) in package._GROUPS.items()]
    listed = re.search(r"^__all__ = \[(.*?)\]", inspect.getsource(package), re.MULTILINE | re.DOTALL)
    found = [("", [])]
    for comment, name in re.findall(r'# (.+)|"(\w+)"', listed[1]):
        if comment:
            found.append((comment[:1].upper() + comment[1:], []))
        else:
            found[-1][1].append(name)
    return [(title, names) for title, names in found if names]


def _home(package, name):
    """The package on whose page a name is described: `package`, unless it only passes on a name of `attsvm.sweep`."""
    passed_on = package is not attsvm.sweep and getattr(attsvm.sweep, name, None) is getattr(package, name)
    return attsvm.sweep if passed_on and name in attsvm.sweep.__all__ else package


def _described(package, name):
    """The docstring; of a constant, the string below it in the module that defines it."""
    value = getattr(package, name)
    if callable(value) and not hasattr(value, "__origin__"):
        return inspect.getdoc(value)
    imported = [node for node in ast.walk(ast.parse(inspect.getsource(package))) if isinstance(node, ast.ImportFrom)]
    homes = [node.module for node in imported if name in [alias.name for alias in node.names]]
    home = homes[0] if homes else package.__name__
    own = ModuleAnalyzer.for_module(home).find_attr_docs().get(("", name), [])
    plain = "Keys: " + ", ".join(f"``{key}``" for key in value) + "." if isinstance(value, Mapping) else f"``{value}``"
    return "\n".join(own) or plain


def _first_sentence(text):
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return _escaped(re.match(r"(?:``.*?``|.)*?(?:[.:;](?=\s|$)|$)", paragraph)[0].rstrip(":;"))


def _entry(package, name):
    value = getattr(package, name)
    if inspect.isclass(value):
        members = ["   :members:", *(["   :undoc-members:"] if issubclass(value, Enum) else [])]
        return [f".. autoclass:: {package.__name__}.{name}", *members, ""]
    if inspect.isroutine(value):
        return [f".. autofunction:: {package.__name__}.{name}", ""]
    text = _described(package, name).splitlines()
    return [f".. py:data:: {name}", "", *(f"   {line}" for line in text), ""]


_SECTION = re.compile(r"\s*(Arguments|Attributes|Returns|Raises):$")


def _as_rst(app, what, name, obj, options, lines):
    """Make plain docstrings good RST: formulas below a colon stay as they are, and ``|x|`` or ``x_*`` is only text."""
    literal = None
    for place, line in enumerate(lines):
        if line.strip() and literal is not None and _indent(line) <= literal:
            literal = None
        if literal is not None or line.lstrip().startswith((">>>", "...")):
            continue
        below = next((later for later in lines[place + 1 :] if later.strip()), "")
        lines[place] = _escaped(line)
        formula = place + 1 < len(lines) and not lines[place + 1] and _indent(below) > _indent(line)
        if formula and line.endswith((":", ",")) and not _SECTION.match(line):
            lines[place : place + 1] = [lines[place].rstrip(":") + ("::" if line.endswith(":") else " ::")]
            literal = _indent(line)
    lines[:] = re.sub(r",\n +(?=\w+: see)", ", ", "\n".join(lines)).split("\n")


def _indent(line):
    return len(line) - len(line.lstrip())


def _escaped(text):
    """`text` with every star, bar and final underscore as it is, but for code, emphasis and bullets."""
    kept = r"(``.+?``|`[^`]+`|\*\*.+?\*\*|\*[a-z]+\*|^ *\* )"
    parts = re.split(kept, text)
    return "".join(
        part if place % 2 else re.sub(r"[*|]|_(?=\W|$)", r"\\\g<0>", part) for place, part in enumerate(parts)
    )


def _plain(app, env, node, contnode):
    """Names of Python objects that this reference does not know are text."""
    return contnode if node.get("refdomain") == "py" else None


def setup(app):
    """Called by Sphinx."""
    app.add_directive("public-names", PublicNames)
    app.add_directive("front-door", FrontDoor)
    app.connect("autodoc-process-docstring", _as_rst, priority=100)  # before napoleon
    app.connect("missing-reference", _plain)
    return {"parallel_read_safe": True}
