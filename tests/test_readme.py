"""The README tells the truth: its example runs, its files and commands exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Of the built documentation and of what the gallery writes nothing is ours.
MADE = ("_build", "examples", "generated")
PAGES = sorted(
    path.relative_to(ROOT / "docs").as_posix()
    for path in (ROOT / "docs").rglob("*.md")
    if not set(path.relative_to(ROOT / "docs").parts) & set(MADE)
)
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def run(code: str) -> None:
    exec(compile(code, "example", "exec", dont_inherit=True), {"__name__": "example"})


@pytest.mark.slow
def test_the_example_runs(capsys):
    (example,) = blocks(README, "python")
    assert len(example.splitlines()) == 10
    run(example)
    said = capsys.readouterr().out
    assert float(re.search(r"the largest gap is (\S+)", said)[1]) < 1e-10
    assert 0.99 < float(re.search(r"max-margin solution: (\S+)", said)[1]) <= 1
    assert int(re.search(r"(\d+) as predicted", said)[1]) > 75


def test_a_broken_example_would_be_seen():
    with pytest.raises(AttributeError):
        run("import attsvm\nattsvm.data.no_such_generator()")


@pytest.mark.slow
@pytest.mark.parametrize("page", [*sorted(path.name for path in (ROOT / "docs").glob("*.md")), "experiments/index.md"])
def test_examples_of_the_documentation_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = blocks((ROOT / "docs" / page).read_text(encoding="utf-8"), "python")
    if code:
        run("\n".join(code))


def test_every_experiment_has_a_page_with_its_picture_and_command():
    from attsvm.experiments import EXPERIMENTS

    for name in EXPERIMENTS:
        page = (ROOT / f"docs/experiments/{name}.md").read_text(encoding="utf-8")
        assert f"    attsvm figure run {name}\n" in page
        pictures = re.findall(r"\]\(\.\./(images/\S+?)\)", page)
        assert f"images/experiments/{name}.png" in pictures
        assert [each for each in pictures if not (ROOT / "docs" / each).exists()] == []


def test_links_lead_to_files():
    for target in re.findall(r"\]\((?!https?://)([^)#]+)", README):
        assert (ROOT / target).exists(), target


def test_both_commands_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in ("demo", "test"):
        assert f"make {command}" in README
        assert re.search(rf"^{command}:", makefile, flags=re.MULTILINE)


def test_every_command_is_listed():
    for command in ("demo", "train", "solve", "diagnose", "figure", "play", "heads"):
        assert re.search(rf"attsvm {command}\b", README), command


def test_the_table_of_rules_is_the_measured_one():
    measured: dict[str, list[str]] = {}
    for row in json.loads((ROOT / "benchmarks/results/prediction.json").read_text(encoding="utf-8"))["rows"]:
        measured.setdefault(row["rule"], []).append(f"{100 * row['accuracy']:.1f}")
    page = (ROOT / "docs/prediction.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| ")]
    assert {row[0]: row[2:] for row in rows[1:]} == measured


def test_both_papers_are_cited():
    assert "2306.13596" in README
    assert "2308.16898" in README


def test_the_norm_shown_to_contributors_is_the_real_one():
    (shown,) = blocks((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").replace("\n  ", "\n"), "python")
    real = (ROOT / "src/attsvm/norms/frobenius.py").read_text(encoding="utf-8").splitlines()
    assert [line for line in shown.splitlines() if line not in real] == []
    assert "class Frobenius(Norm):" in shown
