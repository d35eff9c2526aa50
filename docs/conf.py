"""Sphinx: MyST pages, a gallery that runs, a reference from docstrings; no network."""

import re
import sys
from pathlib import Path

import torch

_HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(_HERE / "extensions"))
_VERSION = re.search(
    r'^__version__ = "(.+)"', (_HERE.parent / "src/attsvm/__init__.py").read_text(encoding="utf-8"), re.MULTILINE
)
assert _VERSION is not None
torch.set_num_threads(1)  # the gallery's tensors are small: threads cost far more than they bring

project = "attsvm"
author = "The attsvm developers"
copyright = author  # noqa: A001
release = version = _VERSION[1]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
    "public_names",
    "mathml",
    "accessible",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "gallery", "extensions"]
nitpicky = True
suppress_warnings = ["ref.python"]  # a docstring may name an attribute that several classes have
myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath"]
myst_dmath_allow_space = False  # "$5 and $6" is no formula
myst_fence_as_directive = ["math"]  # as GitHub writes a formula of its own
html_math_renderer = "mathml"
default_role = "py:obj"
add_module_names = False
python_maximum_signature_line_length = 88

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
autosummary_generate = False
autosummary_ignore_module_all = False
napoleon_numpy_docstring = False
napoleon_attr_annotations = False
napoleon_use_ivar = True

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "examples",
    "filename_pattern": r"/\d\d_",
    "within_subsection_order": "FileNameSortKey",
    "image_scrapers": ("own_figures.scrape",),
    "reset_modules": (),
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
    "nested_sections": False,
    "min_reported_time": 3600,
    "abort_on_example_error": True,
}

html_theme = "furo"
html_title = f"attsvm {release}"
html_copy_source = False
html_favicon = "_static/icon.svg"
html_static_path = ["_static"]
html_css_files = ["attsvm.css"]
html_js_files = [("page.js", {"defer": "defer"}), ("idea.js", {"defer": "defer"})]


def setup(app):
    """Write the playground as one file beside the HTML pages; lead links to programs of the gallery to their pages."""

    def to_the_gallery(built, page, source):  # on GitHub the links lead to the programs themselves
        source[0] = source[0].replace("](gallery/README.rst)", "](examples/index)")
        source[0] = re.sub(r"\]\(gallery/(\w+)\.py\)", r"](examples/\1)", source[0])

    def write_playground(built, error):
        if error is None and built.builder.format == "html":
            from attsvm.app import write_page

            write_page(Path(built.outdir) / "playground-page.html", docs="./")

    app.connect("source-read", to_the_gallery)
    app.connect("build-finished", write_playground)
