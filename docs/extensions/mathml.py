r"""Formulas as MathML, which browsers draw themselves: no script, no network.

Pages write ``$W z$`` within a sentence and a fence called ``math`` around a formula of its own, as GitHub does.
Commands that MathML has no element for, or that are misspelt, are errors. The font is STIX Two Math, cut down to the
characters of `CHARACTERS`.
"""

import logging
from pathlib import Path
from xml.etree import ElementTree

import ziamath
from docutils.nodes import SkipNode
from fontTools import subset
from latex2mathml.converter import convert

FONT = Path(ziamath.__file__).parent / "fonts" / "STIXTwoMath-Regular.ttf"
# Latin, Greek, punctuation, arrows, operators, floors and brackets, and the mathematical letters that browsers use.
CHARACTERS = (
    (0x20, 0x7E), (0xA0, 0xFF), (0x391, 0x3C9), (0x3D1, 0x3F5), (0x2010, 0x203F), (0x210B, 0x211D), (0x2190, 0x21D5),
    (0x2200, 0x22FF), (0x2308, 0x230B), (0x27E8, 0x27E9), (0x1D400, 0x1D467), (0x1D6FC, 0x1D71B),
)  # fmt: skip


_BELOW = {"msub": "munder", "msup": "mover", "msubsup": "munderover"}


def as_mathml(formula, display):
    r"""`formula`, written in LaTeX, as a MathML element; ValueError where a command is not known.

    The converter sets the limits of sums beside them, takes the sign of a transposed matrix for an operator, which
    browsers set apart from its letter, and lets bars grow. All three are put right here.
    """
    element = ElementTree.fromstring(convert(formula.strip(), display=display).replace(" xmlns=", " data-xmlns="))
    del element.attrib["data-xmlns"]
    for node in element.iter():
        if node.text and node.text.startswith("\\"):
            raise ValueError(f"no MathML for {node.text} in: {formula}")
        if node.tag == "mo" and node.text == "\N{DOWN TACK}":
            node.tag = "mi"
            node.set("mathvariant", "normal")
        if node.tag == "mo" and node.text in "‖|":
            node.set("stretchy", "false")  # as tall as its letter, not as the line
        if display == "block" and node.tag in _BELOW and node[0].text in ("∑", "max", "min"):
            node.tag = _BELOW[node.tag]
    element.set("xmlns", "http://www.w3.org/1998/Math/MathML")
    return ElementTree.tostring(element, encoding="unicode", short_empty_elements=False)


def _inline(writer, node):
    writer.body.append(as_mathml(node.astext(), "inline"))
    raise SkipNode


def _block(writer, node):
    writer.body.append(f'<div class="formula">{as_mathml(node.astext(), "block")}</div>\n')
    raise SkipNode


def write_font(path):
    """Write the part of the font that formulas need, as WOFF."""
    logging.getLogger("fontTools").setLevel(logging.ERROR)
    options = subset.Options(flavor="woff", layout_features=["*"], notdef_outline=True)
    font = subset.load_font(FONT, options)
    cut = subset.Subsetter(options)
    cut.populate(unicodes=[code for first, last in CHARACTERS for code in range(first, last + 1)])
    cut.subset(font)
    subset.save_font(font, path, options)


def _finish(app, error):
    if error is None and app.builder.format == "html":
        write_font(Path(app.outdir) / "_static" / "math.woff")


def setup(app):
    """Called by Sphinx."""
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))
    app.connect("build-finished", _finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
