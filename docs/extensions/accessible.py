"""Repairs of the HTML that Sphinx and its theme write, so that screen readers can read it.

Captions in the sidebar are headings without a level, and signatures of several lines are lists of definitions without
terms.
"""

import re

_SIGNATURE = re.compile(r'<dl>\n((?:<dd><em class="sig-param">.*?</dd>\n)+)</dl>\n?', re.DOTALL)


def _parameters(found):
    lines = found[1].replace("<dd>", '<span class="sig-line">').replace("</dd>", "</span>")
    return f'<span class="sig-lines">{lines}</span>'


def _repair(app, page, template, context, doctree):
    if "body" in context:
        context["body"] = _SIGNATURE.sub(_parameters, context["body"])
    for tree in ("furo_navigation_tree", "toctree"):
        if isinstance(context.get(tree), str):
            context[tree] = context[tree].replace('role="heading"', 'role="heading" aria-level="2"')


def setup(app):
    """Called by Sphinx."""
    app.connect("html-page-context", _repair, priority=900)  # after the theme
    return {"parallel_read_safe": True, "parallel_write_safe": True}
