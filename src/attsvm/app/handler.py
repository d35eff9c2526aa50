"""One request to the local server: who may send it, how it is answered, and with which sentence it is refused."""

from __future__ import annotations

import io
import json
import socket
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, NoReturn

from attsvm.app.certify import certify
from attsvm.app.page import CERTIFY_PATH

if TYPE_CHECKING:
    from attsvm.app.server import PlaygroundServer

MOST_BYTES = 256 * 1024
JAVASCRIPT = "text/javascript; charset=utf-8"
HTML = "text/html; charset=utf-8"
JSON = "application/json"

_DRAIN_SECONDS = 1.0


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
        except _SentNothingError:
            return
        self._let_go()

    def do_GET(self) -> None:
        """Answer with the page or one of its scripts; to HEAD without the content."""
        self._check_sender()
        self._send(HTTPStatus.OK, *self._content())

    do_HEAD = do_GET  # noqa: N815 - named by http.server

    def do_POST(self) -> None:
        """Answer with a certificate."""
        self._check_sender()
        self._send(HTTPStatus.OK, JSON, self._certificate())

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
            sentence = f"the Host header must name this server: open {self.server.address}"
            raise RefusedError(HTTPStatus.FORBIDDEN, sentence)
        for origin in self.headers.get_all("Origin", []):
            if origin.strip().lower() not in self.server.origins:
                raise RefusedError(HTTPStatus.FORBIDDEN, "requests from other origins are not answered")

    def _content(self) -> tuple[str, bytes]:
        path = self.path.partition("?")[0]
        if path == CERTIFY_PATH:
            raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, f"{CERTIFY_PATH} is asked by POST")
        if path not in self.server.contents:
            raise RefusedError(HTTPStatus.NOT_FOUND, f"nothing is here; the playground is at {self.server.address}")
        return self.server.contents[path]

    def _certificate(self) -> bytes:
        if self.path != CERTIFY_PATH:
            known = self.path in self.server.contents
            status = HTTPStatus.METHOD_NOT_ALLOWED if known else HTTPStatus.NOT_FOUND
            raise RefusedError(status, f"only {CERTIFY_PATH} is asked by POST")
        if self.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            raise RefusedError(HTTPStatus.FORBIDDEN, "requests from other sites are not answered")
        if self.headers.get_content_type() != JSON:
            raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the Content-Type must be {JSON}")
        request = parse_json(self._body())
        try:
            return json.dumps(certify(request), allow_nan=False).encode()
        except ValueError as error:
            raise RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from None

    def _body(self) -> bytes:
        lengths = self.headers.get_all("Content-Length", [])
        if "Transfer-Encoding" in self.headers or not lengths:
            raise RefusedError(HTTPStatus.LENGTH_REQUIRED, "the request must say its length in a Content-Length header")
        if len(lengths) != 1 or not (lengths[0].isascii() and lengths[0].isdigit()):
            raise RefusedError(HTTPStatus.BAD_REQUEST, "the Content-Length must be one whole number")
        # A number of a thousand digits is too large without being read.
        if len(lengths[0]) > 12 or int(lengths[0]) > MOST_BYTES:
            raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request may have at most {MOST_BYTES:,} bytes")
        body = self.rfile.read(int(lengths[0]))
        if len(body) < int(lengths[0]):
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
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = "POST" if self.path == CERTIFY_PATH else "GET, HEAD"
        for name, value in headers.items():
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


class _SentNothingError(Exception):
    """The connection brought no request; browsers open some in advance."""


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
            if not self._anything:
                raise _SentNothingError from None
            sentence = f"the request did not come within {self._seconds:g} seconds"
            raise RefusedError(HTTPStatus.REQUEST_TIMEOUT, sentence) from None
        self._anything = True
        return count


def parse_json(body: bytes) -> Any:
    """The content of a request: JSON as its standard has it, in UTF-8, without NaN and infinities, not too deep.

    Raises:
        RefusedError: with status 400.
    """
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError:
        sentence = "the request must be UTF-8"
    except RecursionError:
        sentence = "the request is nested too deeply"
    except ValueError as error:
        sentence = f"the request must be JSON: {str(error).partition(';')[0]}"
    raise RefusedError(HTTPStatus.BAD_REQUEST, sentence)


def refuse_client(connection: socket.socket, sentence: str) -> None:
    """Tell a client to try again later, without reading its request."""
    body = _error(sentence)
    head = (
        f"HTTP/1.1 503 Service Unavailable\r\nContent-Type: {JSON}\r\nContent-Length: {len(body)}\r\n"
        "Retry-After: 1\r\nConnection: close\r\n\r\n"
    )
    with suppress(OSError):
        connection.settimeout(0.1)
        connection.sendall(head.encode() + body)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _error(sentence: str) -> bytes:
    return json.dumps({"error": sentence}).encode()
