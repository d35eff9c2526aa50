"""The README tells the truth: its example runs, its files and commands exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def run(code: str) -> None:
    exec(compile(code, "example", "exec"), {"__name__": "example"})


@pytest.mark.slow
def test_the_example_runs(capsys):
    (example,) = blocks(README, "python")
    assert len(example.splitlines()) == 10
    run(example)
    said = capsys.readouterr().out
    assert re.search(r"norm \d+, every input on its optimal token in \d+% of data sets", said)
    turned = float(re.search(r"turned by (\S+)", said)[1])
    assert 0 < turned < 1e-3


def test_a_broken_example_would_be_seen():
    with pytest.raises(AttributeError):
        run("import attsvm\nattsvm.data.no_such_generator()")


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_examples_of_the_documentation_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = blocks((ROOT / "docs" / page).read_text(encoding="utf-8"), "python")
    if code:
        run("\n".join(code))


def test_links_lead_to_files():
    for target in re.findall(r"\]\((?!https?://)([^)#]+)", README):
        assert (ROOT / target).exists(), target


def test_both_commands_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in ("demo", "test"):
        assert f"make {command}" in README
        assert re.search(rf"^{command}:", makefile, flags=re.MULTILINE)


def test_both_papers_are_cited():
    assert "2306.13596" in README
    assert "2308.16898" in README
