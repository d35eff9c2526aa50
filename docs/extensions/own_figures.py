"""Pictures for the gallery: every Matplotlib figure that a block of an example binds to a name."""

from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst


def scrape(block, block_vars, gallery_conf):
    """Save the figures that are new since the last block of the same example, and show them."""
    seen = block_vars["example_globals"].setdefault("_figures_shown", [])
    fresh = [
        value
        for name, value in block_vars["example_globals"].items()
        if isinstance(value, Figure) and not any(value is other for other in seen)
    ]
    paths = []
    for figure, path in zip(fresh, block_vars["image_path_iterator"], strict=False):
        figure.savefig(path, dpi=130, bbox_inches="tight")
        seen.append(figure)
        paths.append(path)
    return figure_rst(paths, gallery_conf["src_dir"])
