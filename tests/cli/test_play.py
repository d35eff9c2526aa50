from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import webbrowser

import pytest

from attsvm.app import PlaygroundServer
from attsvm.cli import play as command
from attsvm.data import random_sphere
from cli.runner import COMMAND, ENVIRONMENT, invoke, refused


@pytest.fixture
def unserved(monkeypatch):
    """The command without its waiting, and without a browser."""
    monkeypatch.setattr(PlaygroundServer, "serve_forever", lambda server: None)
    monkeypatch.setattr(command, "_open", lambda address: None)
    return command


def test_the_address_is_printed(unserved):
    result = invoke("play", "--port", 0)
    assert result.exit_code == 0
    assert re.fullmatch(r"The playground is at http://127\.0\.0\.1:\d+/ \(Ctrl-C ends it\)\n", result.output)


@pytest.mark.parametrize("name", ["multi-input", "trajectories", "joint-training-tight"])
def test_an_example_becomes_the_first_state(unserved, monkeypatch, name):
    seen = []
    monkeypatch.setattr(PlaygroundServer, "serve_forever", lambda server: seen.append(server.contents["/"][1].decode()))
    assert invoke("play", name, "--port", 0).exit_code == 0
    assert '"problem": {"kind"' in seen[0]
    assert f'"preset": "{name}"' in seen[0]


def test_a_file_becomes_the_first_state(unserved, monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(PlaygroundServer, "serve_forever", lambda server: seen.append(server.contents["/"][1].decode()))
    data = random_sphere(n=2, T=3, d=2, seed=0)
    assert invoke("play", data.save(tmp_path / "data.npz"), "--port", 0).exit_code == 0
    assert str(data.tokens[1, 2, 0].item()) in seen[0]


def test_data_that_cannot_be_shown(tmp_path):
    path = random_sphere(n=2, T=3, d=5, seed=0).save(tmp_path / "data.npz")
    refused(invoke("play", path), str(path), "plane", "d = 5")
    refused(invoke("play", "no-such-data"), "DATA")


def test_a_taken_port_is_an_error_with_a_free_one(unserved):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        sentence = refused(invoke("play", "--port", port), f"port {port} cannot be used", "leave the port out")
    free = int(re.search(r"; (\d+) is free", sentence)[1])
    assert free != port
    assert invoke("play", "--port", free).exit_code == 0


def test_no_such_port():
    refused(invoke("play", "--port", 70000), "70000")


def test_without_a_port_the_next_free_one_is_used_and_said(unserved, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(unserved, "USUAL_PORT", port)
        monkeypatch.setattr("attsvm.app.server.USUAL_PORT", port)
        said = invoke("play").output
    assert f"Port {port} is taken" in said
    assert f"http://127.0.0.1:{port}/" not in said


def test_export_writes_one_page(tmp_path):
    path = tmp_path / "new" / "page.html"
    result = invoke("play", "two-inputs", "--export", path)
    assert result.exit_code == 0
    assert str(path) in result.output
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "[0.28, 0.96]" in text  # the second query
    assert [each.name for each in path.parent.iterdir()] == ["page.html"]


@pytest.mark.parametrize(("arguments", "words"), [
    (("--export", "page.txt"), (".html", "'.txt'")),
    (("--export", "."), ("must end in .html",)),
    (("--export", "page.html", "--port", "1"), ("--port", "--export")),
    (("--export", "page.html", "--no-browser"), ("--no-browser", "--export")),
])  # fmt: skip
def test_exports_that_are_refused(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(invoke("play", *arguments), *words)
    assert list(tmp_path.iterdir()) == []


class Browser(webbrowser.BaseBrowser):
    """Notes what it is asked to open."""

    def __init__(self) -> None:
        super().__init__("test")
        self.opened: list[str] = []

    def open(self, url: str, new: int = 0, autoraise: bool = True) -> bool:
        self.opened.append(url)
        return True


def test_a_browser_is_opened(monkeypatch, capsys):
    browser = Browser()
    monkeypatch.setattr(webbrowser, "get", lambda: browser)
    command._open("http://127.0.0.1:1/")
    assert browser.opened == ["http://127.0.0.1:1/"]
    assert capsys.readouterr().out == ""


def test_a_browser_for_the_terminal_is_not(monkeypatch, capsys):
    monkeypatch.delenv("BROWSER", raising=False)
    monkeypatch.setattr(webbrowser, "get", lambda: webbrowser.GenericBrowser("lynx"))
    command._open("http://127.0.0.1:1/")
    assert "open the address yourself" in capsys.readouterr().out


@pytest.mark.slow
def test_without_a_screen_it_serves_and_ctrl_c_ends_it():
    hidden = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "PATH")
    bare = {name: value for name, value in ENVIRONMENT.items() if name not in hidden}
    with subprocess.Popen(
        [*COMMAND, "play", "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**bare, "PATH": os.devnull},
    ) as process:  # fmt: skip
        try:
            first = process.stdout.readline()
            assert first.startswith("The playground is at"), process.stderr.read()
            port = int(re.search(r":(\d+)/", first)[1])
            assert "open the address yourself" in process.stdout.readline()
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", "/")
            assert connection.getresponse().status == 200
            connection.close()
            with socket.create_connection(("127.0.0.1", port)):  # a client that is still there must not hold it up
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 0
    assert out.strip() == "The playground has ended."
    assert err == ""


def test_help_names_every_option():
    result = invoke("play", "--help")
    for word in ("--port", "--no-browser", "--export", "[DATA]"):
        assert word in result.output
