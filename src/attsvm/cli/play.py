"""`attsvm play`: the playground in the browser."""

from __future__ import annotations

import contextlib
import os
import threading
import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer

import attsvm
from attsvm.cli.common.inputs import load_data
from attsvm.cli.common.options import flag, listed, option
from attsvm.cli.common.registry import EXAMPLES

USUAL_PORT = 8484  # that of `attsvm.app.server`

_FIRST = f"What to show first: a .npz or .safetensors file in the plane, or one of: {listed(EXAMPLES)}."
Data = Annotated[str | None, typer.Argument(metavar="DATA", help=_FIRST)]
_PORT = f"Port on this machine; {USUAL_PORT} or the next free one if not given, any free one for 0."
Port = Annotated[int | None, option("--port", "N", _PORT)]
NoBrowser = Annotated[bool, flag("--no-browser", "Print the address and open nothing.")]
Export = Annotated[Path | None, option("--export", "FILE.html", "Write one file that needs no server, and exit.")]


def play(data: Data = None, port: Port = None, no_browser: NoBrowser = False, export: Export = None) -> None:
    """Open the playground: drag tokens, and watch descent and the max-margin solutions follow.

    The page comes from a small server on this machine that answers nobody else and ends with Ctrl-C. Beside its own
    numbers the page shows Python's solution with its certificate. A port that is given but taken is an error; if none
    is given, the next free one is used.
    """
    state = None if data is None else _state(data)
    if export is not None:
        if port is not None or no_browser:
            raise ValueError("--port and --no-browser do nothing with --export; leave them out")
        typer.echo(f"The playground is in {attsvm.app.write_page(export, state)}")
        return
    with attsvm.app.open_server(port, state) as server:
        if port is None and server.server_port != USUAL_PORT:
            typer.echo(f"Port {USUAL_PORT} is taken; this is the next free one.")
        typer.echo(f"The playground is at {server.address} (Ctrl-C ends it)")
        if not no_browser:
            threading.Thread(target=_open, args=(server.address,), daemon=True).start()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            typer.echo("\nThe playground has ended.")


def _state(name: str) -> dict[str, Any]:
    from attsvm.app.problem import PRESET_OPTIONS, data_to_state

    loaded = attsvm.data.example(name, **PRESET_OPTIONS.get(name, {})) if name in EXAMPLES else load_data(name)
    try:
        return data_to_state(loaded)
    except ValueError as error:
        raise ValueError(f"DATA {name} cannot be shown: {error}") from None


def _open(address: str) -> None:
    """Open a browser, in a thread: some commands that open one wait until it is closed."""
    with contextlib.suppress(webbrowser.Error):
        browser = webbrowser.get()
        # Where there is no screen Python offers browsers for the terminal, which this page cannot use.
        usable = type(browser) is not webbrowser.GenericBrowser or "BROWSER" in os.environ
        if usable and browser.open(address):
            return
    typer.echo("No browser could be opened here; open the address yourself.")
