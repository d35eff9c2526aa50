"""The playground: drag a token, watch attention choose; in a browser, a notebook, or a single file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attsvm.app.page import standalone_page, write_page
from attsvm.app.server import PlaygroundServer, open_server

if TYPE_CHECKING:
    from attsvm.app.widget import Playground

__all__ = ["Playground", "PlaygroundServer", "open_server", "standalone_page", "write_page"]


def __getattr__(name: str) -> Any:
    # The widget needs anywidget, an optional package; nobody else should.
    if name == "Playground":
        from attsvm.app.widget import Playground

        return Playground
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
