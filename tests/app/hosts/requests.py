"""Speaking HTTP to a local server, politely and not."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from attsvm.app import PlaygroundServer
from attsvm.app.problem import data_to_problem
from attsvm.data import example

QUESTION = {"problem": data_to_problem(example("single-input-local")), "selected": [0], "norm": "frobenius"}


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@contextmanager
def serving(**options: Any) -> Iterator[PlaygroundServer]:
    """A server in a thread."""
    with PlaygroundServer(0, **options) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(
    server: PlaygroundServer, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> Answer:
    """One request by the rules."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())
    finally:
        connection.close()


def certificate(server: PlaygroundServer, body: bytes, headers: dict[str, str] | None = None) -> Answer:
    """Ask for a certificate."""
    return ask(server, "POST", "/certify", body, {"Content-Type": "application/json", **(headers or {})})


def raw(server: PlaygroundServer, text: bytes) -> Answer:
    """Send these bytes and read to the end."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=30) as connection:
        connection.sendall(text)
        return received(connection)


def received(connection: socket.socket) -> Answer:
    """What the server answers before it closes the connection."""
    with connection.makefile("rb") as stream:
        head, _, body = stream.read().partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest)}
    return Answer(int(first.split()[1]), headers, body)


def refused(answer: Answer, status: int, word: str = "") -> None:
    """Check that the answer is one sentence of JSON with this status."""
    assert answer.status == status, answer
    assert answer.headers["content-type"] == "application/json"
    assert list(answer.json) == ["error"]
    sentence = answer.json["error"]
    assert word in sentence, sentence
    assert 10 < len(sentence) < 300
    assert "Traceback" not in sentence
