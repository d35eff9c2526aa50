"""What PyPI shows: README.md with absolute links, and the addresses of the project.

Links in README.md are relative, as GitHub and editors want them; PyPI's page has no files beside it. Where the
environment names the repository, as GitHub's workflows do, the links lead to the files of this version there.
"""

import os
import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURES = (".gif", ".png")
RELATIVE = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)[^)\s]+")


def with_absolute_links(text, repository, tag):
    """Markdown whose relative links lead to files of `repository`, written ``owner/name``, at `tag`."""

    def absolute(found):
        if found[0].endswith(PICTURES):
            return f"https://raw.githubusercontent.com/{repository}/{tag}/{found[0]}"
        return f"https://github.com/{repository}/blob/{tag}/{found[0]}"

    return RELATIVE.sub(absolute, text)


class CustomMetadataHook(MetadataHookInterface):
    """Called by hatchling."""

    def update(self, metadata):
        """Fill in `readme` and `urls`."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["urls"] = {"Papers": "https://arxiv.org/abs/2308.16898"}
        if repository := os.environ.get("GITHUB_REPOSITORY"):
            owner, _, name = repository.partition("/")
            home = f"https://github.com/{repository}"
            tag = f"v{metadata['version']}"
            text = with_absolute_links(text, repository, tag)
            metadata["urls"] |= {
                "Repository": home,
                "Documentation": f"https://{owner}.github.io/{name}/",
                "Changelog": f"{home}/blob/{tag}/CHANGELOG.md",
                "Issues": f"{home}/issues",
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
