"""The console blocks of docs/heads_why.md: what the page shows is what the commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from cli.runner import invoke
from heads.weights import real

PAGE = Path(__file__).resolve().parents[3] / "docs" / "heads_why.md"
NUMBER = r"-?[\d,]*\.?\d+(?:e-?\d+)?"


def sessions() -> list[list[tuple[str, list[str]]]]:
    """For every block its commands, each with the lines that are shown below it."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        found.append([])
        for line in block.splitlines():
            if line.startswith("$ "):
                found[-1].append((line[2:], []))
            else:
                found[-1][-1][1].append(line)
    return found


def like(shown: str, printed: str) -> bool:
    """Whether the words are the same, and the numbers but for their last digits (round-off in any size)."""
    if re.sub(NUMBER, "#", shown) != re.sub(NUMBER, "#", printed):
        return False
    pairs = zip(
        *([float(n.replace(",", "")) for n in re.findall(NUMBER, line)] for line in (shown, printed)), strict=True
    )
    return all(abs(a - b) <= 0.02 * abs(a) or max(abs(a), abs(b)) < 1e-9 for a, b in pairs)


def missing(shown: list[str], printed: str) -> list[str]:
    """Lines of the page that the command does not print in this order; lines may be left out, and ... says so."""
    words = [" ".join(line.split()) for line in printed.splitlines()]
    lost = []
    for line in [" ".join(line.split()) for line in shown]:
        place = next((k for k, said in enumerate(words) if like(line, said)), None)
        if line == "..." or place is not None:
            words = words[(0 if place is None else place + 1) :]
        else:
            lost.append(line)
    return lost


def test_lines_are_compared():
    printed = "a wins by 2.447\n\n sum   1,200 \ngap of 2.1e-11"
    assert missing(["a wins by 2.45", "sum 1,201", "gap of 3e-12"], printed) == []
    assert missing(["b wins by 2.447"], printed) == ["b wins by 2.447"]
    assert missing(["a wins by 2.6"], printed) == ["a wins by 2.6"]
    assert missing(["sum 1,200", "a wins by 2.447"], printed) == ["a wins by 2.447"]


@pytest.mark.slow
@pytest.mark.parametrize("session", sessions(), ids=lambda session: shlex.split(session[-1][0])[2].rpartition("/")[2])
def test_the_page_shows_what_is_printed(session, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    names = {word.split("/")[1] for command, _ in session for word in shlex.split(command) if ".weights" in word}
    (tmp_path / ".weights").mkdir()
    for name in names:
        (tmp_path / ".weights" / name).symlink_to(real(name))
    for command, shown in session:
        program, *rest = shlex.split(command)
        if program == "cat":
            (tmp_path / rest[0]).write_text("\n".join(shown) + "\n", encoding="utf-8")
            continue
        result = invoke(*rest)
        assert result.exit_code == 0, result.output
        assert missing(shown, result.output) == []
