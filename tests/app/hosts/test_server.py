from __future__ import annotations

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from attsvm.app import PlaygroundServer, open_server
from attsvm.app.page import module_text
from attsvm.app.server import MOST_BYTES
from attsvm.data import example

from .requests import QUESTION, ask, certificate, raw, received, refused, serving

GOOD = json.dumps(QUESTION).encode()


def short(value: object) -> str:
    """A name for a case, which may be a hundred thousand bytes."""
    return repr(value)[:24]


@pytest.fixture(scope="module")
def server():
    with serving() as running:
        yield running


def test_the_page_and_its_scripts(server):
    for path, kind in {"/": "text/html", "/start.js": "text/javascript", "/playground.js": "text/javascript"}.items():
        answer = ask(server, "GET", path)
        assert answer.status == 200
        assert answer.headers["content-type"] == f"{kind}; charset=utf-8"
        assert ask(server, "HEAD", path).headers["content-length"] == str(len(answer.body))
    assert ask(server, "GET", "/playground.js").body.decode() == module_text()
    assert ask(server, "GET", "/?from=somewhere").status == 200


def test_every_answer_is_guarded(server):
    for answer in (
        ask(server, "GET", "/"),
        certificate(server, GOOD),
        ask(server, "GET", "/none"),
        ask(server, "PUT", "/"),
    ):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "connect-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in answer.headers
        assert "python" not in answer.headers["server"].lower()


def test_it_listens_on_loopback_alone(server):
    assert server.socket.getsockname()[0] == "127.0.0.1"
    assert server.address == f"http://127.0.0.1:{server.server_port}/"


def test_python_answers_with_its_solution(server):
    answer = certificate(server, GOOD)
    assert answer.status == 200
    assert answer.json["weights"] == pytest.approx([-10 / 101, 100 / 101], abs=1e-12)
    assert answer.json["status"] == "solved"


@pytest.mark.parametrize("path", [
    "/pyproject.toml", "/../pyproject.toml", "/%2e%2e/pyproject.toml", "/..%2f..%2fetc/passwd", "//etc/passwd",
    "/playground.js/../../server.py", "/playground.js%00", "/\\..\\server.py", "*", "/certify/",
])  # fmt: skip
def test_nothing_else_is_served(server, path):
    refused(ask(server, "GET", path), 404)


@pytest.mark.parametrize("host", [
    "evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:{other}", "localhost",
    "localhost.evil.example:{port}",
    "127.0.0.1:{port}@evil.example", "127.0.0.2:{port}", "0.0.0.0:{port}", "[::1]:{port}", "",
    "127.0.0.1:{port}, evil.example",
])  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_other_hosts_are_refused(server, host, method):
    named = host.format(port=server.server_port, other=server.server_port + 1)
    refused(ask(server, method, "/" if method == "GET" else "/certify", GOOD, {"Host": named}), 403, "Host")


def test_a_host_must_be_named_once(server):
    name = f"Host: 127.0.0.1:{server.server_port}\r\n"
    refused(raw(server, b"GET / HTTP/1.1\r\n\r\n"), 403, "Host")
    refused(raw(server, f"GET / HTTP/1.1\r\n{name}Host: evil.example\r\n\r\n".encode()), 403, "Host")
    refused(raw(server, b"GET /\r\n\r\n"), 403, "Host")
    refused(raw(server, f"GET http://evil.example/ HTTP/1.1\r\n{name}\r\n".encode()), 404)
    assert raw(server, f"GET / HTTP/1.1\r\n{name}\r\n".encode()).status == 200


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LocalHost:{port}"])
def test_its_own_names_are_welcome(server, host):
    named = host.format(port=server.server_port)
    assert certificate(server, GOOD, {"Host": named, "Origin": f"http://{named}"}).status == 200


@pytest.mark.parametrize("origin", [
    "http://evil.example", "null", "https://127.0.0.1:{port}", "http://127.0.0.1:{other}", "http://127.0.0.1",
    "http://localhost:{port}.evil.example", "file://", "",
])  # fmt: skip
def test_other_origins_are_refused(server, origin):
    named = origin.format(port=server.server_port, other=server.server_port + 1)
    refused(certificate(server, GOOD, {"Origin": named}), 403, "origin")
    refused(ask(server, "GET", "/", headers={"Origin": named}), 403, "origin")


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_other_sites_are_refused(server, site):
    refused(certificate(server, GOOD, {"Sec-Fetch-Site": site}), 403, "other sites")


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "BREW", "get", "__init__"])
def test_other_methods_are_refused(server, method):
    answer = ask(server, method, "/certify")
    refused(answer, 405, "GET, HEAD and POST")
    assert "POST" in answer.headers["allow"]


def test_methods_keep_to_their_paths(server):
    refused(ask(server, "GET", "/certify"), 405, "POST")
    refused(ask(server, "POST", "/", GOOD), 405, "/certify")
    refused(ask(server, "POST", "/elsewhere", GOOD), 404, "/certify")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "nonsense"])
def test_a_form_of_another_site_cannot_ask(server, kind):
    refused(certificate(server, GOOD, {"Content-Type": kind}), 415, "application/json")
    refused(ask(server, "POST", "/certify", GOOD), 415)


@pytest.mark.parametrize(("body", "word"), [
    (b"", "JSON"),
    (b"{", "JSON"),
    (b"{} {}", "JSON"),
    (b"\xff\xfe{}", "UTF-8"),
    (b"\xc0\x80", "UTF-8"),
    ('{"a": "\ud800"}'.encode("utf-8", "surrogatepass"), "UTF-8"),
    (b'{"a": NaN}', "NaN"),
    (b'{"a": [Infinity]}', "Infinity"),
    (b'{"a": -Infinity}', "-Infinity"),
    (b"[" * 100_000, "deep"),
    (b'{"a":' * 30_000 + b"1" + b"}" * 30_000, "deep"),
    (b'{"a": ' + b"9" * 10_000 + b"}", "JSON"),
    (b'{"a": 0x10}', "JSON"),
    (b"\x00" * 100, "JSON"),
], ids=short)  # fmt: skip
def test_what_is_not_json_is_refused(server, body, word):
    refused(certificate(server, body), 400, word)


@pytest.mark.parametrize(("old", "new", "word"), [
    (b'"prompt"', b'"nonsense"', "kind"),
    (b'"inputs": [', b'"inputs": [[],', "inputs[0]"),
    (b'"label": 1', b'"label": "1"', "label"),
    (b"[-0.1, 1.0]", b"[-0.1, 1e999]", "finite"),
    (b"[-0.1, 1.0]", b"[-0.1, " + b"9" * 400 + b"]", "twenty digits"),
    (b"[-0.1, 1.0]", b"[-0.1, null]", "number"),
    (b'"selected": [0]', b'"selected": [3]', "selected[0]"),
    (b'"selected": [0]', b'"selected": {"0": 0}', "selected"),
    (b'"frobenius"', b'"frobenius\\u0000"', "norm"),
    (b'"inputs": [', b'"inputs": [' + b'{"label": 1, "query": null, "tokens": [{"x": [0, 0]}]},' * 8, "1 to 8"),
], ids=short)  # fmt: skip
def test_hostile_json_is_refused(server, old, new, word):
    assert old in GOOD
    refused(certificate(server, GOOD.replace(old, new, 1)), 422, word)


@pytest.mark.parametrize("body", [b"null", b"3", b'"text"', b"[]", b"{}", b"true"])
def test_other_json_is_refused(server, body):
    refused(certificate(server, body), 422)


@pytest.mark.parametrize(("headers", "status", "word"), [
    ("", 411, "Content-Length"),
    ("Transfer-Encoding: chunked", 411, "Content-Length"),
    ("Transfer-Encoding: chunked\r\nContent-Length: 2", 411, "Content-Length"),
    ("Content-Length: many", 400, "whole number"),
    ("Content-Length: -1", 400, "whole number"),
    ("Content-Length: +2", 400, "whole number"),
    ("Content-Length: 1_0", 400, "whole number"),
    ("Content-Length: \u00b2", 400, "whole number"),
    ("Content-Length: 2\r\nContent-Length: 3", 400, "whole number"),
    (f"Content-Length: {MOST_BYTES + 1}", 413, "bytes"),
    ("Content-Length: " + "9" * 5000, 413, "bytes"),
    (f"Content-Length: 2\r\nX: {'a' * 70_000}", 431, ""),
    ("Content-Length: 2\r\n" + "\r\n".join(f"X{k}: 1" for k in range(200)), 431, ""),
], ids=short)  # fmt: skip
def test_lengths_that_are_refused(server, headers, status, word):
    first = f"POST /certify HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\nContent-Type: application/json\r\n"
    end = "\r\n\r\n" if headers else "\r\n"
    refused(raw(server, (first + headers + end).encode("latin-1") + b"{}"), status, word)


def test_a_large_request_still_reads_its_answer(server):
    refused(certificate(server, b"[" + b"1," * 4_000_000 + b"1]"), 413, f"{MOST_BYTES:,} bytes")


@pytest.mark.parametrize(("line", "status"), [
    (b"GET / HTTP/9.9", 400), (b"GET / HTTP/x", 400), (b"GET / / HTTP/1.1", 400), (b"\x16\x03\x01\x02\x00", 400),
    (b"GET /" + b"a" * 70_000 + b" HTTP/1.1", 414), (b"POST /certify", 400),
], ids=short)  # fmt: skip
def test_what_is_not_http_is_refused(server, line, status):
    refused(raw(server, line + b"\r\n\r\n"), status)


def test_a_client_that_stops_in_the_middle(server):
    first = f"POST /certify HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=30) as connection:
        connection.sendall(f"{first}Content-Length: 100\r\n\r\n{{".encode())
        connection.shutdown(socket.SHUT_WR)
        refused(received(connection), 400, "ended")


@pytest.mark.parametrize("sent", [
    b"G",
    b"GET / HTTP/1.1\r\nHo",
    b"POST /certify HTTP/1.1\r\nHost: {}\r\nContent-Length: 9\r\nContent-Type: application/json\r\n\r\n{",
], ids=["line", "headers", "body"])  # fmt: skip
def test_slow_clients_are_sent_away(sent):
    with serving(seconds=0.3) as server, socket.create_connection(("127.0.0.1", server.server_port)) as connection:
        connection.settimeout(30)
        stop = threading.Event()
        connection.sendall(sent.replace(b"{}", f"127.0.0.1:{server.server_port}".encode()))

        def trickle():
            # A byte now and then must not buy more time.
            while not stop.wait(0.1):
                try:
                    connection.sendall(b" ")
                except OSError:
                    return

        thread = threading.Thread(target=trickle)
        thread.start()
        answer = received(connection)
        stop.set()
        thread.join()
    refused(answer, 408, "0.3 seconds")


def test_a_connection_without_a_request_is_closed_in_silence():
    with serving(seconds=0.2) as server, socket.create_connection(("127.0.0.1", server.server_port)) as connection:
        connection.settimeout(30)
        assert connection.recv(1) == b""


def test_fifty_clients_at_once(server):
    barrier = threading.Barrier(50)

    def one(k):
        barrier.wait()
        page = ask(server, "GET", "/")
        return page.status, certificate(server, GOOD).json["weights"], ask(server, "GET", f"/{k}").status

    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(one, range(50)))
    assert {(page, missing) for page, _, missing in answers} == {(200, 404)}
    for _, weights, _ in answers:
        assert weights == pytest.approx([-10 / 101, 100 / 101], abs=1e-12)


def test_one_client_too_many_comes_again(monkeypatch):
    monkeypatch.setattr("attsvm.app.server.MOST_CLIENTS", 2)
    with serving() as server:
        address = ("127.0.0.1", server.server_port)
        with socket.create_connection(address) as one, socket.create_connection(address) as two:
            one.sendall(b"G")
            two.sendall(b"G")
            refused(raw(server, b""), 503, "try again")
        assert ask_again(server) == 200


def ask_again(server: PlaygroundServer) -> int:
    """The status when there is a place again, which takes a moment."""
    for _ in range(200):
        status = ask(server, "GET", "/").status
        if status != 503:
            return status
        threading.Event().wait(0.02)
    return status


def test_clients_that_hang_up_leave_no_noise(server, capfd):
    for _ in range(5):
        connection = socket.create_connection(("127.0.0.1", server.server_port))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        connection.sendall(f"GET /playground.js HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\n\r\n".encode())
        connection.close()  # with a reset
    assert ask(server, "GET", "/").status == 200
    assert capfd.readouterr().err == ""


def test_the_first_state_is_in_the_page_and_cannot_leave_it():
    with serving(state={"preset": "</script><script>alert(1)</script>"}) as server:
        page = ask(server, "GET", "/").body.decode()
    assert "</script><script>alert" not in page
    assert "\\u003c/script>" in page


def test_a_taken_port_is_refused_with_a_free_one(server):
    with pytest.raises(
        ValueError, match=rf"port {server.server_port} cannot be used \(address already in use\); \d+ is"
    ):
        open_server(server.server_port)


@pytest.mark.parametrize("port", [-1, 65536])
def test_no_such_port(port):
    with pytest.raises(ValueError, match=f"0..65535; got {port}"):
        open_server(port)


def test_without_a_port_the_next_free_one_is_used(server, monkeypatch):
    monkeypatch.setattr("attsvm.app.server.USUAL_PORT", server.server_port)
    with open_server() as other:
        assert other.server_port != server.server_port
    monkeypatch.setattr("attsvm.app.server.NEXT_PORTS", 1)
    with open_server() as other:
        assert other.server_port != server.server_port


def test_the_question_is_about_the_example():
    assert QUESTION["problem"]["inputs"][0]["tokens"][0]["x"] == example("single-input-local").tokens[0, 0].tolist()
