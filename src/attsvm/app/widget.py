"""The playground as a widget for Jupyter and marimo that exchanges its state with Python in both directions."""

from __future__ import annotations

from typing import Any

from attsvm.app.certify import certify
from attsvm.app.page import module_text
from attsvm.app.problem import data_to_state, problem_to_data
from attsvm.data import StartingPoints, TokenDataset

try:
    import anywidget
    import traitlets
except ImportError as error:
    raise ImportError("attsvm.app.Playground needs the package anywidget: pip install 'attsvm[app]'") from error


class Playground(anywidget.AnyWidget):  # type: ignore[misc]
    """The playground as a notebook widget: Python reads what is dragged in the page, the page shows what Python sets.

    Arguments:
        data: a token data set in the plane to show first, or None for the playground's own choice. Built-in examples
            (`attsvm.data.example`) are shown as the preset of their name, with its advice.
        starting: starting points of descent, such as `attsvm.data.starting_points` gives, or None for those of the
            preset, or zero.

    Attributes:
        state: everything that is on the page, as plain JSON; set it, or observe it with ``observe(f, "state")``.
        selected: the token that descent selects in each input, counted from 0; the page sets it.

    Raises:
        ValueError: if data or state do not fit the page, whenever they are set.
        ImportError: if anywidget is not installed.
    """

    _esm = module_text()
    state = traitlets.Dict().tag(sync=True)
    selected = traitlets.List(traitlets.Int()).tag(sync=True)

    def __init__(self, data: TokenDataset | None = None, starting: StartingPoints | None = None, **traits: Any) -> None:
        if data is not None:
            traits["state"] = data_to_state(data, starting)
        super().__init__(**traits)
        self.on_msg(_answer)

    @property
    def data(self) -> TokenDataset:
        """The token data set on the page; setting it keeps settings and view.

        Raises:
            ValueError: before the page has opened, if nothing was given to show.
        """
        if not self.state:
            raise ValueError("the playground has not been shown yet and was given no data; show it, or set data")
        return problem_to_data(self.state["problem"])

    @data.setter
    def data(self, data: TokenDataset) -> None:
        fresh = data_to_state(data)
        same = self.state.get("problem", {}).get("kind") == fresh["problem"]["kind"]
        kept = {name: self.state[name] for name in ("settings", "view") if same and name in self.state}
        # A preset's advice is about its own settings.
        self.state = {**fresh, **kept, "preset": None if "settings" in kept else fresh["preset"]}

    @traitlets.validate("state")  # type: ignore[untyped-decorator]
    def _checked(self, proposal: Any) -> dict[str, Any]:
        state: dict[str, Any] = proposal["value"]
        if state:
            problem_to_data(state.get("problem"))
        return state


def _answer(widget: Playground, content: Any, _: Any) -> None:
    """Answer the page's request for a certificate."""
    if not isinstance(content, dict) or content.get("kind") != "certify":
        return
    reply = {"kind": "certificate", "id": content.get("id")}
    try:
        widget.send({**reply, "certificate": certify(content)})
    except ValueError as error:
        widget.send({**reply, "error": str(error)})
