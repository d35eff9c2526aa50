"""The local server of the playground: bound to loopback, it serves one page and answers with certificates."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from http.server import ThreadingHTTPServer
from typing import Any

from attsvm.app.bundle import module_text
from attsvm.app.handler import HTML, JAVASCRIPT, Handler, refuse_client
from attsvm.app.page import MODULE_PATH, SERVER_START, START_PATH, server_page, server_policy

LOOPBACK = "127.0.0.1"
USUAL_PORT = 8484
"""Tried first where no port is asked for."""
NEXT_PORTS = 20
MOST_CLIENTS = 128
SECONDS = 10.0


class PlaygroundServer(ThreadingHTTPServer):
    """Serves the playground at `address`, to this machine alone.

    A request must name this server as its host, and, where it names an origin, this server as its origin: another site
    open in the same browser can neither read the page nor ask for certificates. Nothing is read from the disk while
    serving. At most `MOST_CLIENTS` connections are served at a time; a further client is told to try again.

    Arguments:
        port: 0 lets the system choose.
        state: what the page shows first; None means the playground's own choice.
        seconds: time a client has to send its whole request.

    Raises:
        OSError: if the port is taken or may not be used.
    """

    daemon_threads = True
    request_queue_size = 128
    # On Windows the option would let another program take the same port.
    allow_reuse_address = os.name == "posix"

    def __init__(self, port: int = 0, state: Mapping[str, Any] | None = None, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self.policy = server_policy()
        self.contents = {
            "/": (HTML, server_page(state).encode()),
            START_PATH: (JAVASCRIPT, SERVER_START.encode()),
            MODULE_PATH: (JAVASCRIPT, module_text().encode()),
        }
        self._places = threading.BoundedSemaphore(MOST_CLIENTS)
        super().__init__((LOOPBACK, port), Handler)
        names = [f"{name}:{self.server_port}" for name in (LOOPBACK, "localhost")]
        self.hosts = frozenset(names + ([LOOPBACK, "localhost"] if self.server_port == 80 else []))
        self.origins = frozenset(f"http://{host}" for host in self.hosts)

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{LOOPBACK}:{self.server_port}/"

    def server_bind(self) -> None:
        # HTTPServer asks the name service for its own name here, which can take seconds and tells us nothing.
        if self.allow_reuse_address:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind((LOOPBACK, int(self.server_address[1])))
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = LOOPBACK, int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            refuse_client(request, f"{MOST_CLIENTS} clients are being served; try again in a moment")
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no new thread can be started; anything else comes after the start, which then gives back
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that hangs up, or whose socket Ctrl-C closes under its thread, is no error of ours; anything else is
        # a bug and shows its traceback.
        error = sys.exc_info()[1]
        closed = isinstance(error, ValueError) and "closed file" in str(error)
        if not closed and not isinstance(error, OSError):
            super().handle_error(request, client_address)


def open_server(port: int | None = None, state: Mapping[str, Any] | None = None) -> PlaygroundServer:
    """A server on `port`, or, if None, on `USUAL_PORT` or the next free one.

    Raises:
        ValueError: if `port` is no port, or cannot be used; the message names one that can.
    """
    if port is None:
        for candidate in range(USUAL_PORT, USUAL_PORT + NEXT_PORTS):
            with suppress(OSError):
                return PlaygroundServer(candidate, state)
        return PlaygroundServer(0, state)
    if not 0 <= port <= 65535:
        raise ValueError(f"port must lie in 0..65535; got {port}")
    try:
        return PlaygroundServer(port, state)
    except OSError as error:
        with PlaygroundServer(0) as other:
            free = other.server_port
        reason = (error.strerror or str(error)).lower()
        raise ValueError(f"port {port} cannot be used ({reason}); {free} is free, or leave the port out") from None
