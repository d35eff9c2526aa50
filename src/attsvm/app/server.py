"""The local server of the playground: bound to loopback, it serves one page and answers with certificates."""

from __future__ import annotations

import io
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, NoReturn

from attsvm.app.certify import certify
from attsvm.app.page import CERTIFY_PATH, MODULE_PATH, SERVER_START, START_PATH, module_text, policy, server_page

LOOPBACK = "127.0.0.1"
USUAL_PORT = 8484
"""Tried first where no port is asked for."""
NEXT_PORTS = 20
MOST_CLIENTS = 128
MOST_BYTES = 256 * 1024
SECONDS = 10.0
JAVASCRIPT = "text/javascript; charset=utf-8"
HTML = "text/html; charset=utf-8"
JSON = "application/json"
_DRAIN_SECONDS = 1.0


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
    # On Windows the first would let another program take the same port, and elsewhere the second.
    allow_reuse_address = os.name == "posix"
    allow_reuse_port = False

    def __init__(self, port: int = 0, state: Mapping[str, Any] | None = None, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self.policy = policy("'self'") + "; connect-src 'self'; frame-ancestors 'none'"
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
        TCPServer.server_bind(self)
        self.server_name, self.server_port = LOOPBACK, int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):  # this client is told so without its request being read
            body = _error(f"{MOST_CLIENTS} clients are being served; try again in a moment")
            head = f"Content-Type: {JSON}\r\nContent-Length: {len(body)}\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
            with suppress(OSError):
                request.settimeout(0.1)
                request.sendall(f"HTTP/1.1 503 Service Unavailable\r\n{head}".encode() + body)
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


class RefusedError(Exception):
    """A request is refused, with a status from 400 to 499 and a sentence that says why."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Handler(BaseHTTPRequestHandler):
    """Answers one request, then closes the connection."""

    protocol_version = "HTTP/1.1"
    default_request_version = "HTTP/1.0"  # a request line without a version is answered with headers all the same
    server_version = "attsvm"
    sys_version = ""
    server: PlaygroundServer

    # http.server sets these when it has read a request line, but a request may be refused before that.
    command = path = requestline = ""
    request_version = "HTTP/1.0"

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.seconds)
        self.rfile.close()
        self.rfile = io.BufferedReader(_WithinSeconds(self.connection, self.server.seconds))

    def handle(self) -> None:
        try:
            self.handle_one_request()
        except RefusedError as refused:
            self._send(refused.status, JSON, _error(str(refused)))
        self._let_go()

    def do_GET(self) -> None:
        """Answer with the page or one of its scripts; to HEAD without the content."""
        self._check_sender()
        path = self.path.partition("?")[0]
        if path == CERTIFY_PATH:
            raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, f"{CERTIFY_PATH} is asked by POST")
        if path not in self.server.contents:
            raise RefusedError(HTTPStatus.NOT_FOUND, f"nothing is here; the playground is at {self.server.address}")
        self._send(HTTPStatus.OK, *self.server.contents[path])

    do_HEAD = do_GET  # noqa: N815 - named by http.server

    def do_POST(self) -> None:
        """Answer with a certificate."""
        self._check_sender()
        if self.path != CERTIFY_PATH:
            status = HTTPStatus.METHOD_NOT_ALLOWED if self.path in self.server.contents else HTTPStatus.NOT_FOUND
            raise RefusedError(status, f"only {CERTIFY_PATH} is asked by POST")
        if self.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            raise RefusedError(HTTPStatus.FORBIDDEN, "requests from other sites are not answered")
        if self.headers.get_content_type() != JSON:
            raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the Content-Type must be {JSON}")
        request = parse_json(self._body())
        try:
            answer = json.dumps(certify(request), allow_nan=False).encode()
        except ValueError as error:
            raise RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from None
        self._send(HTTPStatus.OK, JSON, answer)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what http.server itself refuses: requests it cannot read, and methods we do not have."""
        status = HTTPStatus(code)
        if status is HTTPStatus.NOT_IMPLEMENTED:
            status, message = HTTPStatus.METHOD_NOT_ALLOWED, "only GET, HEAD and POST are answered here"
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:  # such as a version of HTTP that we do not speak
            status = HTTPStatus.BAD_REQUEST
        self._send(status, JSON, _error(message or status.phrase))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - named by http.server
        """Print nothing: the terminal shows only the address."""

    def _check_sender(self) -> None:
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or hosts[0].strip().lower() not in self.server.hosts:
            where = self.server.address
            raise RefusedError(HTTPStatus.FORBIDDEN, f"the Host header must name this server: open {where}")
        for origin in self.headers.get_all("Origin", []):
            if origin.strip().lower() not in self.server.origins:
                raise RefusedError(HTTPStatus.FORBIDDEN, "requests from other origins are not answered")

    def _body(self) -> bytes:
        lengths = self.headers.get_all("Content-Length", [])
        if "Transfer-Encoding" in self.headers or not lengths:
            raise RefusedError(HTTPStatus.LENGTH_REQUIRED, "the request must say its length in a Content-Length header")
        if len(lengths) != 1 or not (lengths[0].isascii() and lengths[0].isdigit()):
            raise RefusedError(HTTPStatus.BAD_REQUEST, "the Content-Length must be one whole number")
        # A number of a thousand digits is too large without being read.
        if len(lengths[0]) > 12 or int(lengths[0]) > MOST_BYTES:
            raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request may have at most {MOST_BYTES:,} bytes")
        if len(body := self.rfile.read(int(lengths[0]))) < int(lengths[0]):
            raise RefusedError(HTTPStatus.BAD_REQUEST, "the request ended before its Content-Length")
        return body

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": kind, "Content-Length": str(len(body)), "Content-Security-Policy": self.server.policy,
            "X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
            "Connection": "close",
        }  # fmt: skip
        allowed = {"Allow": "POST" if self.path == CERTIFY_PATH else "GET, HEAD"}
        for name, value in (headers | (allowed if status is HTTPStatus.METHOD_NOT_ALLOWED else {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _let_go(self) -> None:
        """Read for a moment what the client still sends; otherwise the system would cut off the answer."""
        end = time.monotonic() + _DRAIN_SECONDS
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            while (left := end - time.monotonic()) > 0:
                self.connection.settimeout(left)
                if not self.connection.recv(65536):
                    break


class _WithinSeconds(io.RawIOBase):
    """Reads from a connection for so many seconds in all, however slowly the bytes arrive."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection, self._seconds = connection, seconds
        self._end, self._anything = time.monotonic() + seconds, False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(max(self._end - time.monotonic(), 1e-3))
        try:
            count = self._connection.recv_into(buffer)
        except TimeoutError:
            if not self._anything:  # browsers open connections in advance; one that brings no request is at its end
                return 0
            late = f"the request did not come within {self._seconds:g} seconds"
            raise RefusedError(HTTPStatus.REQUEST_TIMEOUT, late) from None
        self._anything = True
        return count


def parse_json(body: bytes) -> Any:
    """The content of a request: JSON as its standard has it, in UTF-8, without NaN and infinities, not too deep."""
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError:
        sentence = "the request must be UTF-8"
    except RecursionError:
        sentence = "the request is nested too deeply"
    except ValueError as error:
        sentence = f"the request must be JSON: {str(error).partition(';')[0]}"
    raise RefusedError(HTTPStatus.BAD_REQUEST, sentence)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _error(sentence: str) -> bytes:
    return json.dumps({"error": sentence}).encode()
