"""What a public project keeps beside its code: workflows that run, one version everywhere, promises that are kept."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import attsvm

from .environment import ROOT

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_make_targets_that_exist(path: Path) -> None:
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    targets = [command.split()[1] for command in commands if command.startswith("make ")]
    assert targets
    for target in targets:
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target


def test_every_workflow_says_what_it_may_do() -> None:
    assert {path.stem for path in WORKFLOWS} >= {"tests", "docs", "release"}
    for path in WORKFLOWS:
        assert yaml.safe_load(path.read_text(encoding="utf-8"))["permissions"] == {"contents": "read"}, path.name


@pytest.mark.parametrize("path", sorted(ROOT.glob(".github/ISSUE_TEMPLATE/*.yml")), ids=lambda path: path.stem)
def test_forms_of_issues(path: Path) -> None:
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.stem == "config":
        return
    assert {"name", "description", "body"} <= set(form)
    names = [part["id"] for part in form["body"]]
    assert len(set(names)) == len(names)
    assert all(part["type"] == "textarea" and part["attributes"]["label"] for part in form["body"])


def test_hooks_are_the_linters_of_make_lint() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
    linters = {hook["entry"].removeprefix(".venv/bin/").split(" --")[0] for hook in hooks}
    assert linters == {
        line.split(" --")[0].removesuffix(" .")
        for line in re.findall(r"^\t\$\(BIN\)/(ruff .*|mypy)$", MAKEFILE, re.MULTILINE)
    }


def test_the_citation_names_this_version_and_both_papers() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == attsvm.__version__
    cited = {reference["url"].rpartition("/")[2] for reference in citation["references"]}
    assert cited >= {"2306.13596", "2308.16898"}


def test_the_changelog_begins_with_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first = re.search(r"^## \[(.+?)\] - (.+)$", text, re.MULTILINE)
    assert first is not None
    assert first[1] == attsvm.__version__
    assert re.fullmatch(r"Unreleased|\d{4}-\d{2}-\d{2}", first[2])


def test_what_is_never_executed() -> None:
    """The sources have none of the calls that would break the promises of SECURITY.md."""
    broken = re.compile(
        r"allow_pickle=True|weights_only=False|trust_remote_code=True|pickle\.loads?\(|joblib\.load\(|yaml\.load\("
        r"|(?<![.\w])(?:eval|exec)\(|os\.system|shell=True"
    )
    own = re.compile(r"\b(?:eval|exec)\(")  # the text of kernels for a GPU, made of attsvm's own text alone
    kernels = ("descent/engines/cuda/", "data/kernel_text.py")
    for path in (ROOT / "src").glob("attsvm/**/*.py"):
        text = path.read_text(encoding="utf-8")
        ours = any(each in path.as_posix() for each in kernels)
        assert not broken.search(own.sub("", text) if ours else text), path
    assert "torch>=2.6" in (ROOT / "pyproject.toml").read_text(encoding="utf-8")  # CVE-2025-32434


PAGES = [*ROOT.glob("*.md"), *(path for path in ROOT.glob("docs/**/*.md") if "_build" not in path.parts)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_and_pictures_lead_to_files_on_github_too(page: Path) -> None:
    prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", prose)]
    inside = [link for link in links if link and not link.startswith(("https://", "http://", "mailto:"))]
    assert [link for link in inside if not (page.parent / link).is_file()] == []
